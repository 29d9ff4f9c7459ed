/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/common/systemd.h"
#include "cmd/transfer/connection_log.h"
#include "cmd/transfer/serve.h"
#include "cmd/transfer/sigbus_guard.h"

#define CLIENTS_DEFAULT 1024
#define KEEP_PARTS_DEFAULT (7 * 86400 * CLI_NS_PER_S)
#define IDLE_DEFAULT (900 * CLI_NS_PER_S)
/* Clients beyond --clients that may wait for a place. */
#define CLIENTS_WAITING 64
/* Descriptors that the loop waits for, without those of metrics. */
#define SERVE_DESCRIPTORS 5

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
		return cli_fail_new_path(error, -errno, "open", serve->upload);
	if (faccessat(server->upload, ".", W_OK | X_OK, 0) < 0)
		return cli_fail_errno(error, -errno, "access", serve->upload);
	return 0;
}

/* A core dump would contain the key, and files of clients. */
static void forbid_core_dumps(void)
{
	struct rlimit none = { 0 };

	getrlimit(RLIMIT_CORE, &none);
	none.rlim_cur = 0;
	setrlimit(RLIMIT_CORE, &none);
}

static int listen_for_clients(struct serve *serve, const char *address, struct pl_error *error)
{
	struct server *server = &serve->server;
	int fd = systemd_listen_fd();

	if (fd >= 0)
		return pl_listen_socket(server->context, fd, &server->listener, error);
	return pl_listen(server->context, address, &server->listener, error);
}

/* True if a standard descriptor is a terminal that nobody has closed. */
static bool has_open_terminal(void)
{
	return isatty(STDIN_FILENO) || isatty(STDOUT_FILENO) || isatty(STDERR_FILENO);
}

/* Returns the process that holds the lock of a file; 0 if this process cannot see it. */
static int find_lock_holder(const struct stat *file)
{
	FILE *locks = fopen("/proc/locks", "re");
	unsigned long long inode = 0;
	char line[256];
	int process = 0;

	while (locks && fgets(line, sizeof(line), locks)) {
		if (sscanf(line, "%*u: FLOCK %*s %*s %d %*x:%*x:%llu", &process, &inode) == 2 && inode == file->st_ino)
			break;
		process = 0;
	}
	if (locks)
		fclose(locks);
	return process;
}

static bool is_process_of(int process, uid_t user)
{
	struct stat status;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", process);
	return process > 0 && stat(path, &status) == 0 && (status.st_uid == user || status.st_uid == 0);
}

/*
 * The lock of a file ends with its server, however that ends.  So a file with the number of a process that was killed does
 * not count, even if another process has that number now.
 */
