/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/routes.h"

#include <string.h>

#include "cmd/common/units.h"
#include "diag/check/snapshot.h"
#include "diag/routes/prove.h"

#define OPTION_DEVICE 0x100
#define OPTION_SAVE 0x101
#define OPTION_REPLAY 0x102
#define SIZE_DEFAULT ((uint64_t)4 << 20)
#define SIZE_LIMIT ((uint64_t)1 << 30)

struct routes {
	struct check check; /* its options about the judgement, and the shared ones */
	const char *device, *save, *replay;
	uint64_t size;
};

/* Refuses options that do not fit each other. */
static void settle_routes_options(struct routes *routes, struct argp_state *state)
{
	const struct pl_check_expected *expected = &routes->check.policy.expected;

	if (routes->replay && (routes->device || routes->save))
		argp_error(state, "--replay shows a saved profile: it cannot be used with --device or --save");
	if (routes->check.sysroot && (routes->device || routes->save || routes->replay))
		argp_error(state,
			   "--sysroot shows a saved profile: it cannot be used with --device, --save or --replay");
	if (expected->lanes || *expected->driver)
		argp_error(state, "--expect links and driver are for `peerlane check` and `peerlane topo`");
	check_settle_format(&routes->check, true, NULL, state);
}

static error_t parse_routes_option(int key, char *argument, struct argp_state *state)
{
	struct routes *routes = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &routes->check;
		return 0;
	case OPTION_DEVICE:
		routes->device = argument;
		return 0;
	case OPTION_SAVE:
		routes->save = argument;
		return 0;
	case OPTION_REPLAY:
		routes->replay = argument;
		return 0;
	case 's':
		if (cli_parse_size(argument, &routes->size) < 0 || routes->size < 1 || routes->size > SIZE_LIMIT)
			argp_error(state, "--size takes a size from 1 to 1G, not '%s'", argument);
		return 0;
	case 'r':
		routes->check.sysroot = argument;
		return 0;
	case ARGP_KEY_END:
		settle_routes_options(routes, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option routes_options[] = {
	{ "device", OPTION_DEVICE, "NAME", 0, "Test only this RDMA device, for example mlx5_0", 0 },
	{ "size", 's', "SIZE", 0, "Bytes of each transfer, 1 to 1G (default: 4M)", 0 },
	{ "save", OPTION_SAVE, "FILE", 0, "Save the results as a profile, which transfers then follow", 0 },
	{ "replay", OPTION_REPLAY, "FILE", 0, "Show a saved profile; test nothing", 0 },
	{ "sysroot", 'r', "PATH", 0,
	  "Show the profile of the machine in this folder, or in this file of `peerlane dump`", 0 },
	{ 0 },
};

static const struct argp_child routes_children[] = { { &check_judge_argp, 0, NULL, 0 }, { 0 } };

static const struct cli_command routes_command = {
	.summary = "Test and measure the routes between GPUs and RDMA cards of this machine.",
	.examples = {
		"peerlane routes",
		"peerlane routes --device mlx5_0 --save profile.json",
	},
	.notes = "For each GPU, card, path (dma-buf, peer-memory, staged) and direction, the card sends bytes to itself; "
		 "the received bytes are compared, and the transfer is timed.  An asterisk (*) marks the route to use: "
		 "a direct one, unless staging is clearly faster.  The test finds machines on which registration "
		 "succeeds but the data does not arrive.\n"
		 "\n"
		 "Exit status: 0 each GPU has a direct route to each card, 3 some pair needs staging, 1 some pair has no "
		 "route.  With --fail-on: 0 or 1, and 2 if the command could not run.  With --format nagios: that of a "
		 "plugin.\n",
	.options = routes_options,
	.children = routes_children,
	.parse = parse_routes_option,
};

enum { COLUMN_GPU, COLUMN_DEVICE, COLUMN_PATH, COLUMN_INTO, COLUMN_FROM, COLUMN_NOTE };

static const struct cli_column columns[] = {
	[COLUMN_GPU] = { "GPU", 0 },
	[COLUMN_DEVICE] = { "DEVICE", 0 },
	[COLUMN_PATH] = { "PATH", 0 },
	[COLUMN_INTO] = { "INTO GPU", SCOLS_FL_RIGHT },
	[COLUMN_FROM] = { "FROM GPU", SCOLS_FL_RIGHT },
	[COLUMN_NOTE] = { "NOTE", SCOLS_FL_WRAP },
};

static void set_leg_cell(struct libscols_line *line, const struct pl_profile *profile, const struct pl_proof *proof,
			 enum pl_direction direction)
{
	const struct pl_proof_leg *leg = &proof->legs[direction];
	char rate[CLI_UNIT_MAX], text[CLI_UNIT_MAX + 1];
	const char *reason;
	bool chosen = pl_profile_choose(profile, proof->gpu, proof->device, direction, &reason) == proof;

	snprintf(text, sizeof(text), "%s%s", leg->proven ? cli_format_rate(rate, leg->rate, CLI_NS_PER_S) : "no",
		 chosen ? "*" : " ");
	cli_table_set(line, direction == PL_INTO_GPU ? COLUMN_INTO : COLUMN_FROM, text);
}

static void print_profile_table(const struct pl_profile *profile, bool quiet)
{
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));

	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *proof = &profile->proofs[i];
		const struct pl_proof_leg *into = &proof->legs[PL_INTO_GPU], *from = &proof->legs[PL_FROM_GPU];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, COLUMN_GPU, proof->gpu);
		cli_table_set(line, COLUMN_DEVICE, proof->device);
		cli_table_set(line, COLUMN_PATH, pl_gpu_path_name(proof->way));
		set_leg_cell(line, profile, proof, PL_INTO_GPU);
		set_leg_cell(line, profile, proof, PL_FROM_GPU);
		cli_table_set(line, COLUMN_NOTE, into->proven ? from->reason : into->reason);
	}
	cli_table_print(table);
	if (!quiet)
		printf("\n* the route to use.  Each rate was measured with bytes that were received and compared.\n");
}

