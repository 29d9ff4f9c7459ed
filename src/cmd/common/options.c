/* SPDX-License-Identifier: BSD-2-Clause */
/* Command lines of subcommands: shared options, help, examples. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"
#include "cmd/common/units.h"

enum {
	OPTION_INSECURE = 0x1000,
	OPTION_RAILS,
	OPTION_DEVICE,
	OPTION_NARROW,
	OPTION_WIDE,
	OPTION_CLASS,
	OPTION_TOPOLOGY,
	OPTION_SERVICE_LEVEL,
	OPTION_GID_INDEX,
	OPTION_PKEY,
	OPTION_ACK_TIMEOUT,
	OPTION_RETRIES,
	OPTION_RNR_TIMER,
	OPTION_MULTIPROCESSORS,
	OPTION_CLEAR,
	OPTION_USAGE,
	OPTION_OLD_KEY,
	OPTION_IDENTITY,
	OPTION_PEER,
	OPTION_KNOWN_HOSTS,
	OPTION_TRUST_NEW,
	OPTION_AUTHORITY,
	OPTION_AUTHORIZED,
};
enum { GROUP_CONNECTION = 20, GROUP_IDENTITY = 25, GROUP_OUTPUT = 30, GROUP_HELP = -1 };

static const struct argp_option shared_options[] = {
	{ NULL, 0, NULL, 0, "Connection (commands that connect or serve):", GROUP_CONNECTION },
	{ "key", 'k', "FILE", 0,
	  "Authenticate with the key in FILE, the same key at both ends (default: the file named in PEERLANE_KEY_FILE)",
	  GROUP_CONNECTION },
	{ "encrypt", 'e', NULL, 0,
	  "Encrypt the data also within this host, and use no RDMA devices, which cannot encrypt; needs a key",
	  GROUP_CONNECTION },
	{ "no-encrypt", OPTION_CLEAR, NULL, 0, "Leave the data between hosts in the clear if the other end agrees",
	  GROUP_CONNECTION },
	{ "insecure", OPTION_INSECURE, NULL, 0, "Allow addresses other than loopback without a key", GROUP_CONNECTION },
	{ "fabric", 'F', "NAME", 0, "Move the data with this fabric: local, verbs, tcp or auto (default)",
	  GROUP_CONNECTION },
	{ "lanes", 'S', "N", 0, "Use up to N tcp sockets for data, 1 to 16 (default: depends on the cores)",
	  GROUP_CONNECTION },
	{ "rails", OPTION_RAILS, "N", 0,
	  "Use N RDMA queue pairs, 1 to 8, spread over all cards that reach the peer (default: one on each card near "
	  "the "
	  "memory, two above 200 Gb/s and on bonds)",
	  GROUP_CONNECTION },
	{ "device", OPTION_DEVICE, "NAME,...", 0, "Use only these RDMA devices, for example mlx5_0 or mlx5_1:1",
	  GROUP_CONNECTION },
	{ "topology", OPTION_TOPOLOGY, "FILE", 0,
	  "Take the RDMA devices near each memory from an NCCL topology file; \"\": all are alike (default: as the "
	  "kernel "
	  "has them)",
	  GROUP_CONNECTION },
	{ "traffic-class", OPTION_CLASS, "N", 0, "Set the traffic class of the packets, 1 to 255 (default: none)",
	  GROUP_CONNECTION },
	{ "service-level", OPTION_SERVICE_LEVEL, "N", 0, "Set the RDMA service level, 0 to 15 (default: 0)",
	  GROUP_CONNECTION },
	{ "gid-index", OPTION_GID_INDEX, "N", 0,
	  "Use entry N of the GID table of each RDMA port, 0 to 255 (default: the best entry)", GROUP_CONNECTION },
	{ "pkey", OPTION_PKEY, "KEY", 0,
	  "Use RDMA ports in the partition with this P_Key, for example 0x8001 (default: the first of each port)",
	  GROUP_CONNECTION },
	{ "ack-timeout", OPTION_ACK_TIMEOUT, "N", 0,
	  "Let RDMA cards wait 4.096 us times 2^N for an acknowledgement, 1 to 31 (default: 14, which is 67 ms)",
	  GROUP_CONNECTION },
	{ "retries", OPTION_RETRIES, "N", 0,
	  "Let RDMA cards repeat packets N times without an acknowledgement, 1 to 7 (default: 6)", GROUP_CONNECTION },
	{ "rnr-timer", OPTION_RNR_TIMER, "N", 0,
	  "Set the RNR timer for messages without a buffer, 1 to 31 (default: 12, which is 0.64 ms)",
	  GROUP_CONNECTION },
	{ "gpu-multiprocessors", OPTION_MULTIPROCESSORS, "N", 0,
	  "Copy vectors between GPUs of this host by a kernel on at most N multiprocessors, 0 to 1024; 0: by copies "
	  "(default: 96)",
	  GROUP_CONNECTION },
	{ "narrow-grants", OPTION_NARROW, NULL, 0,
	  "Let a peer use its grants only on its own RDMA queue pairs (memory windows; default)", GROUP_CONNECTION },
	{ "no-narrow-grants", OPTION_WIDE, NULL, 0, "Give each grant an RDMA registration, which all peers share",
	  GROUP_CONNECTION },
	{ "timeout", 't', "SECONDS", 0, "Time limit of an operation (default: 10 to connect, 30 for all others)",
	  GROUP_CONNECTION },
	{ NULL, 0, NULL, 0, "Identities of both ends (the same commands; see peerlane-identity(7)):", GROUP_IDENTITY },
	{ "identity", OPTION_IDENTITY, "FILE", 0, "Prove this end's identity with FILE of `peerlane key generate`",
	  GROUP_IDENTITY },
	{ "peer", OPTION_PEER, "FINGERPRINT,...", 0, "Connect only to an end with one of these identities",
	  GROUP_IDENTITY },
	{ "known-hosts", OPTION_KNOWN_HOSTS, "FILE", 0,
	  "Connect only to ends whose identity FILE has for their address (default with --identity: "
	  "~/.config/peerlane/known_hosts)",
	  GROUP_IDENTITY },
	{ "trust-new", OPTION_TRUST_NEW, NULL, 0, "Add the identities of new addresses to the known hosts",
	  GROUP_IDENTITY },
	{ "authorized", OPTION_AUTHORIZED, "FILE", 0, "Let only the identities in FILE connect, each with its rights",
	  GROUP_IDENTITY },
	{ "ca", OPTION_AUTHORITY, "FILE", 0, "Accept identities that an authority in FILE (PEM) certified",
	  GROUP_IDENTITY },
	{ "old-key", OPTION_OLD_KEY, "FILE", 0, "Let ends connect that still have this key instead of --key",
	  GROUP_IDENTITY },
	{ NULL, 0, NULL, 0, "Output (all commands):", GROUP_OUTPUT },
	{ "json", 'j', NULL, 0, "Print JSON for programs", GROUP_OUTPUT },
	{ "quiet", 'q', NULL, 0, "Print only results and errors", GROUP_OUTPUT },
	{ "help", '?', NULL, 0, "Explain the command, with examples", GROUP_HELP },
	{ "usage", OPTION_USAGE, NULL, 0, "Print a short usage message", GROUP_HELP },
	{ 0 },
};

/* A command line while argp parses it. */
struct command_line {
	const struct cli_command *command;
	struct cli_options *shared;
	void *input;
};