static int lock_pid_file(const struct serve *serve, struct pl_error *error)
{
	struct stat status;
	int holder;

	/* All processes share a device. */
	if (fstat(serve->pid_fd, &status) < 0 || !S_ISREG(status.st_mode))
		return 0;
	/* A file system may have no locks. */
	if (flock(serve->pid_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
		return 0;
	/* Whoever may read a file can lock it: other users must not keep this server from its start. */
	holder = find_lock_holder(&status);
	if (!is_process_of(holder, geteuid()))
		return 0;
	return cli_fail(error, -EBUSY, "PID-FILE-IN-USE", serve->pid_file,
			"give each server a file of its own, or stop the other one", "process %d holds the file's lock",
			holder);
}

/*
 * Opens the file before the sandbox closes its folder.  Its content stays until this server listens: it can be that of
 * a running server, beside which this one cannot start.
 */
static int open_pid_file(struct serve *serve, struct pl_error *error)
{
	if (!serve->pid_file)
		return 0;
	serve->pid_fd = open(serve->pid_file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	return serve->pid_fd < 0 ? cli_fail_new_path(error, -errno, "open", serve->pid_file)
				 : lock_pid_file(serve, error);
}

static int write_pid_file(struct serve *serve, struct pl_error *error)
{
	if (serve->pid_fd < 0)
		return 0;
	/* A pipe or a device has no content to remove. */
	if ((ftruncate(serve->pid_fd, 0) == 0 || errno == EINVAL) &&
	    dprintf(serve->pid_fd, "%d\n", (int)getpid()) > 0) {
		serve->pid_written = true;
		return 0;
	}
	return cli_fail_errno(error, -errno, "write", serve->pid_file);
}

static void close_pid_file(struct serve *serve)
{
	if (serve->pid_fd < 0)
		return;
	if (serve->pid_written && ftruncate(serve->pid_fd, 0) < 0)
		cli_warn("%s cannot be emptied: %s", serve->pid_file, strerror(errno));
	close(serve->pid_fd);
}

static char *write_metrics_page(void *user)
{
	struct serve *serve = user;

	return metrics_text(&serve->metrics, &serve->server);
}

static int open_metrics(struct serve *serve, struct pl_error *error)
{
	if (!serve->metrics_address)
		return 0;
	serve->metrics_http = metrics_http_open(serve->metrics_address, serve->metrics_open, error);
	if (!serve->metrics_http)
		return error->code;
	serve->metrics_http->page = write_metrics_page;
	serve->metrics_http->user = serve;
	return 0;
}

static int start_serving(struct serve *serve, struct pl_error *error)
{
	struct server *server = &serve->server;
	char address[300];
	int rc;

	serve->terminal = has_open_terminal();
	serve->signals = cli_signal_fd(SIGHUP, error);
	if (serve->signals < 0)
		return serve->signals;
	serve->event_signals = connection_log_open(error);
	if (serve->event_signals < 0)
		return serve->event_signals;
	sigbus_guard_install();
	/* Clients, their lanes and files take descriptors. */
	cli_raise_descriptor_limit();
	forbid_core_dumps();
	serve->end = serve->duration ? cli_now() + serve->duration : UINT64_MAX;
	rc = cli_address(serve->address, address, sizeof(address), error);
	serve->audit_options.json = serve->common.json;
	if (rc == 0 && serve->audit_options.target)
		rc = audit_open(&serve->audit, &serve->audit_options, error);
	serve->key = OPENSSL_secure_zalloc(sizeof(*serve->key));
	if (serve->upload && serve->key)
		server->items.key = partial_key_get(serve->key);
	if (rc == 0)
		rc = open_pid_file(serve, error);
	if (rc == 0)
		rc = open_metrics(serve, error);
	serve->reload = reload_listen();
	if (rc == 0)
		rc = serve_enter_sandbox(serve, error);
	if (rc == 0)
		rc = cli_open(&server->context, &serve->common, PL_PROGRESS_THREAD, error);
	server->items.context = server->context;
	if (rc == 0)
		rc = publish_arguments(serve, error);
	if (rc == 0)
		rc = listen_for_clients(serve, address, error);
	if (rc == 0)
		rc = server_start(server, error);
	return rc == 0 ? write_pid_file(serve, error) : rc;
}

static int serve_poll_timeout(const struct serve *serve, bool busy)
{
	uint64_t now = cli_now(), end = serve->end;

	if (busy)
		return 0;
	end = CLI_MIN(end, server_next_time(&serve->server));
	end = CLI_MIN(end, metrics_http_next_time(serve->metrics_http));
	if (serve->watchdog)
		end = CLI_MIN(end, serve->watchdog_next);
	if (end == UINT64_MAX)
		return -1;
	return now >= end ? 0 : (int)CLI_MIN((end - now) / CLI_NS_PER_MS + 1, 60000u);
}

int serve_reload(struct serve *serve, struct pl_error *error)
{
	int rc;

	systemd_notify("RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(cli_now() / 1000));
	audit_reopen(serve->audit);
	rc = cli_reload(serve->server.context, &serve->common, error);
	if (rc < 0)
		cli_report(error);
	else
		server_reload(&serve->server);
	serve_report_reload(serve, rc < 0 ? error : NULL);
	systemd_notify("READY=1\nSTATUS=%s", rc < 0 ? "reload failed; see the log" : "serving");
	return rc;
}

/*
 * Reads a signal: SIGHUP reloads keys and identities, unless the terminal of the server was closed.  Returns true if
 * the server must end.
 */
static bool handle_serve_signal(struct serve *serve)
{
	struct signalfd_siginfo info;
	struct pl_error error;

	if (read(serve->signals, &info, sizeof(info)) != sizeof(info))
		return false;
	if (info.ssi_signo != SIGHUP || (serve->terminal && !has_open_terminal()))
		return true;
	serve_reload(serve, &error);
	return false;
}

static void serve_until_end(struct serve *serve)
{
	struct pollfd fds[SERVE_DESCRIPTORS + METRICS_POLL_MAX] = {
		{ .fd = pl_fd(serve->server.context), .events = POLLIN },
		{ .fd = serve->signals, .events = POLLIN },
		{ .fd = serve->server.committer.event_fd, .events = POLLIN },
		{ .fd = serve->event_signals, .events = POLLIN },
		{ .fd = serve->reload, .events = POLLIN },
	};

	for (;;) {
		bool busy = server_run(&serve->server);

		if (serve->watchdog && cli_now() >= serve->watchdog_next) {
			systemd_notify("WATCHDOG=1");
			serve->watchdog_next = cli_now() + serve->watchdog / 2;
		}

		if (serve->once && serve->server.served && !serve->server.client_count)
			return;
		metrics_http_poll(serve->metrics_http, fds + SERVE_DESCRIPTORS);
		if (poll(fds, CLI_ARRAY_SIZE(fds), serve_poll_timeout(serve, busy)) < 0 && errno != EINTR)
			return;
		if (fds[3].revents)
			connection_log_print(serve->event_signals, &serve->server);
		if (fds[4].revents)
			reload_serve_request(serve);
		metrics_http_run(serve->metrics_http, fds + SERVE_DESCRIPTORS);
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
	metrics_http_close(serve->metrics_http);
	pl_close(server->context);
	metrics_close(&serve->metrics);
	audit_close(serve->audit);
	catalogue_clear(&server->catalogue);
	if (server->upload >= 0)
		close(server->upload);
	for (size_t i = 0; i < serve->memory_count; i++)
		free(serve->memory[i].name);
	if (serve->signals >= 0)
		close(serve->signals);
	if (serve->event_signals >= 0)
		close(serve->event_signals);
	if (serve->reload >= 0)
		close(serve->reload);
	close_pid_file(serve);
}

/* Ends the command `peerlane serve --reload`. */
static int ask_for_reload(struct serve *serve)
{
	struct cli_options common = serve->common;
	struct json_object *object;
	struct pl_error error;
	int rc = reload_request(serve->reload_target, &error);

	free(serve);
	if (rc < 0)
		return cli_report_for(&common, &error);
	if (!common.json)
		return CLI_OK;
	object = cli_json_begin();
	cli_json_add(object, "reloaded", json_object_new_boolean(true));
	return cli_json_results(object);
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
	serve_protect_openssl_memory();
	metrics_init(&serve->metrics);
	serve->address = SERVE_DEFAULT_ADDRESS;
	serve->clients = CLIENTS_DEFAULT;
	serve->server.idle = IDLE_DEFAULT;
	serve->server.keep_parts = KEEP_PARTS_DEFAULT;
	serve->reload = serve->pid_fd = -1;
	serve->signals = serve->event_signals = serve->server.upload = serve->server.committer.event_fd = -1;
	serve_parse_arguments(serve, argc, argv);
	if (serve->reload_target)
		return ask_for_reload(serve);
	serve->server.clients_max = serve->clients;
	serve->common.peers_max = serve->clients + CLIENTS_WAITING;
	serve->common.program = CLI_PROGRAM_SERVE;
	serve->server.writable = serve->writable;
	serve->server.report_event = serve_report_event;
	serve->server.is_blocked = serve_is_blocked;
	serve->server.user = serve;
	serve->server.read_only = serve->read_only;
	serve->common.refused = serve_report_refused;
	serve->common.trust_user = serve;
	serve->watchdog = systemd_watchdog();
	common = serve->common;
	rc = start_serving(serve, &error);
	if (rc == 0) {
		serve_print_warnings(serve);
		rc = serve_print_listening(serve, &error);
	}
	if (rc == 0) {
		systemd_notify("READY=1\nSTATUS=serving");
		serve_until_end(serve);
		systemd_notify("STOPPING=1");
	}
	stop_serving(serve);
	OPENSSL_secure_clear_free(serve->key, sizeof(*serve->key));
	free(serve);
	return rc < 0 ? cli_report_for(&common, &error) : CLI_OK;
}
