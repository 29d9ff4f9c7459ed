/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/child.h"

#define ARGUMENTS_MAX 16
#define START_MS 20000

static void add(char **arguments, const char *argument)
{
	while (*arguments)
		arguments++;
	*arguments = (char *)(uintptr_t)argument;
}

static void become_server(int output, pid_t parent, const struct bench_options *options)
{
	char *arguments[ARGUMENTS_MAX] = { 0 }, streams[16];

	add(arguments, "peerlane");
	add(arguments, "bench");
	add(arguments, "--server");
	add(arguments, "--once");
	add(arguments, options->manual ? "--progress=manual" : "--progress=thread");
	if (options->common.key_file) {
		add(arguments, "--key");
		add(arguments, options->common.key_file);
	}
	if (options->common.encrypt)
		add(arguments, "--encrypt");
	if (options->common.fabric) {
		add(arguments, "--fabric");
		add(arguments, options->common.fabric);
	}
	if (options->common.streams) {
		snprintf(streams, sizeof(streams), "%u", options->common.streams);
		add(arguments, "--streams");
		add(arguments, streams);
	}
	add(arguments, "127.0.0.1:0");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* It may have died before that took effect. */
	if (getppid() != parent || dup2(output, STDOUT_FILENO) < 0)
		_exit(127);
	execv("/proc/self/exe", arguments);
	_exit(127);
}

int bench_child_start(struct bench_child *child, const struct bench_options *options, struct pl_error *error)
{
	struct pollfd ready = { .events = POLLIN };
	pid_t parent = getpid();
	char line[128] = "";
	size_t length = 0;
	int output[2];

	if (pipe2(output, O_CLOEXEC) < 0)
		return cli_fail_errno(error, -errno, "pipe", NULL);
	fflush(NULL);
	child->pid = fork();
	if (child->pid == 0)
		become_server(output[1], parent, options);
	close(output[1]);
	child->output = ready.fd = output[0];
	if (child->pid < 0) {
		child->pid = 0;
		close(output[0]);
		return cli_fail_errno(error, -errno, "fork", NULL);
	}
	while (length < sizeof(line) - 1 && !strchr(line, '\n') && poll(&ready, 1, START_MS) > 0) {
		ssize_t got = read(ready.fd, line + length, sizeof(line) - 1 - length);

		if (got <= 0)
			break;
		length += (size_t)got;
		line[length] = '\0';
	}
	if (sscanf(line, "listening on %79s", child->address) != 1)
		return cli_fail(error, -EIO, "BENCH-SERVER", "peerlane bench --server", NULL,
				"the other process did not start");
	return 0;
}

void bench_child_stop(struct bench_child *child)
{
	if (child->pid <= 0)
		return;
	/* It ends by itself when its client left; a measurement that failed must not wait for that. */
	kill(child->pid, SIGTERM);
	waitpid(child->pid, NULL, 0);
	close(child->output);
	child->pid = 0;
}
