/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diag/check/snapshot.h"
#include "cmd/topo/topo.h"

enum { OPTION_SYSROOT = 0x100, OPTION_NCCL, OPTION_SVG, OPTION_HTML };

struct topo {
	struct cli_options common;
	const char *sysroot, *nccl_file, *svg, *html;
	bool tree, numeric;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct topo *topo = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &topo->common;
		return 0;
	case OPTION_SYSROOT:
		topo->sysroot = argument;
		return 0;
	case OPTION_NCCL:
		topo->nccl_file = argument;
		return 0;
	case OPTION_SVG:
		topo->svg = argument;
		return 0;
	case OPTION_HTML:
		topo->html = argument;
		return 0;
	case 'T':
		topo->tree = true;
		return 0;
	case 'n':
		topo->numeric = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "there are no arguments");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ NULL, 0, NULL, 0, "What is shown:", 10 },
	{ "tree", 'T', NULL, 0, "Show the PCI tree in place of the matrix", 10 },
	{ "svg", OPTION_SVG, "FILE", 0, "Draw a picture of the machine into FILE (-: standard output)", 10 },
	{ "html", OPTION_HTML, "FILE", 0, "The same as a page with all tables, in one file", 10 },
	{ "numeric", 'n', NULL, 0, "Show numbers of devices in place of names", 10 },
	{ NULL, 0, NULL, 0, "Which machine:", 20 },
	{ "sysroot", OPTION_SYSROOT, "PATH", 0,
	  "Read the files of the machine below the folder PATH, or in PATH, a file of `peerlane dump` (default: /)",
	  20 },
	{ "nccl-topology", OPTION_NCCL, "FILE", 0, "Where things are is as NCCL's topology file FILE says", 20 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	options,
	parse,
	"",
	"Show which GPU is near which RDMA card, and what the way between them carries."
	"\v"
	"Each pair has a class, as nvidia-smi names them: PIX (one PCI switch at most), PXB (several), PHB (through a "
	"host bridge), NODE (through several of one NUMA node), SYS (from one NUMA node to another). The best card of "
	"each GPU has a *.\n"
	"\n"
	"Examples:\n"
	"  peerlane topo\n"
	"  peerlane topo --tree\n"
	"  peerlane topo --html machine.html\n"
	"  peerlane topo --json | jq '.pairs[] | select(.best)'\n",
	children,
	cli_help_filter,
	NULL
};

static int write_file(const struct topo_view *view, const char *path, void (*write)(const struct topo_view *, FILE *),
		      struct pl_error *error)
{
	FILE *file = cli_file_open(path, error);

	if (!file)
		return error->code;
	write(view, file);
	return cli_file_close(file, path, 0, error);
}

static int show(const struct topo *topo, const struct topo_view *view, struct pl_error *error)
{
	int rc = 0;

	if (topo->svg)
		rc = write_file(view, topo->svg, topo_write_svg, error);
	if (rc == 0 && topo->html)
		rc = write_file(view, topo->html, topo_write_html, error);
	if (rc < 0)
		return rc;
	if (topo->common.json)
		topo_print_json(view);
	else if (topo->tree)
		topo_print_tree(view);
	else if (!topo->svg && !topo->html)
		topo_print_matrix(view);
	return 0;
}

static int read_topology(const struct topo *topo, struct pl_topology **topology, struct pl_error *error)
{
	struct pl_topology_options how = { .nccl_file = topo->nccl_file };
	struct pl_sysroot *root;
	int rc = pl_archive_open_root(&root, topo->sysroot, error);

	if (rc < 0)
		return rc;
	/* The variable is about this machine. */
	if (pl_sysroot_is_live(root))
		how.nccl_variable = getenv("NCCL_TOPO_FILE");
	rc = pl_topology_read(topology, root, &how, error);
	pl_sysroot_close(root);
	return rc;
}

int pl_cli_topo(int argc, char **argv)
{
	struct topo topo = { .sysroot = NULL };
	struct pl_topology *topology;
	struct topo_view view;
	struct pl_error error;
	int rc;

	cli_parse(&arguments, argc, argv, &topo);
	rc = read_topology(&topo, &topology, &error);
	if (rc < 0)
		return cli_report_for(&topo.common, &error);
	view = (struct topo_view){
		.topology = topology,
		.names = pci_names_open(topo.numeric),
		.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
		.quiet = topo.common.quiet,
	};
	rc = show(&topo, &view, &error);
	pci_names_close(view.names);
	pl_topology_free(topology);
	return rc < 0 ? cli_report_for(&topo.common, &error) : CLI_OK;
}
