/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/topo/topo.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diag/check/gpu_links.h"
#include "diag/check/snapshot.h"

/* Limit for the answer of NVML: a driver can hang. */
#define QUERY_TIMEOUT (10 * CLI_NS_PER_S)

enum { OPTION_NCCL = 0x100, OPTION_SVG, OPTION_HTML };

struct topo {
	struct cli_options common;
	const char *sysroot, *nccl_file, *svg, *html;
	bool tree, numeric;
};

static error_t parse_topo_option(int key, char *argument, struct argp_state *state)
{
	struct topo *topo = state->input;

	switch (key) {
	case 'r':
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
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option topo_options[] = {
	{ NULL, 0, NULL, 0, "Output format:", 10 },
	{ "tree", 'T', NULL, 0, "Print the PCI tree instead of the matrix", 10 },
	{ "svg", OPTION_SVG, "FILE", 0, "Draw the machine as an SVG picture into FILE (-: standard output)", 10 },
	{ "html", OPTION_HTML, "FILE", 0, "Write the picture and all tables as one page into FILE", 10 },
	{ "numeric", 'n', NULL, 0, "Print device numbers instead of device names", 10 },
	{ NULL, 0, NULL, 0, "Machine:", 20 },
	{ "sysroot", 'r', "PATH", 0,
	  "Read the machine from the folder PATH, or from a file of `peerlane dump` (default: /)", 20 },
	{ "nccl-topology", OPTION_NCCL, "FILE", 0, "Take the locations of devices from an NCCL topology file", 20 },
	{ 0 },
};

static const struct cli_command topo_command = {
	.summary = "Show which RDMA card is near which GPU, the rate of the path between them, and links between GPUs.",
	.examples = {
		"peerlane topo",
		"peerlane topo --html machine.html",
	},
	.notes = "Each pair of a GPU and a card has a class, named as by nvidia-smi: PIX (at most one PCI switch between "
		 "them), PXB (several switches), PHB (a host bridge), NODE (several host bridges of one NUMA node), SYS "
		 "(different NUMA nodes).  An asterisk (*) marks the best card of each GPU.  Two "
		 "GPUs have the number of NVLinks (NV18) or xGMI links (XGMI1) between them, or the class of their "
		 "PCI path.\n",
	.options = topo_options,
	.parse = parse_topo_option,
};

static int write_topo_file(const struct topo_view *view, const char *path,
			   void (*write)(const struct topo_view *, FILE *), struct pl_error *error)
{
	FILE *file = cli_file_open(path, error);

	if (!file)
		return error->code;
	write(view, file);
	return cli_file_close(file, path, 0, error);
}

static int write_outputs(const struct topo *topo, const struct topo_view *view, struct pl_error *error)
{
	int rc = 0;

	if (topo->svg)
		rc = write_topo_file(view, topo->svg, topo_write_svg, error);
	if (rc == 0 && topo->html)
		rc = write_topo_file(view, topo->html, topo_write_html, error);
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

static int open_topology(const struct topo *topo, struct pl_topology **topology, struct pl_error *error)
{
	struct pl_topology_options options = { .nccl_file = topo->nccl_file };
	struct pl_sysroot *root;
	int rc = pl_archive_open_root(&root, topo->sysroot, error);

	if (rc < 0)
		return rc;
	/* The variable describes this machine only. */
	if (pl_sysroot_is_live(root))
		options.nccl_variable = getenv("NCCL_TOPO_FILE");
	rc = pl_topology_read(topology, root, &options, error);
	if (rc == 0 && pl_gpu_links_read(*topology, root, QUERY_TIMEOUT) < 0) {
		pl_topology_free(*topology);
		rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
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

	cli_parse(&topo_command, argc, argv, &topo.common, &topo);
	rc = open_topology(&topo, &topology, &error);
	if (rc < 0)
		return cli_report_for(&topo.common, &error);
	view = (struct topo_view){
		.topology = topology,
		.names = pci_names_open(topo.numeric),
		.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
		.quiet = topo.common.quiet,
	};
	if (!topo.sysroot)
		cli_host_name(view.host, sizeof(view.host));
	rc = write_outputs(&topo, &view, &error);
	pci_names_close(view.names);
	pl_topology_free(topology);
	return rc < 0 ? cli_report_for(&topo.common, &error) : CLI_OK;
}