/* -- shared options: identities -------------------------------------------------------------------- */

static error_t parse_identity_option(struct cli_options *options, int key, const char *argument)
{
	switch (key) {
	case OPTION_OLD_KEY:
		options->old_key_file = argument;
		return 0;
	case OPTION_IDENTITY:
		options->identity = argument;
		return 0;
	case OPTION_PEER:
		options->peer = argument;
		return 0;
	case OPTION_KNOWN_HOSTS:
		options->known_hosts = argument;
		return 0;
	case OPTION_TRUST_NEW:
		options->trust_new = true;
		return 0;
	case OPTION_AUTHORITY:
		options->authority = argument;
		return 0;
	case OPTION_AUTHORIZED:
		options->authorized = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* -- shared options: RDMA -------------------------------------------------------------------------- */

/* Parses a P_Key, which people write with 0x. */
static int parse_pkey(const char *text, unsigned *value)
{
	unsigned long number;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	number = strtoul(text, &end, 0);
	if (errno || *end || number > UINT16_MAX || !(number & 0x7fff))
		return -EINVAL;
	*value = (unsigned)number;
	return 0;
}

static void parse_number_option(const char *name, const char *argument, unsigned least, unsigned most, unsigned *value,
				struct argp_state *state)
{
	if (cli_parse_number(argument, least, most, value))
		argp_error(state, "--%s takes a number from %u to %u, not '%s'", name, least, most, argument);
}

static error_t parse_rdma_option(struct cli_options *options, int key, char *argument, struct argp_state *state)
{
	switch (key) {
	case OPTION_RAILS:
		parse_number_option("rails", argument, 1, 8, &options->rails, state);
		return 0;
	case OPTION_DEVICE:
		options->devices = argument;
		return 0;
	case OPTION_TOPOLOGY:
		options->topology = argument;
		return 0;
	case OPTION_SERVICE_LEVEL:
		parse_number_option("service-level", argument, 0, 15, &options->service_level, state);
		return 0;
	case OPTION_GID_INDEX:
		parse_number_option("gid-index", argument, 0, 255, &options->gid_index, state);
		options->gid_index = PL_GID_INDEX(options->gid_index);
		return 0;
	case OPTION_PKEY:
		if (parse_pkey(argument, &options->pkey))
			argp_error(state, "--pkey takes a P_Key such as 0x8001, not '%s'", argument);
		return 0;
	case OPTION_ACK_TIMEOUT:
		parse_number_option("ack-timeout", argument, 1, 31, &options->ack_timeout, state);
		return 0;
	case OPTION_RETRIES:
		parse_number_option("retries", argument, 1, 7, &options->retries, state);
		return 0;
	case OPTION_RNR_TIMER:
		parse_number_option("rnr-timer", argument, 1, 31, &options->rnr_timer, state);
		return 0;
	case OPTION_MULTIPROCESSORS:
		parse_number_option("gpu-multiprocessors", argument, 0, 1024, &options->gpu_multiprocessors, state);
		if (options->gpu_multiprocessors == 0)
			options->gpu_multiprocessors = PL_NO_GPU_KERNEL;
		return 0;
	case OPTION_NARROW:
		options->narrow = PL_ON;
		return 0;
	case OPTION_WIDE:
		options->narrow = PL_OFF;
		return 0;
	default:
		return parse_identity_option(options, key, argument);
	}
}

/* -- shared options ------------------------------------------------------------------------------ */

static error_t parse_connection_option(struct cli_options *options, int key, char *argument, struct argp_state *state)
{
	switch (key) {
	case 'k':
		options->key_file = argument;
		return 0;
	case 'e':
		options->encrypt = PL_ON;
		return 0;
	case OPTION_CLEAR:
		options->encrypt = PL_OFF;
		return 0;
	case OPTION_INSECURE:
		options->insecure = true;
		return 0;
	case 'F':
		if (strcmp(argument, "auto") && strcmp(argument, "local") && strcmp(argument, "verbs") &&
		    strcmp(argument, "tcp"))
			argp_error(state, "--fabric takes auto, local, verbs or tcp, not '%s'", argument);
		options->fabric = argument;
		return 0;
	case 'S':
		parse_number_option("lanes", argument, 1, 16, &options->lanes, state);
		return 0;
	case OPTION_CLASS:
		parse_number_option("traffic-class", argument, 1, 255, &options->traffic_class, state);
		return 0;
	case 't':
		if (cli_parse_seconds(argument, &options->timeout) || !options->timeout)
			argp_error(state, "--timeout takes seconds, such as 30 or 0.5, not '%s'", argument);
		return 0;
	default:
		return parse_rdma_option(options, key, argument, state);
	}
}

static error_t parse_shared_option(const struct command_line *line, int key, char *argument, struct argp_state *state)
{
	switch (key) {
	case 'j':
		line->shared->json = true;
		return 0;
	case 'q':
		line->shared->quiet = true;
		return 0;
	default:
		if (!line->command->connection)
			return ARGP_ERR_UNKNOWN;
		return parse_connection_option(line->shared, key, argument, state);
	}
}

/* Copies the shared options that a command accepts; --help of the command does not list them. */
static void copy_hidden_options(const struct cli_command *command, struct argp_option *copy)
{
	for (const struct argp_option *option = shared_options; option->name || option->doc; option++) {
		if (!option->name || ((option->group == GROUP_CONNECTION || option->group == GROUP_IDENTITY) &&
				      !command->connection))
			continue;
		*copy = *option;
		copy->flags |= OPTION_HIDDEN;
		copy++;
	}
	*copy = (struct argp_option){ 0 };
}

/* -- help ------------------------------------------------------------------------------------------ */

/* Leaves out argp's note about arguments of short options. */
static char *filter_help_text(int key, const char *text, void *input)
{
	(void)input;
	return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)(uintptr_t)text;
}

static void print_command_help(const struct cli_command *command, struct argp_state *state)
{
	argp_state_help(state, stdout, ARGP_HELP_SHORT_USAGE);
	argp_state_help(state, stdout, ARGP_HELP_PRE_DOC);
	puts("\nExamples:");
	for (size_t i = 0; i < CLI_ARRAY_SIZE(command->examples); i++)
		printf("  %s\n", command->examples[i]);
	if (command->options || command->children)
		puts("\nOptions:");
	argp_state_help(state, stdout, ARGP_HELP_LONG);
	printf("\n%s options: see `peerlane help options`.\n",
	       command->connection ? "Connection and output" : "Output");
	if (command->notes)
		putchar('\n');
	argp_state_help(state, stdout, ARGP_HELP_POST_DOC);
}

static error_t print_options_at_init(int key, char *argument, struct argp_state *state)
{
	(void)argument;
	if (key == ARGP_KEY_INIT)
		argp_state_help(state, stdout, ARGP_HELP_LONG);
	return 0;
}

error_t cli_parse_address(const char **address, const char *whose, int key, char *argument, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_ARG:
		if (*address)
			argp_error(state, "only one ADDRESS is allowed, not '%s' too", argument);
		*address = argument;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "the ADDRESS of %s is missing", whose);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void cli_print_shared_options(void)
{
	const struct argp argp = { .options = shared_options,
				   .parser = print_options_at_init,
				   .help_filter = filter_help_text };
	char name[] = "peerlane", *arguments[] = { name, NULL };

	/* argp_help() would print the note that the filter leaves out. */
	argp_parse(&argp, 1, arguments, ARGP_NO_HELP, NULL, NULL);
}

/* -- parsing --------------------------------------------------------------------------------------- */

static error_t parse_command_line(int key, char *argument, struct argp_state *state)
{
	struct command_line *line = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = line->input;
		return 0;
	case '?':
		print_command_help(line->command, state);
		exit(cli_finish_output(CLI_OK));
	case OPTION_USAGE:
		argp_state_help(state, stdout, ARGP_HELP_USAGE);
		exit(cli_finish_output(CLI_OK));
	case ARGP_KEY_ARG:
		if (!line->command->arguments)
			argp_error(state, "unexpected argument '%s': this command takes no arguments", argument);
		return ARGP_ERR_UNKNOWN;
	default:
		return parse_shared_option(line, key, argument, state);
	}
}

