/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/demo/demo.h"

#define KEY_BYTES 32
#define START_MS 20000
#define STOP_MS 10000
/* A last resort: the demonstration itself takes seconds. */
#define LIFE_SECONDS "600"
#define OPTIONS_MAX 24

/* A key that exists in these two processes only: a file in memory, which the child inherits. */
static int make_key(struct demo_server *server, struct pl_error *error)
{
	uint8_t key[KEY_BYTES];
	int rc = 0;

	server->key = memfd_create("peerlane-key", 0);
	if (server->key < 0)
		return cli_fail_errno(error, -errno, "memfd_create", NULL);
	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key) || fchmod(server->key, 0600) < 0)
		rc = cli_fail_errno(error, -errno, "getrandom", NULL);
	/* A newline at the end would be taken for one of an editor's. */
	key[KEY_BYTES - 1] |= 0x80;
	if (rc == 0 && write(server->key, key, sizeof(key)) != (ssize_t)sizeof(key))
		rc = cli_fail_errno(error, -errno, "write", "key");
	explicit_bzero(key, sizeof(key));
	snprintf(server->key_path, sizeof(server->key_path), "/dev/fd/%d", server->key);
	return rc;
}

/* The child's arguments; the strings are the caller's. */
static char **make_arguments(const struct demo_files *files, char *memory,
			     const struct cli_connection_arguments *connection)
{
	char **arguments = calloc(OPTIONS_MAX + files->count + 1, sizeof(*arguments));
	const char *fixed[] = {
		"peerlane", "serve", "127.0.0.1:0", "--quiet", "--writable", "--for", LIFE_SECONDS, "--memory", memory,
	};
	size_t count = 0;

	if (!arguments)
		return NULL;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(fixed); i++)
		arguments[count++] = (char *)(uintptr_t)fixed[i];
	for (size_t i = 0; i < connection->count; i++)
		arguments[count++] = (char *)(uintptr_t)connection->list[i];
	for (size_t i = 0; i < files->count; i++)
		arguments[count++] = files->all[i].path;
	return arguments;
}

/* In the child: never returns. */
static void become_server(int output, pid_t parent, char **arguments)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* It may have died before that took effect. */
	if (getppid() != parent || dup2(output, STDOUT_FILENO) < 0)
		_exit(127);
	execv("/proc/self/exe", arguments);
	_exit(127);
}

static int spawn(struct demo_server *server, const struct cli_options *options, const struct demo_files *files,
		 struct pl_error *error)
{
	struct cli_connection_arguments connection;
	char memory[64], **arguments;
	pid_t parent = getpid();
	int output[2];

	snprintf(memory, sizeof(memory), DEMO_MEMORY "=%llu", DEMO_SLOTS * DEMO_FRAME);
	cli_connection_arguments(options, &connection);
	arguments = make_arguments(files, memory, &connection);
	if (!arguments)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	if (pipe2(output, O_CLOEXEC) < 0) {
		free(arguments);
		return cli_fail_errno(error, -errno, "pipe", NULL);
	}
	fflush(NULL);
	server->pid = fork();
	if (server->pid == 0)
		become_server(output[1], parent, arguments);
	close(output[1]);
	server->output = output[0];
	free(arguments);
	if (server->pid > 0)
		return 0;
	server->pid = 0;
	return cli_fail_errno(error, -errno, "fork", NULL);
}

/* Its first line says where it listens. */
static int read_address(struct demo_server *server, struct pl_error *error)
{
	struct pollfd ready = { .fd = server->output, .events = POLLIN };
	char line[128] = "";
	size_t length = 0;

	while (length < sizeof(line) - 1 && !strchr(line, '\n')) {
		ssize_t got = poll(&ready, 1, START_MS) > 0
				      ? read(server->output, line + length, sizeof(line) - 1 - length)
				      : 0;

		if (got <= 0)
			return cli_fail(error, -EIO, "DEMO-SERVER", "peerlane serve", NULL,
					"the other process did not start");
		length += (size_t)got;
		line[length] = '\0';
	}
	if (sscanf(line, "listening on %79s", server->address) != 1)
		return cli_fail(error, -EIO, "DEMO-SERVER", "peerlane serve", NULL,
				"the other process did not say where it listens");
	return 0;
}

int demo_server_start(struct demo_server *server, struct cli_options *options, const struct demo_files *files,
		      struct pl_error *error)
{
	int rc = 0;

	server->key = server->output = -1;
	if (!options->key_file) {
		rc = make_key(server, error);
		options->key_file = server->key_path;
	}
	if (rc == 0)
		rc = spawn(server, options, files, error);
	return rc == 0 ? read_address(server, error) : rc;
}

/* Waits for its output's end, which is its own, and then for its status. */
static bool ended_well(struct demo_server *server)
{
	struct pollfd ready = { .fd = server->output, .events = POLLIN };
	char rest[256];
	int status;

	kill(server->pid, SIGTERM);
	while (poll(&ready, 1, STOP_MS) > 0 && read(server->output, rest, sizeof(rest)) > 0)
		continue;
	if (waitpid(server->pid, &status, WNOHANG) == 0) {
		if (!(ready.revents & POLLHUP))
			kill(server->pid, SIGKILL);
		waitpid(server->pid, &status, 0);
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == CLI_OK;
}

int demo_server_stop(struct demo_server *server, struct pl_error *error)
{
	bool well = server->pid == 0 || ended_well(server);

	server->pid = 0;
	if (server->output >= 0)
		close(server->output);
	if (server->key >= 0)
		close(server->key);
	server->output = server->key = -1;
	return well ? 0
		    : cli_fail(error, -EIO, "DEMO-SERVER", "peerlane serve", NULL,
			       "the other process did not end well");
}
