/* SPDX-License-Identifier: BSD-2-Clause */
/* Server process of the demonstration. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/common/spawn.h"
#include "cmd/demo/demo.h"

#define START_TIME (20 * CLI_NS_PER_S)
#define STOP_TIME (10 * CLI_NS_PER_S)
/* Time limit in case the server is not stopped; the demonstration takes seconds. */
#define LIFE_SECONDS "600"

/* Allocates the argument list of the server; the strings remain the caller's. */
static char **make_server_arguments(const struct demo_files *files, char *memory, const char *gpu_memory,
				    const struct cli_connection_arguments *connection)
{
	const char *fixed[] = {
		"peerlane", "serve", "127.0.0.1:0", "--quiet", "--writable", "--for", LIFE_SECONDS, "--memory", memory,
	};
	/* Three arguments for GPU memory, and NULL at the end. */
	size_t room = CLI_ARRAY_SIZE(fixed) + 3 + connection->count + files->count + 1, count = 0;
	char **arguments = calloc(room, sizeof(*arguments));

	if (!arguments)
		return NULL;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(fixed); i++)
		arguments[count++] = (char *)(uintptr_t)fixed[i];
	if (gpu_memory) {
		arguments[count++] = (char *)(uintptr_t) "--memory";
		arguments[count++] = (char *)(uintptr_t)gpu_memory;
		/* What the GPU's driver opens differs from one version to the next; a refusal would end the demonstration. */
		arguments[count++] = (char *)(uintptr_t) "--sandbox=off";
	}
	for (size_t i = 0; i < connection->count; i++)
		arguments[count++] = (char *)(uintptr_t)connection->list[i];
	for (size_t i = 0; i < files->count; i++)
		arguments[count++] = files->all[i].path;
	return arguments;
}

/* Runs the server in the child process; never returns. */
static void exec_demo_server(int output, pid_t parent, char **arguments)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have exited before prctl(). */
	if (getppid() != parent || dup2(output, STDOUT_FILENO) < 0)
		_exit(127);
	execv("/proc/self/exe", arguments);
	_exit(127);
}

static int spawn_demo_server(struct demo_server *server, const struct cli_options *options,
			     const struct demo_files *files, const char *gpu_memory, struct pl_error *error)
{
	struct cli_connection_arguments connection;
	char memory[64], **arguments;
	pid_t parent = getpid();
	int output[2];

	snprintf(memory, sizeof(memory), DEMO_MEMORY "=%llu", DEMO_SLOTS * DEMO_FRAME);
	cli_connection_arguments(options, &connection);
	arguments = make_server_arguments(files, memory, gpu_memory, &connection);
	if (!arguments)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	if (pipe2(output, O_CLOEXEC) < 0) {
		free(arguments);
		return cli_fail_errno(error, -errno, "pipe", NULL);
	}
	fflush(NULL);
	server->pid = fork();
	if (server->pid == 0)
		exec_demo_server(output[1], parent, arguments);
	close(output[1]);
	server->output = output[0];
	free(arguments);
	if (server->pid > 0)
		return 0;
	server->pid = 0;
	return cli_fail_errno(error, -errno, "fork", NULL);
}

/* Reads the address from the first line of the server's output. */
static int read_server_address(struct demo_server *server, struct pl_error *error)
{
	char line[128] = "";
	size_t length = 0;

	while (length < sizeof(line) - 1 && !strchr(line, '\n')) {
		ssize_t got = cli_read_within(server->output, line + length, sizeof(line) - 1 - length, START_TIME);

		if (got <= 0)
			return cli_fail(error, -EIO, "DEMO-SERVER", "peerlane serve", NULL,
					"the server process did not start");
		length += (size_t)got;
		line[length] = '\0';
	}
	if (sscanf(line, "listening on %79s", server->address) != 1)
		return cli_fail(error, -EIO, "DEMO-SERVER", "peerlane serve", NULL,
				"the server process did not print its address");
	return 0;
}

int demo_server_start(struct demo_server *server, struct cli_options *options, const struct demo_files *files,
		      const char *gpu_memory, struct pl_error *error)
{
	int rc = 0;

	server->key = server->output = -1;
	if (!options->key_file) {
		rc = cli_child_make_key(options, server->key_path, &server->key, error);
	}
	if (rc == 0)
		rc = spawn_demo_server(server, options, files, gpu_memory, error);
	return rc == 0 ? read_server_address(server, error) : rc;
}

/*
 * Stops the server: sends SIGTERM, waits for the end of its output, then for its status.  Returns true if it succeeded.
 */
static bool terminate_demo_server(struct demo_server *server)
{
	char output[256];
	ssize_t got;
	int status = -1;

	kill(server->pid, SIGTERM);
	do {
		got = cli_read_within(server->output, output, sizeof(output), STOP_TIME);
	} while (got > 0);
	/* A server that has closed its output ends by itself. */
	if (got < 0)
		kill(server->pid, SIGKILL);
	while (waitpid(server->pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == CLI_OK;
}

int demo_server_stop(struct demo_server *server, struct pl_error *error)
{
	bool succeeded = server->pid == 0 || terminate_demo_server(server);

	server->pid = 0;
	if (server->output >= 0)
		close(server->output);
	if (server->key >= 0)
		close(server->key);
	server->output = server->key = -1;
	return succeeded ? 0
			 : cli_fail(error, -EIO, "DEMO-SERVER", "peerlane serve", NULL, "the server process failed");
}