/* Returns the key file named in the environment, or NULL. */
static const char *environment_key_file(void)
{
	const char *path = getenv("PEERLANE_KEY_FILE");

	return path && *path ? path : NULL;
}

void cli_parse(const struct cli_command *command, int argc, char **argv, struct cli_options *shared, void *input)
{
	const struct argp own = { command->options, command->parse, NULL, NULL, command->children, NULL, NULL };
	const struct argp_child children[] = { { &own, 0, NULL, 0 }, { 0 } };
	struct argp_option hidden[CLI_ARRAY_SIZE(shared_options)];
	struct command_line line = { command, shared, input };
	char doc[4096];
	const struct argp argp = {
		hidden, parse_command_line, command->arguments, doc, children, filter_help_text, NULL
	};

	copy_hidden_options(command, hidden);
	/* argp prints the text behind the \v below the options. */
	snprintf(doc, sizeof(doc), "%s%s%s", command->summary, command->notes ? "\v" : "",
		 command->notes ? command->notes : "");
	if (command->connection)
		shared->key_file = environment_key_file();
	argp_err_exit_status = CLI_USAGE;
	if (argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &line))
		exit(CLI_USAGE);
}

/* -- options of another process ------------------------------------------------------------------ */

static void add_connection_argument(struct cli_connection_arguments *arguments, const char *option, const char *value)
{
	if (!value)
		return;
	arguments->list[arguments->count++] = option;
	arguments->list[arguments->count++] = value;
}

