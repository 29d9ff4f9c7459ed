/* SPDX-License-Identifier: BSD-2-Clause */
/* The options that subcommands have in common, and the context that they ask for. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/common/units.h"

#define KEY_MIN 16
#define KEY_MAX 1024

enum { OPTION_INSECURE = 0x100, OPTION_RAILS, OPTION_DEVICE, OPTION_NARROW, OPTION_CLASS };

static error_t parse_output(int key, char *argument, struct argp_state *state)
{
	struct cli_options *options = state->input;

	(void)argument;
	switch (key) {
	case 'j':
		options->json = true;
		return 0;
	case 'q':
		options->quiet = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option output_options[] = {
	{ NULL, 0, NULL, 0, "Output:", 30 },
	{ "json", 'j', NULL, 0, "Print JSON, for programs", 30 },
	{ "quiet", 'q', NULL, 0, "Print nothing but results and errors", 30 },
	{ 0 },
};

const struct argp cli_output_argp = { output_options, parse_output, NULL, NULL, NULL, NULL, NULL };

static error_t parse_connection(int key, char *argument, struct argp_state *state)
{
	struct cli_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		options->key_file = getenv("PEERLANE_KEY_FILE");
		if (options->key_file && !*options->key_file)
			options->key_file = NULL;
		state->child_inputs[0] = options;
		return 0;
	case 'k':
		options->key_file = argument;
		return 0;
	case 'e':
		options->encrypt = true;
		return 0;
	case OPTION_INSECURE:
		options->insecure = true;
		return 0;
	case 'F':
		options->fabric = argument;
		return 0;
	case 'S':
		if (cli_parse_number(argument, 1, 16, &options->streams))
			argp_error(state, "--streams takes a number from 1 to 16, not '%s'", argument);
		return 0;
	case OPTION_RAILS:
		if (cli_parse_number(argument, 1, 8, &options->rails))
			argp_error(state, "--rails takes a number from 1 to 8, not '%s'", argument);
		return 0;
	case OPTION_DEVICE:
		options->devices = argument;
		return 0;
	case OPTION_CLASS:
		if (cli_parse_number(argument, 1, 255, &options->traffic_class))
			argp_error(state, "--traffic-class takes a number from 1 to 255, not '%s'", argument);
		return 0;
	case OPTION_NARROW:
		options->narrow = true;
		return 0;
	case 't':
		if (cli_parse_seconds(argument, &options->timeout) || !options->timeout)
			argp_error(state, "--timeout takes seconds, such as 30 or 0.5, not '%s'", argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option connection_options[] = {
	{ NULL, 0, NULL, 0, "Connection:", 20 },
	{ "key", 'k', "FILE", 0,
	  "Authenticate with the key in FILE, the same at both ends (or name it in PEERLANE_KEY_FILE)", 20 },
	{ "encrypt", 'e', NULL, 0, "Encrypt the data as well, not only what controls it; needs a key", 20 },
	{ "insecure", OPTION_INSECURE, NULL, 0, "Allow addresses other than loopback without a key", 20 },
	{ "fabric", 'F', "NAME", 0, "Move data with this fabric (default: auto)", 20 },
	{ "streams", 'S', "N", 0, "Use up to N sockets for data, 1 to 16 (default: by cores)", 20 },
	{ "rails", OPTION_RAILS, "N", 0,
	  "Use N RDMA queue pairs, 1 to 8, over all cards that reach the peer (default: one for each of two cards)",
	  20 },
	{ "device", OPTION_DEVICE, "NAME,...", 0, "Use these RDMA devices only, such as mlx5_0 or mlx5_1:1", 20 },
	{ "traffic-class", OPTION_CLASS, "N", 0,
	  "Mark packets with this traffic class, 1 to 255, as switches are set up for (default: the system's)", 20 },
	{ "narrow-grants", OPTION_NARROW, NULL, 0,
	  "Have RDMA devices let each peer's own connections alone to what it is granted (memory windows)", 20 },
	{ "timeout", 't', "SECONDS", 0, "Give up on whatever takes longer than this (default: 30, to connect: 10)",
	  20 },
	{ 0 },
};

static const struct argp_child connection_children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

const struct argp cli_connection_argp = {
	connection_options, parse_connection, NULL, NULL, connection_children, NULL, NULL
};

char *cli_help_filter(int key, const char *text, void *input)
{
	(void)input;
	return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)(uintptr_t)text;
}

void cli_parse(const struct argp *argp, int argc, char **argv, void *input)
{
	argp_err_exit_status = CLI_USAGE;
	if (argp_parse(argp, argc, argv, 0, NULL, input))
		exit(CLI_USAGE);
}

static int check_key_file(int fd, const char *path, struct pl_error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", path);
	if (status.st_mode & (S_IROTH | S_IWOTH))
		return cli_fail(error, -EACCES, "KEY-FILE-OPEN", path,
				"chmod o= the file, and make a new key if others may have seen it",
				"every user of this host can %s the key",
				status.st_mode & S_IROTH ? "read" : "replace");
	return 0;
}

/* Bytes read, or a negative errno.  A newline at the end, as editors leave it, is not part of the key. */
static int read_key(const char *path, uint8_t *key, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int length = 0, rc;
	ssize_t got;

	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = check_key_file(fd, path, error);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	while ((got = read(fd, key + length, (size_t)(KEY_MAX + 1 - length))) > 0)
		length += (int)got;
	rc = errno;
	close(fd);
	if (got < 0)
		return cli_fail_errno(error, -rc, "read", path);
	if (length > 0 && key[length - 1] == '\n')
		length--;
	if (length < KEY_MIN || length > KEY_MAX)
		return cli_fail(error, -EINVAL, "KEY-FILE-LENGTH", path,
				"make one with: (umask 077; openssl rand -hex 32 > FILE)",
				"a key has %d to %d bytes, this file has %s%d", KEY_MIN, KEY_MAX,
				length > KEY_MAX ? "over " : "", CLI_MIN(length, KEY_MAX));
	return length;
}

