/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "cmd/check/routes.h"
#include "cmd/common/units.h"

#define OPTION_DEVICE 0x100
#define OPTION_SAVE 0x101
#define OPTION_REPLAY 0x102
#define SIZE ((uint64_t)4 << 20)
#define SIZE_MAX_HERE ((uint64_t)1 << 30)

struct routes {
	struct cli_options common;
	const char *device, *save, *replay;
	uint64_t size;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct routes *routes = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &routes->common;
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
		if (cli_parse_size(argument, &routes->size) < 0 || routes->size < 1 || routes->size > SIZE_MAX_HERE)
			argp_error(state, "--size is 1 to 1G, not '%s'", argument);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "there are no arguments");
		return 0;
	case ARGP_KEY_END:
		if (routes->replay && (routes->device || routes->save))
			argp_error(state, "--replay shows what was saved: it goes with neither --device nor --save");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "device", OPTION_DEVICE, "NAME", 0, "This RDMA device only, such as mlx5_0", 0 },
	{ "size", 's', "SIZE", 0, "Of each transfer (4M)", 0 },
	{ "save", OPTION_SAVE, "FILE", 0, "Keep the profile", 0 },
	{ "replay", OPTION_REPLAY, "FILE", 0, "Prove nothing: show a profile that was kept", 0 },
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
	"Prove the ways between each GPU and each RDMA card of this machine, and measure them."
	"\v"
	"For each GPU, card, way (dma-buf, peer-memory, staged) and direction, bytes are sent by the card to itself, "
	"compared, and timed. The way to take is marked with *: a direct one, unless staging is clearly faster. "
	"A machine whose registrations succeed and whose bytes do not arrive is found out here.\n"
	"\n"
	"The exit status is 0 if each GPU has a direct way to each card, 3 if something must be staged, 1 if no way "
	"works.\n"
	"\n"
	"Examples:\n"
	"  peerlane routes\n"
	"  peerlane routes --device mlx5_0 --save profile.json\n"
	"  peerlane routes --replay profile.json\n",
	children,
	cli_help_filter,
	NULL
};

enum { COLUMN_GPU, COLUMN_DEVICE, COLUMN_WAY, COLUMN_INTO, COLUMN_FROM, COLUMN_WHY };

static const struct cli_column columns[] = {
	[COLUMN_GPU] = { "GPU", 0 },
	[COLUMN_DEVICE] = { "DEVICE", 0 },
	[COLUMN_WAY] = { "WAY", 0 },
	[COLUMN_INTO] = { "INTO GPU", SCOLS_FL_RIGHT },
	[COLUMN_FROM] = { "FROM GPU", SCOLS_FL_RIGHT },
	[COLUMN_WHY] = { "NOTE", SCOLS_FL_WRAP },
};

static void print_leg(struct libscols_line *line, const struct pl_profile *profile, const struct pl_proof *proof,
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

static void print_table(const struct pl_profile *profile, bool quiet)
{
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));

	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *proof = &profile->proofs[i];
		const struct pl_proof_leg *into = &proof->legs[PL_INTO_GPU], *from = &proof->legs[PL_FROM_GPU];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, COLUMN_GPU, proof->gpu);
		cli_table_set(line, COLUMN_DEVICE, proof->device);
		cli_table_set(line, COLUMN_WAY, pl_way_name(proof->way));
		print_leg(line, profile, proof, PL_INTO_GPU);
		print_leg(line, profile, proof, PL_FROM_GPU);
		cli_table_set(line, COLUMN_WHY, into->proven ? from->reason : into->reason);
	}
	cli_table_print(table);
	if (!quiet)
		printf("\n* to be taken. Each was proven by bytes that came back and were compared.\n");
}

/* The worst of all pairs. */
static enum cli_exit judge(const struct pl_profile *profile)
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
			if (chosen->way == PL_WAY_STAGED)
				status = CLI_DEGRADED;
		}
	}
	return status;
}

int pl_cli_routes(int argc, char **argv)
{
	struct routes routes = { .size = SIZE };
	struct pl_profile profile;
	enum cli_exit status;
	struct pl_error error;
	int rc;

	cli_parse(&arguments, argc, argv, &routes);
	rc = routes.replay ? pl_profile_load(&profile, routes.replay, &error)
			   : pl_profile_prove(&profile, routes.device, (size_t)routes.size, &error);
	if (rc < 0)
		return cli_report_for(&routes.common, &error);
	if (routes.save)
		rc = routes_save(&profile, routes.save, &error);
	if (rc == 0 && routes.common.json)
		cli_json_print(routes_to_json(&profile), true);
	else if (rc == 0)
		print_table(&profile, routes.common.quiet);
	status = rc < 0 ? (enum cli_exit)cli_report_for(&routes.common, &error) : judge(&profile);
	pl_profile_free(&profile);
	return status;
}