/* Formats the number.  Returns NULL for 0, the default. */
static const char *format_number_option(unsigned number, char text[12])
{
	snprintf(text, 12, "%u", number);
	return number ? text : NULL;
}

static void add_rdma_arguments(const struct cli_options *options, struct cli_connection_arguments *arguments)
{
	add_connection_argument(arguments, "--service-level",
				format_number_option(options->service_level, arguments->service_level));
	if (options->gid_index) {
		snprintf(arguments->gid_index, sizeof(arguments->gid_index), "%u",
			 options->gid_index - PL_GID_INDEX(0));
		add_connection_argument(arguments, "--gid-index", arguments->gid_index);
	}
	add_connection_argument(arguments, "--pkey", format_number_option(options->pkey, arguments->pkey));
	add_connection_argument(arguments, "--ack-timeout",
				format_number_option(options->ack_timeout, arguments->ack_timeout));
	add_connection_argument(arguments, "--retries", format_number_option(options->retries, arguments->retries));
	add_connection_argument(arguments, "--rnr-timer",
				format_number_option(options->rnr_timer, arguments->rnr_timer));
}

static void add_gpu_arguments(const struct cli_options *options, struct cli_connection_arguments *arguments)
{
	if (options->gpu_multiprocessors == PL_NO_GPU_KERNEL)
		add_connection_argument(arguments, "--gpu-multiprocessors", "0");
	else
		add_connection_argument(
			arguments, "--gpu-multiprocessors",
			format_number_option(options->gpu_multiprocessors, arguments->gpu_multiprocessors));
}

