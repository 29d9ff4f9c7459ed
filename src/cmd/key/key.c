/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane key`: makes and shows identities and group keys. */
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/key/generate.h"

#define NAME_MAX_LENGTH 64

enum { OPTION_NAME = 0x200, OPTION_TYPE };

struct key_command {
	struct cli_options common;
	const char *action, *path, *name;
	enum key_type type;
	bool typed; /* --type was given */
};

static void parse_type(struct key_command *command, const char *text, struct argp_state *state)
{
	command->typed = true;
	if (!strcmp(text, "ed25519"))
		command->type = KEY_ED25519;
	else if (!strcmp(text, "p256"))
		command->type = KEY_P256;
	else
		argp_error(state, "--type takes ed25519 or p256, not '%s'", text);
}

static bool is_key_action(const char *text)
{
	return !strcmp(text, "generate") || !strcmp(text, "show") || !strcmp(text, "group");
}

static error_t parse_key_option(int key, char *argument, struct argp_state *state)
{
	struct key_command *command = state->input;

	switch (key) {
	case OPTION_NAME:
		if (!*argument || strlen(argument) > NAME_MAX_LENGTH)
			argp_error(state, "--name takes 1 to %d characters", NAME_MAX_LENGTH);
		command->name = argument;
		return 0;
	case OPTION_TYPE:
		parse_type(command, argument, state);
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0)
			command->action = argument;
		else if (state->arg_num == 1)
			command->path = argument;
		else
			argp_error(state, "unexpected argument '%s'", argument);
		return 0;
	case ARGP_KEY_END:
		if (!command->path || !is_key_action(command->action))
			argp_error(state, "expected generate, show or group, and a file");
		if ((command->name || command->typed) && strcmp(command->action, "generate"))
			argp_error(state, "--name and --type are options of generate");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option key_options[] = {
	{ "name", OPTION_NAME, "NAME", 0, "generate: name in the certificate, for people (default: the host name)", 0 },
	{ "type", OPTION_TYPE, "TYPE", 0, "generate: type of the key: ed25519 (default) or p256, for FIPS", 0 },
	{ 0 },
};

static const struct cli_command key_command = {
	.arguments = "generate FILE\nshow FILE\ngroup FILE",
	.summary = "Make and show identities, which prove who is at the other end of a connection.",
	.examples = {
		"peerlane key generate ~/.config/peerlane/identity.pem",
		"peerlane key show ~/.config/peerlane/identity.pem",
	},
	.notes = "generate makes a private key and a certificate: the identity of a host or of a user.  It prints the "
		 "fingerprint of its public key, which others write into their --authorized files or give as --peer.\n"
		 "\n"
		 "show prints the fingerprint of an identity or of a certificate.\n"
		 "\n"
		 "group makes a group key for --key: everybody who has it belongs to the group.\n",
	.options = key_options,
	.parse = parse_key_option,
};

static void print_key(const struct key_command *command, const char *fingerprint)
{
	struct json_object *object;

	if (command->common.json) {
		object = json_object_new_object();
		cli_json_add(object, "file", cli_json_text(command->path));
		if (fingerprint)
			cli_json_add(object, "fingerprint", cli_json_text(fingerprint));
		cli_json_print(object, true);
	} else if (fingerprint) {
		printf("%s\n", fingerprint);
	} else if (!command->common.quiet) {
		printf("%s: a new group key; copy it to all members over a safe channel\n", command->path);
	}
}

static int run_key_action(const struct key_command *command, struct pl_error *error)
{
	char fingerprint[PL_FINGERPRINT_MAX], host[NAME_MAX_LENGTH + 1] = "";
	const char *name = command->name ? command->name : host;
	int rc;

	gethostname(host, sizeof(host) - 1);
	if (!host[0])
		strcpy(host, "peerlane");
	if (!strcmp(command->action, "group")) {
		rc = key_generate_group(command->path, error);
		if (rc == 0)
			print_key(command, NULL);
		return rc;
	}
	rc = strcmp(command->action, "generate") ? 0
						  : key_generate_identity(command->path, name, command->type, error);
	if (rc == 0)
		rc = pl_identity_fingerprint(command->path, fingerprint, error);
	if (rc == 0)
		print_key(command, fingerprint);
	return rc;
}

int pl_cli_key(int argc, char **argv)
{
	struct key_command command = { .type = KEY_ED25519 };
	struct pl_error error;

	cli_parse(&key_command, argc, argv, &command.common, &command);
	return run_key_action(&command, &error) < 0 ? cli_report_for(&command.common, &error) : CLI_OK;
}
