/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/transfer/server.h"
#include "cmd/transfer/sigbus_guard.h"

#define DEFAULT_ADDRESS "127.0.0.1:" CLI_DEFAULT_PORT
#define CLIENTS_DEFAULT 1024
#define IDLE_DEFAULT (900 * CLI_NS_PER_S)
/* Clients beyond --clients that may wait for a place. */
#define CLIENTS_WAITING 64
/* Descriptors that the process asks for. */
#define DESCRIPTORS_MAX 65536
#define MEMORY_MAX 64

enum { OPTION_CLIENTS = 0x200, OPTION_FOR, OPTION_IDLE, OPTION_ONCE };

/* Block of memory of one --memory option. */
struct memory_option {
	char *name;
	const char *kind;
	uint64_t size;
};

struct serve {
	struct cli_options common;
	const char *address;
	char **paths;
	int path_count;
	struct memory_option memory[MEMORY_MAX];
	size_t memory_count;
	const char *upload;
	bool writable, follow, once;
	uint64_t duration; /* 0: no limit */
	unsigned clients;

	struct server server;
	int signals;
	uint64_t end; /* time at which to exit; UINT64_MAX: never */
};

/* -- arguments ---------------------------------------------------------------------------------- */

static void parse_memory_option(struct serve *serve, const char *text, struct argp_state *state)
{
	const char *equals = strrchr(text, '='), *kind = equals ? strchr(equals, '@') : NULL;
	struct memory_option *memory = &serve->memory[serve->memory_count];
	char size[32] = "";

	if (serve->memory_count == MEMORY_MAX)
		argp_error(state, "--memory can be used at most %d times", MEMORY_MAX);
	memory->kind = kind ? kind + 1 : "host";
	if (equals)
		snprintf(size, sizeof(size), "%.*s", kind ? (int)(kind - equals - 1) : -1, equals + 1);
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
	if (serve->path_count == 0 && serve->memory_count == 0 && !serve->upload)
		argp_error(state, "nothing to publish: add a PATH, --memory or --upload");
	if (serve->writable && serve->memory_count == 0 && !serve->upload)
		argp_error(state, "--writable needs --memory; to accept files, use --upload DIRECTORY");
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
	case OPTION_ONCE:
		serve->once = true;
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
	{ "writable", 'w', NULL, 0, "Let clients write into the blocks of memory", 1 },
	{ "follow", 'L', NULL, 0, "Publish the targets of symbolic links, also outside the directory", 1 },
	{ "clients", OPTION_CLIENTS, "N", 0, "Serve up to N clients at a time (default: 1024)", 1 },
	{ "idle", OPTION_IDLE, "SECONDS", 0,
	  "Disconnect clients without open files after this time without a request (default: 900; 0: never)", 1 },
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
		 "ADDRESS is HOST:PORT, :PORT for all addresses of this host, or [IPv6]:PORT (default: " DEFAULT_ADDRESS
		 ").  An address other than loopback needs a key.  To make one:\n"
		 "  peerlane key group key\n",
	.options = serve_options,
	.parse = parse_serve_option,
	.connection = true,
};

/* -- output ------------------------------------------------------------------------------------- */

static void print_event_json(enum server_event event, const struct client *client, const char *name, uint64_t bytes)
{
	static const char *const names[] = { "reads", "writes", "stored", "connected", "left" };
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "event", cli_json_text(names[event]));
	cli_json_add(object, "client", cli_json_text(client->address));
	if (name) {
		cli_json_add(object, "name", cli_json_text(name));
		cli_json_add(object, "bytes", json_object_new_uint64(bytes));
	}
	cli_json_print(object, false);
}

/* True if standard output can be written without blocking; else the event is dropped, so the server never waits. */
static bool stdout_is_writable(void)
{
	struct pollfd output = { .fd = STDOUT_FILENO, .events = POLLOUT };

	return poll(&output, 1, 0) == 1;
}

