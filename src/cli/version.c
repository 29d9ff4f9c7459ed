/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/output.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)
#define COMMAND_VERSION STRINGIFY(PL_VERSION_MAJOR) "." STRINGIFY(PL_VERSION_MINOR) "." STRINGIFY(PL_VERSION_PATCH)

static error_t parse(int key, char *argument, struct argp_state *state)
{
	(void)argument;
	if (key == ARGP_KEY_INIT)
		state->child_inputs[0] = state->input;
	if (key == ARGP_KEY_ARG)
		argp_error(state, "there are no arguments");
	return key == ARGP_KEY_INIT ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp_child children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = { NULL,
				       parse,
				       "",
				       "Print the version of the command and of the library."
				       "\v"
				       "Example:\n"
				       "  peerlane version --json | jq -r .library\n",
				       children,
				       cli_help_filter,
				       NULL };

int pl_cli_version(int argc, char **argv)
{
	struct cli_options options = { 0 };
	struct json_object *object;

	cli_parse(&arguments, argc, argv, &options);
	if (!options.json) {
		printf("peerlane %s\n", COMMAND_VERSION);
		if (!options.quiet)
			printf("library  %s\n", pl_version());
		return CLI_OK;
	}
	object = json_object_new_object();
	cli_json_add(object, "command", cli_json_text(COMMAND_VERSION));
	cli_json_add(object, "library", cli_json_text(pl_version()));
	cli_json_print(object, true);
	return CLI_OK;
}
