/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/topo/judge.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diag/check/data_direct.h"
#include "diag/check/gpu_links.h"
#include "diag/check/snapshot.h"

/* Limit for each answer, of libmlx5 and of NVML: a driver can hang. */
#define QUERY_TIMEOUT (10 * CLI_NS_PER_S)

enum { OPTION_NCCL = 0x100, OPTION_SVG, OPTION_HTML };

struct topo {
	struct check check; /* its options about the judgement, and the shared ones */
	const char *nccl_file, *svg, *html;
	bool tree, numeric;
};

/* Returns the number of documents that standard output would have. */
static int count_topo_outputs(const struct topo *topo)
{
	const struct check *check = &topo->check;
	bool svg = topo->svg && !strcmp(topo->svg, "-"), html = topo->html && !strcmp(topo->html, "-");
	bool text = topo->tree || check_is_judged(check);

	return svg + html + (text || check->format == CHECK_JSON);
}

/* Refuses options that do not fit each other. */
static void settle_topo_options(struct topo *topo, struct argp_state *state)
{
	struct check *check = &topo->check;

	if (check->policy.expected.direct)
		argp_error(state, "--expect direct=N is for `peerlane routes`, which tests the routes");
	if (topo->nccl_file && check_is_judged(check))
		argp_error(state, "--nccl-topology cannot be used with a judgement: set NCCL_TOPO_FILE, or use "
				  "/etc/nccl.conf");
	check_settle_format(check, !topo->tree && !topo->svg && !topo->html, "--tree, --svg or --html", state);
	if (count_topo_outputs(topo) > 1)
		argp_error(state, "--svg -, --html - and other results would both be written to standard output");
}

static error_t parse_topo_option(int key, char *argument, struct argp_state *state)
{
	struct topo *topo = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &topo->check;
		return 0;
	case 'r':
		topo->check.sysroot = argument;
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
	case ARGP_KEY_END:
		settle_topo_options(topo, state);
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

static const struct argp_child topo_children[] = { { &check_judge_argp, 0, NULL, 0 }, { 0 } };

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
		 "PCI path.\n"
		 "\n"
		 "The judgement has the checks of `peerlane check` that are about paths, platform and expectations.  Exit "
		 "status: 0, or 3 if one of them fails.  With --fail-on: 0 or 1, and 2 if the command could not run.  With "
		 "--format nagios: that of a plugin.\n",
	.options = topo_options,
	.children = topo_children,
	.parse = parse_topo_option,
};

static int write_svg(FILE *file, const void *view)
{
	topo_write_svg(view, file);
	return 0;
}

static int write_html(FILE *file, const void *view)
{
	topo_write_html(view, file);
	return 0;
}

static int write_outputs(const struct topo *topo, const struct topo_view *view, struct pl_error *error)
{
	const struct check *check = &topo->check;
	int rc = 0;

	if (topo->svg)
		rc = cli_write_file(topo->svg, write_svg, view, error);
	if (rc == 0 && topo->html)
		rc = cli_write_file(topo->html, write_html, view, error);
	if (rc < 0)
		return rc;
	if (check->format == CHECK_JSON)
		return check_write_document(topo_document(view), check, error);
	if (check->format != CHECK_TEXT)
		return 0;
	if (topo->tree)
		topo_print_tree(view);
	else if (!topo->svg && !topo->html)
		topo_print_matrix(view);
	return 0;
}

static int open_topology(const struct topo *topo, struct pl_topology **topology, struct pl_error *error)
{
	struct pl_topology_options options = { .nccl_file = topo->nccl_file };
	struct pl_sysroot *root;
	int rc = pl_archive_open_root(&root, topo->check.sysroot, error);

	if (rc < 0)
		return rc;
	/* The variable describes this machine only. */
	if (pl_sysroot_is_live(root))
		options.nccl_variable = getenv("NCCL_TOPO_FILE");
	rc = pl_topology_read(topology, root, &options, error);
	if (rc == 0 && (pl_data_direct_read(*topology, root, QUERY_TIMEOUT) < 0 ||
			pl_gpu_links_read(*topology, root, QUERY_TIMEOUT) < 0)) {
		pl_topology_free(*topology);
		rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	pl_sysroot_close(root);
	return rc;
}

/* Writes the outputs, and the judgement if an option asks for one.  Returns the exit status. */
static int show_topo(struct topo *topo, struct topo_view *view)
{
	struct check *check = &topo->check;
	struct check_run run;
	struct pl_error error;
	int status;

	if (!check_is_judged(check))
		return write_outputs(topo, view, &error) < 0 ? check_report_failure(check, &error) : CLI_OK;
	if (topo_judge_begin(&run, check, view, &error) < 0)
		return check_report_failure(check, &error);
	if (check->format == CHECK_JSON)
		view->judgement = check_judgement_json(&run, check);
	status = write_outputs(topo, view, &error) < 0 ? check_report_failure(check, &error)
						       : check_show_judgement(&run, check, CLI_OK);
	check_judge_end(&run, check);
	return status;
}

int pl_cli_topo(int argc, char **argv)
{
	struct topo topo = { .check = { .command = CHECK_TOPO } };
	struct check *check = &topo.check;
	struct pl_topology *topology;
	struct topo_view view;
	struct pl_error error;
	int status;

	cli_parse(&topo_command, argc, argv, &check->common, &topo);
	if (open_topology(&topo, &topology, &error) < 0)
		return check_report_failure(check, &error);
	view = (struct topo_view){
		.topology = topology,
		.names = pci_names_open(topo.numeric),
		.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
		.quiet = check->common.quiet,
	};
	if (check->host)
		snprintf(view.host, sizeof(view.host), "%s", check->host);
	else if (!check->sysroot)
		cli_host_name(view.host, sizeof(view.host));
	status = show_topo(&topo, &view);
	pci_names_close(view.names);
	pl_topology_free(topology);
	return status;
}