static void print_server_event(void *user, enum server_event event, const struct client *client, const char *name,
			       uint64_t bytes)
{
	static const char *const verbs[] = { "reads", "writes", "stored" };
	const struct serve *serve = user;
	char size[CLI_UNIT_MAX], clean[SERVICE_NAME_MAX + 1];

	if (serve->common.quiet || !stdout_is_writable())
		return;
	if (serve->common.json) {
		print_event_json(event, client, name, bytes);
		return;
	}
	if (!name)
		return;
	snprintf(clean, sizeof(clean), "%s", name);
	cli_printable(clean, false);
	printf("%s %s %s (%s)\n", client->address, verbs[event], clean, cli_format_bytes(size, bytes));
	fflush(stdout);
}

static void print_listening(const struct serve *serve)
{
	const struct catalogue *catalogue = &serve->server.catalogue;
	struct json_object *object;
	char address[80], size[CLI_UNIT_MAX];

	pl_listener_address(serve->server.listener, address, sizeof(address));
	if (serve->common.json) {
		object = json_object_new_object();
		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_add(object, "entries", json_object_new_uint64(catalogue->count));
		cli_json_add(object, "bytes", json_object_new_uint64(catalogue->bytes));
		cli_json_add(object, "authenticated", json_object_new_boolean(cli_authenticates(&serve->common)));
		cli_json_print(object, false);
		return;
	}
	printf("listening on %s\n", address);
	if (!serve->common.quiet)
		printf("serving %zu %s, %s%s%s\n", catalogue->count, catalogue->count == 1 ? "entry" : "entries",
		       cli_format_bytes(size, catalogue->bytes), serve->upload ? "; uploads are stored in " : "",
		       serve->upload ? serve->upload : "");
	fflush(stdout);
}

static void warn_about_skipped(const struct catalogue_skipped *skipped)
{
	if (skipped->links)
		cli_warn("symbolic links not published: %u\n  hint: --follow publishes their targets", skipped->links);
	if (skipped->duplicates)
		cli_warn("files not published because another file has the same name: %u", skipped->duplicates);
	if (skipped->unreadable)
		cli_warn("entries not published because they cannot be read: %u", skipped->unreadable);
	if (skipped->long_names)
		cli_warn("files not published because their names exceed %d bytes: %u", SERVICE_NAME_MAX,
			 skipped->long_names);
}

static void warn_about_security(const struct serve *serve)
{
	if (!cli_authenticates(&serve->common))
		cli_warn(serve->common.insecure
				 ? "anybody who can reach this address can connect, because there is no key"
				 : "any user of this host can connect, because there is no key\n"
				   "  hint: add --key FILE at both ends");
	if (!serve->common.quiet)
		warn_about_skipped(&serve->server.catalogue.skipped);
}

/* -- running ------------------------------------------------------------------------------------ */

