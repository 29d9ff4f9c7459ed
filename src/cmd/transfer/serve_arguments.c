/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane serve`. */
#include <stdlib.h>
#include <string.h>

#include "cmd/common/units.h"
#include "cmd/transfer/connection_log.h"
#include "cmd/transfer/serve.h"

enum {
	OPTION_CLIENTS = 0x200,
	OPTION_EVENTS,
	OPTION_FOR,
	OPTION_IDLE,
	OPTION_ONCE,
	OPTION_READ_ONLY,
	OPTION_AUDIT,
	OPTION_SANDBOX,
	OPTION_QUOTA,
	OPTION_KEEP_PARTS,
	OPTION_RATE,
	OPTION_ALLOW_DELETE,
	OPTION_AUDIT_STRICT,
	OPTION_PID_FILE,
	OPTION_RELOAD,
	OPTION_METRICS,
	OPTION_METRICS_OPEN,
};

#define NS_PER_DAY (86400 * CLI_NS_PER_S)
/* Least rate that the library accepts. */
#define RATE_MIN 65536

static void parse_memory_option(struct serve *serve, const char *text, struct argp_state *state)
{
	const char *equals = strrchr(text, '='), *kind = equals ? strchr(equals, '@') : NULL;
	struct memory_option *memory = &serve->memory[serve->memory_count];
	char size[32] = "";

	if (serve->memory_count == SERVE_MEMORY_MAX)
		argp_error(state, "--memory can be used at most %d times", SERVE_MEMORY_MAX);
	memory->kind = kind ? kind + 1 : "host";
	if (equals)
		snprintf(size, sizeof(size), "%.*s", kind ? (int)(kind - equals - 1) : -1, equals + 1);
	if (kind)
		cli_parse_memory_kind("memory NAME=SIZE@KIND", memory->kind, state);
	if (!equals || equals == text || cli_parse_size(size, &memory->size) || !memory->size)
		argp_error(state, "--memory takes NAME=SIZE or NAME=SIZE@cuda:0, such as frames=64M, not '%s'", text);
	memory->name = strndup(text, (size_t)(equals - text));
	if (!memory->name || !service_name_valid(memory->name))
		argp_error(state, "'%s' is not a valid name", memory->name);
	serve->memory_count++;
}

/* True for HOST:PORT.  A path that contains a colon must be written as ./PATH. */
static bool looks_like_address(const char *text)
{
	return strchr(text, ':') && !strchr(text, '/');
}

static void parse_serve_arguments(struct serve *serve, struct argp_state *state)
{
	char **arguments = state->argv + state->next;
	int count = state->argc - state->next;

	if (count && looks_like_address(arguments[0])) {
		serve->address = arguments[0];
		arguments++;
		count--;
	}
	serve->paths = arguments;
	serve->path_count = count;
	state->next = state->argc;
}

static void check_serve_arguments(const struct serve *serve, struct argp_state *state)
{
	if (serve->reload_target)
		return;
	if (serve->path_count == 0 && serve->memory_count == 0 && !serve->upload)
		argp_error(state, "nothing to publish: add a PATH, --memory or --upload");
	if (serve->audit_options.strict && !serve->audit_options.target)
		argp_error(state, "--audit-strict needs --audit");
	if (serve->server.quota && !serve->upload)
		argp_error(state, "--quota needs --upload");
	if (serve->metrics_open && !serve->metrics_address)
		argp_error(state, "--metrics-open needs --metrics");
	if (serve->server.allow_delete && !serve->upload)
		argp_error(state, "--allow-delete needs --upload");
	if (serve->read_only && (serve->writable || serve->upload))
		argp_error(state, "--read-only contradicts --writable and --upload");
	if (serve->writable && serve->memory_count == 0 && !serve->upload)
		argp_error(state, "--writable needs --memory; to accept files, use --upload DIRECTORY");
}

static void parse_sandbox(struct serve *serve, const char *text, struct argp_state *state)
{
	static const char *const words[] = { "auto", "off", "require" };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(words); i++) {
		if (!strcmp(text, words[i])) {
			serve->sandbox = (enum sandbox_choice)i;
			return;
		}
	}
	argp_error(state, "--sandbox takes auto, off or require, not '%s'", text);
}

static void parse_budget(struct serve *serve, int key, const char *text, struct argp_state *state)
{
	uint64_t *quota = &serve->server.quota, *rate = &serve->common.peers_rate;
	unsigned days;

	if (key == OPTION_QUOTA && (cli_parse_size(text, quota) || !*quota))
		argp_error(state, "--quota takes a size, such as 200G, not '%s'", text);
	if (key == OPTION_RATE && (cli_parse_size(text, rate) || *rate < RATE_MIN))
		argp_error(state, "--rate takes bytes a second, at least 64K, such as 200M, not '%s'", text);
	if (key != OPTION_KEEP_PARTS)
		return;
	if (cli_parse_number(text, 0, 36500, &days))
		argp_error(state, "--keep-parts takes days, not '%s'", text);
	serve->server.keep_parts = days * NS_PER_DAY;
}

static error_t parse_serve_option(int key, char *argument, struct argp_state *state)
{
	struct serve *serve = state->input;

	switch (key) {
	case 'm':
		parse_memory_option(serve, argument, state);
		return 0;
	case 'u':
		serve->upload = argument;
		return 0;
	case 'w':
		serve->writable = true;
		return 0;
	case 'L':
		serve->follow = true;
		return 0;
	case OPTION_AUDIT:
		serve->audit_options.target = argument;
		return 0;
	case OPTION_AUDIT_STRICT:
		serve->audit_options.strict = true;
		return 0;
	case OPTION_QUOTA:
	case OPTION_RATE:
	case OPTION_KEEP_PARTS:
		parse_budget(serve, key, argument, state);
		return 0;
	case OPTION_ALLOW_DELETE:
		serve->server.allow_delete = true;
		return 0;
	case OPTION_PID_FILE:
		serve->pid_file = argument;
		return 0;
	case OPTION_RELOAD:
		serve->reload_target = argument;
		return 0;
	case OPTION_METRICS:
		serve->metrics_address = argument;
		return 0;
	case OPTION_METRICS_OPEN:
		serve->metrics_open = true;
		return 0;
	case OPTION_READ_ONLY:
		serve->read_only = true;
		return 0;
	case OPTION_SANDBOX:
		parse_sandbox(serve, argument, state);
		return 0;
	case OPTION_ONCE:
		serve->once = true;
		return 0;
	case OPTION_EVENTS:
		serve->server.before_close = connection_log_print_client;
		return 0;
	case OPTION_FOR:
		if (cli_parse_seconds(argument, &serve->duration) || !serve->duration)
			argp_error(state, "--for takes seconds, not '%s'", argument);
		return 0;
	case OPTION_IDLE:
		if (cli_parse_seconds(argument, &serve->server.idle))
			argp_error(state, "--idle takes seconds, not '%s'", argument);
		return 0;
	case OPTION_CLIENTS:
		if (cli_parse_number(argument, 1, 1000000, &serve->clients))
			argp_error(state, "--clients takes a number, not '%s'", argument);
		return 0;
	case ARGP_KEY_ARGS:
		parse_serve_arguments(serve, state);
		return 0;
	case ARGP_KEY_END:
		check_serve_arguments(serve, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option serve_options[] = {
	{ "memory", 'm', "NAME=SIZE", 0,
	  "Publish a zeroed block of memory, for example frames=64M; frames=64M@cuda:1 is memory of a GPU", 1 },
	{ "upload", 'u', "DIRECTORY", 0, "Let clients put files into DIRECTORY, and replace files there", 1 },
	{ "allow-delete", OPTION_ALLOW_DELETE, NULL, 0,
	  "Let clients delete uploads that no identity owns; an identity may always delete its own", 1 },
	{ "quota", OPTION_QUOTA, "SIZE", 0, "Store at most SIZE bytes in the --upload folder", 1 },
	{ "keep-parts", OPTION_KEEP_PARTS, "DAYS", 0,
	  "Remove uploads that were not finished and did not change for DAYS (default: 7; 0: never)", 1 },
	{ "writable", 'w', NULL, 0, "Let clients write into the blocks of memory", 1 },
	{ "follow", 'L', NULL, 0, "Publish the targets of symbolic links, also outside the directory", 1 },
	{ "clients", OPTION_CLIENTS, "N", 0, "Serve up to N clients at a time (default: 1024)", 1 },
	{ "rate", OPTION_RATE, "SIZE", 0,
	  "Move at most SIZE bytes a second for each client without rate= in its line of --authorized (at least 64K)", 1 },
	{ "idle", OPTION_IDLE, "SECONDS", 0,
	  "Disconnect clients that send nothing for this time and read no file (default: 900; 0: never)", 1 },
	{ "read-only", OPTION_READ_ONLY, NULL, 0, "Let clients only read, whatever their rights are", 1 },
	{ "audit", OPTION_AUDIT, "FILE", 0,
	  "Append a line for each connection, refusal and access to FILE; journal: to systemd-journald", 1 },
	{ "audit-strict", OPTION_AUDIT_STRICT, NULL, 0,
	  "Refuse requests while the audit log cannot be written, and lose no line of an access", 1 },
	{ "sandbox", OPTION_SANDBOX, "auto|off|require", 0,
	  "Limit the process to the files that it serves, by Landlock, if the kernel can (auto, the default)", 1 },
	{ "events", OPTION_EVENTS, NULL, 0,
	  "Print the last events of each connection on standard error when it ends; SIGUSR1 prints them at any time", 1 },
	{ "metrics", OPTION_METRICS, "[HOST:]PORT", 0,
	  "Answer HTTP requests for /metrics, for Prometheus; without HOST at 127.0.0.1", 1 },
	{ "metrics-open", OPTION_METRICS_OPEN, NULL, 0,
	  "Let --metrics listen at an address other than loopback: whoever reaches it reads the metrics", 1 },
	{ "pid-file", OPTION_PID_FILE, "FILE", 0, "Write the process id to FILE once the server listens", 1 },
	{ "reload", OPTION_RELOAD, "PID|FILE", 0,
	  "Let a running server read keys and lists again, and exit with the result; FILE is that of --pid-file", 1 },
	{ "once", OPTION_ONCE, NULL, 0, "Exit when the first client has disconnected", 1 },
	{ "for", OPTION_FOR, "SECONDS", 0, "Exit after this time", 1 },
	{ 0 },
};

static const struct cli_command serve_command = {
	.arguments = "[ADDRESS] PATH...",
	.summary = "Publish files, directories and memory to `peerlane list`, `get` and `put`.",
	.examples = {
		"peerlane serve --key key :19875 /data/models",
		"peerlane serve --key key :19875 --upload inbox --memory frames=1G --writable",
	},
	.notes = "A file is published under its own name, the files of a directory under their names relative to it.  "
		 "Clients read and write the mapped files with one-sided operations.\n"
		 "\n"
		 "ADDRESS is HOST:PORT, :PORT for all addresses of this host, or [IPv6]:PORT (default: " SERVE_DEFAULT_ADDRESS
		 ").  An address other than loopback needs a key or --authorized.  To make a key:\n"
		 "  peerlane key group key\n",
	.options = serve_options,
	.parse = parse_serve_option,
	.connection = true,
};

void serve_parse_arguments(struct serve *serve, int argc, char **argv)
{
	cli_parse(&serve_command, argc, argv, &serve->common, serve);
}