void cli_connection_arguments(const struct cli_options *options, struct cli_connection_arguments *arguments)
{
	arguments->count = 0;
	add_connection_argument(arguments, "--key", options->key_file);
	if (options->encrypt != PL_DEFAULT)
		arguments->list[arguments->count++] = options->encrypt == PL_ON ? "--encrypt" : "--no-encrypt";
	add_connection_argument(arguments, "--fabric", options->fabric);
	add_connection_argument(arguments, "--lanes", format_number_option(options->lanes, arguments->lanes));
	add_connection_argument(arguments, "--rails", format_number_option(options->rails, arguments->rails));
	add_connection_argument(arguments, "--device", options->devices);
	add_connection_argument(arguments, "--topology", options->topology);
	add_connection_argument(arguments, "--traffic-class",
				format_number_option(options->traffic_class, arguments->traffic_class));
	add_rdma_arguments(options, arguments);
	add_gpu_arguments(options, arguments);
	add_connection_argument(arguments, "--old-key", options->old_key_file);
	add_connection_argument(arguments, "--identity", options->identity);
	add_connection_argument(arguments, "--peer", options->peer);
	add_connection_argument(arguments, "--known-hosts", options->known_hosts);
	add_connection_argument(arguments, "--ca", options->authority);
	add_connection_argument(arguments, "--authorized", options->authorized);
	if (options->narrow != PL_DEFAULT)
		arguments->list[arguments->count++] = options->narrow == PL_ON ? "--narrow-grants" : "--no-narrow-grants";
}