static int publish_arguments(struct serve *serve, struct pl_error *error)
{
	struct server *server = &serve->server;
	struct item *memory;
	int rc = 0;

	server->catalogue.follow = serve->follow;
	for (int i = 0; i < serve->path_count && rc == 0; i++)
		rc = catalogue_add_path(&server->catalogue, serve->paths[i], error);
	for (size_t i = 0; i < serve->memory_count && rc == 0; i++) {
		rc = item_allocate_memory(&server->items, serve->memory[i].kind, serve->memory[i].size, &memory, error);
		if (rc == 0)
			rc = catalogue_add_memory(&server->catalogue, serve->memory[i].name, serve->memory[i].size,
						  memory, error);
	}
	if (rc < 0 || !serve->upload)
		return rc;
	server->upload = open(serve->upload, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (server->upload < 0)
		return cli_fail_errno(error, -errno, "open", serve->upload);
	if (faccessat(server->upload, ".", W_OK | X_OK, 0) < 0)
		return cli_fail_errno(error, -errno, "access", serve->upload);
	return 0;
}

/* Clients, their lanes and files take descriptors. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS_MAX)
		return;
	limit.rlim_cur = CLI_MIN(limit.rlim_max, (rlim_t)DESCRIPTORS_MAX);
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* A core dump would contain the key, and files of clients. */
static void forbid_core_dumps(void)
{
	struct rlimit none = { 0 };

	getrlimit(RLIMIT_CORE, &none);
	none.rlim_cur = 0;
	setrlimit(RLIMIT_CORE, &none);
}

static int start_serving(struct serve *serve, struct pl_error *error)
{
	struct server *server = &serve->server;
	char address[300];
	int rc;

	serve->signals = cli_signal_fd(SIGHUP, error);
	if (serve->signals < 0)
		return serve->signals;
	sigbus_guard_install();
	raise_descriptor_limit();
	forbid_core_dumps();
	serve->end = serve->duration ? cli_now() + serve->duration : UINT64_MAX;
	rc = cli_address(serve->address, address, sizeof(address), error);
	if (rc == 0)
		rc = cli_open(&server->context, &serve->common, PL_PROGRESS_THREAD, error);
	server->items.context = server->context;
	if (rc == 0)
		rc = publish_arguments(serve, error);
	if (rc == 0)
		rc = pl_listen(server->context, address, &server->listener, error);
	return rc == 0 ? server_start(server, error) : rc;
}

static int serve_poll_timeout(const struct serve *serve, bool busy)
{
	uint64_t now = cli_now(), end = serve->end;

	if (busy)
		return 0;
	if (serve->server.idle && serve->server.client_count)
		end = CLI_MIN(end, serve->server.idle_check);
	if (end == UINT64_MAX)
		return -1;
	return now >= end ? 0 : (int)CLI_MIN((end - now) / CLI_NS_PER_MS + 1, 60000u);
}

/* Reads a signal: SIGHUP reloads keys and identities.  Returns true if the server must end. */
static bool handle_serve_signal(struct serve *serve)
{
	struct signalfd_siginfo info;
	struct pl_error error;

	if (read(serve->signals, &info, sizeof(info)) != sizeof(info))
		return false;
	if (info.ssi_signo != SIGHUP)
		return true;
	if (cli_reload(serve->server.context, &serve->common, &error) < 0)
		cli_report(&error);
	return false;
}

static void serve_until_end(struct serve *serve)
{
	struct pollfd fds[] = {
		{ .fd = pl_fd(serve->server.context), .events = POLLIN },
		{ .fd = serve->signals, .events = POLLIN },
		{ .fd = serve->server.committer.event_fd, .events = POLLIN },
	};

	for (;;) {
		bool busy = server_run(&serve->server);

		if (serve->once && serve->server.served && !serve->server.client_count)
			return;
		if (poll(fds, CLI_ARRAY_SIZE(fds), serve_poll_timeout(serve, busy)) < 0 && errno != EINTR)
			return;
		if ((fds[1].revents && handle_serve_signal(serve)) || cli_now() >= serve->end)
			return;
	}
}

static void stop_serving(struct serve *serve)
{
	struct server *server = &serve->server;

	if (server->context)
		server_stop(server);
	while (server->items.first)
		item_release(&server->items, server->items.first, false);
	pl_close(server->context);
	catalogue_clear(&server->catalogue);
	if (server->upload >= 0)
		close(server->upload);
	for (size_t i = 0; i < serve->memory_count; i++)
		free(serve->memory[i].name);
	if (serve->signals >= 0)
		close(serve->signals);
}

int pl_cli_serve(int argc, char **argv)
{
	struct serve *serve = calloc(1, sizeof(*serve));
	struct cli_options common;
	struct pl_error error;
	int rc;

	if (!serve) {
		cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
		return cli_report(&error);
	}
	serve->address = DEFAULT_ADDRESS;
	serve->clients = CLIENTS_DEFAULT;
	serve->server.idle = IDLE_DEFAULT;
	serve->signals = serve->server.upload = serve->server.committer.event_fd = -1;
	cli_parse(&serve_command, argc, argv, &serve->common, serve);
	serve->server.clients_max = serve->clients;
	serve->common.peers_max = serve->clients + CLIENTS_WAITING;
	serve->common.program = CLI_PROGRAM_SERVE;
	serve->server.writable = serve->writable;
	serve->server.report_event = print_server_event;
	serve->server.user = serve;
	common = serve->common;
	rc = start_serving(serve, &error);
	if (rc == 0) {
		warn_about_security(serve);
		print_listening(serve);
		serve_until_end(serve);
	}
	stop_serving(serve);
	free(serve);
	return rc < 0 ? cli_report_for(&common, &error) : CLI_OK;
}