/* Returns the status of the worst pair of a GPU and a card. */
static enum cli_exit profile_status(const struct pl_profile *profile)
{
	enum cli_exit status = CLI_OK;
	const char *reason;

	for (size_t i = 0; i < profile->count; i++) {
		for (int direction = 0; direction < PL_DIRECTION_COUNT; direction++) {
			const struct pl_proof *proof = &profile->proofs[i];
			const struct pl_proof *chosen =
				pl_profile_choose(profile, proof->gpu, proof->device, direction, &reason);

			if (!chosen)
				return CLI_FAILED;
			if (chosen->way == PL_GPU_PATH_STAGED)
				status = CLI_DEGRADED;
		}
	}
	return status;
}

/* Loads the profile of the system in a folder or dump. */
static int load_root_profile(struct pl_profile *profile, const char *path, struct pl_error *error)
{
	struct pl_sysroot *root;
	int rc = pl_archive_open_root(&root, path, error);

	*profile = (struct pl_profile){ 0 };
	if (rc < 0)
		return rc;
	rc = routes_load_root(profile, root, error);
	pl_sysroot_close(root);
	return rc;
}

static int load_routes(const struct routes *routes, struct pl_profile *profile, struct pl_error *error)
{
	if (routes->check.sysroot)
		return load_root_profile(profile, routes->check.sysroot, error);
	return routes->replay ? pl_profile_load(profile, routes->replay, error)
			      : pl_profile_prove(profile, routes->device, (size_t)routes->size, error);
}

/* Prints the profile as text or JSON, unless it goes to a file or another format is asked for. */
static int show_profile(const struct routes *routes, const struct pl_profile *profile, struct json_object *judgement,
			struct pl_error *error)
{
	const struct check *check = &routes->check;
	struct json_object *object;
	int rc = 0;

	if (check->format == CHECK_TEXT) {
		print_profile_table(profile, check->common.quiet);
	} else if (check->format == CHECK_JSON) {
		object = routes_to_json(profile);
		if (judgement)
			cli_json_add(object, "judgement", judgement);
		rc = check_write_document(object, check, error);
	}
	return rc;
}

static int judge_routes(struct routes *routes, const struct pl_profile *profile, struct check_run *begun)
{
	struct check *check = &routes->check;
	struct routes_judgement judgement = { .run = *begun };
	struct pl_error error;
	int status;

	check->write_metrics = routes_write_metrics;
	check->user = profile;
	judgement.run.duration = pl_wall_clock() - judgement.run.wall;
	if (routes_judge(&judgement, check, profile, &error) < 0)
		return check_report_failure(check, &error);
	status = show_profile(routes, profile,
			      check->format == CHECK_JSON ? check_judgement_json(&judgement.run, check) : NULL, &error);
	status = status < 0 ? check_report_failure(check, &error)
			    : check_show_judgement(&judgement.run, check, profile_status(profile));
	routes_judgement_end(&judgement, check);
	return status;
}

int pl_cli_routes(int argc, char **argv)
{
	struct routes routes = { .size = SIZE_DEFAULT, .check = { .command = CHECK_ROUTES } };
	struct check *check = &routes.check;
	struct pl_profile profile;
	struct check_run run;
	struct pl_error error;
	int status;

	cli_parse(&routes_command, argc, argv, &check->common, &routes);
	check_run_identify(&run, check->host, routes.replay || check->sysroot);
	if (load_routes(&routes, &profile, &error) < 0)
		return check_report_failure(check, &error);
	if (routes.save && routes_save(&profile, routes.save, &error) < 0)
		status = check_report_failure(check, &error);
	else if (check_is_judged(check))
		status = judge_routes(&routes, &profile, &run);
	else
		status = show_profile(&routes, &profile, NULL, &error) < 0 ? check_report_failure(check, &error)
									   : (int)profile_status(&profile);
	pl_profile_free(&profile);
	return status;
}