int cli_open(struct pl_context **context, const struct cli_options *options, enum pl_progress progress,
	     struct pl_error *error)
{
	struct pl_options library = PL_OPTIONS_INIT;
	uint8_t key[KEY_MAX + 1];
	int rc = 0;

	if (options->key_file) {
		rc = read_key(options->key_file, key, error);
		if (rc < 0)
			goto out;
		library.key = key;
		library.key_length = (size_t)rc;
	} else if (options->encrypt) {
		rc = cli_fail(error, -EINVAL, "ENCRYPT-NO-KEY", "--encrypt",
			      "add --key FILE, with the same file at both ends", "encryption needs a key");
		goto out;
	}
	library.progress = progress;
	library.streams = options->streams;
	library.fabric = options->fabric;
	library.rails = options->rails;
	library.narrow_grants = options->narrow;
	library.traffic_class = options->traffic_class;
	library.devices = options->devices;
	library.encrypt_data = options->encrypt;
	library.insecure = options->insecure;
	library.keep_bytes = options->keep;
	library.keep_host = options->keep > 0;
	library.operation_timeout = library.connect_timeout = options->timeout;
	rc = pl_open(context, &library, error);
out:
	explicit_bzero(key, sizeof(key));
	return rc;
}

static void pass(struct cli_connection_arguments *arguments, const char *option, const char *value)
{
	if (!value)
		return;
	arguments->list[arguments->count++] = option;
	arguments->list[arguments->count++] = value;
}

/* The number as text; NULL for 0, which asks for the default. */
static const char *number_or_none(unsigned number, char text[12])
{
	snprintf(text, 12, "%u", number);
	return number ? text : NULL;
}

void cli_connection_arguments(const struct cli_options *options, struct cli_connection_arguments *arguments)
{
	arguments->count = 0;
	pass(arguments, "--key", options->key_file);
	if (options->encrypt)
		arguments->list[arguments->count++] = "--encrypt";
	pass(arguments, "--fabric", options->fabric);
	pass(arguments, "--streams", number_or_none(options->streams, arguments->streams));
	pass(arguments, "--rails", number_or_none(options->rails, arguments->rails));
	pass(arguments, "--device", options->devices);
	pass(arguments, "--traffic-class", number_or_none(options->traffic_class, arguments->traffic_class));
	if (options->narrow)
		arguments->list[arguments->count++] = "--narrow-grants";
}

/* Whether the text ends in a port.  A colon inside brackets, or one of several, belongs to an IPv6 address. */
static bool has_port(const char *text)
{
	const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');

	if (bracket)
		return colon && colon > bracket;
	return colon && colon == strchr(text, ':');
}

int cli_address(const char *text, char *buffer, size_t size, struct pl_error *error)
{
	bool bare_v6 = text[0] != '[' && strchr(text, ':') != strrchr(text, ':');
	int length;

	if (bare_v6)
		length = snprintf(buffer, size, "[%s]:" CLI_DEFAULT_PORT, text);
	else
		length = snprintf(buffer, size, has_port(text) ? "%s" : "%s:" CLI_DEFAULT_PORT, text);
	if ((size_t)length >= size)
		return cli_fail(error, -EINVAL, "ADDRESS-SYNTAX", text, "write HOST:PORT", "the address is too long");
	return 0;
}
