/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/routes.h"

#include <string.h>

#include "cmd/common/units.h"
#include "diag/routes/prove.h"

#define OPTION_DEVICE 0x100
#define OPTION_SAVE 0x101
#define OPTION_REPLAY 0x102
#define SIZE_DEFAULT ((uint64_t)4 << 20)
#define SIZE_LIMIT ((uint64_t)1 << 30)

struct routes {
	struct cli_options common;
	const char *device, *save, *replay;
	uint64_t size;
};

static error_t parse_routes_option(int key, char *argument, struct argp_state *state)
{
	struct routes *routes = state->input;

	switch (key) {
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
	case ARGP_KEY_END:
		if (routes->replay && (routes->device || routes->save))
			argp_error(state, "--replay shows a saved profile: it cannot be used with --device or --save");
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
	{ 0 },
};

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
		 "route.\n",
	.options = routes_options,
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

int pl_cli_routes(int argc, char **argv)
{
	struct routes routes = { .size = SIZE_DEFAULT };
	struct pl_profile profile;
	enum cli_exit status;
	struct pl_error error;
	int rc;

	cli_parse(&routes_command, argc, argv, &routes.common, &routes);
	rc = routes.replay ? pl_profile_load(&profile, routes.replay, &error)
			   : pl_profile_prove(&profile, routes.device, (size_t)routes.size, &error);
	if (rc < 0)
		return cli_report_for(&routes.common, &error);
	if (routes.save)
		rc = routes_save(&profile, routes.save, &error);
	if (rc == 0 && routes.common.json)
		cli_json_print(routes_to_json(&profile), true);
	else if (rc == 0)
		print_profile_table(&profile, routes.common.quiet);
	status = rc < 0 ? (enum cli_exit)cli_report_for(&routes.common, &error) : profile_status(&profile);
	pl_profile_free(&profile);
	return status;
}
