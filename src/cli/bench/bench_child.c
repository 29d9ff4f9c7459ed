/* SPDX-License-Identifier: BSD-2-Clause */
/* A server of the client's own, for measuring on one machine. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/bench.h"

#define START_MS 10000
#define STOP_MS 3000
#define KEY_BYTES 32

/* Encryption needs a key; nobody else has to know it. */
static int make_key(struct bench_child *child, struct bench_options *options, struct pl_error *error)
{
	uint8_t bytes[KEY_BYTES];
	char text[2 * KEY_BYTES + 1];
	int rc = 0;

	if (options->common.key_file || !options->common.encrypt)
		return 0;
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return cli_fail_errno(error, -errno, "getrandom", NULL);
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	child->key = memfd_create("peerlane-key", 0);
	if (child->key < 0 || fchmod(child->key, S_IRUSR | S_IWUSR) < 0 ||
	    write(child->key, text, 2 * KEY_BYTES) != 2 * KEY_BYTES)
		rc = cli_fail_errno(error, -errno, "memfd_create", NULL);
	explicit_bzero(bytes, sizeof(bytes));
	explicit_bzero(text, sizeof(text));
	snprintf(child->key_path, sizeof(child->key_path), "/proc/self/fd/%d", child->key);
	options->common.key_file = child->key_path;
	return rc;
}

/* Never returns. */
static void become_server(const struct bench_options *options, int announce, pid_t parent)
{
	const struct cli_options *common = &options->common;
	struct cli_connection_arguments connection;
	char number[16], timeout[32];
	const char *arguments[40] = { "peerlane", "bench", "--server", "--once", "--quiet", "--announce", number };
	size_t count = 7;
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* It may have died before that took effect. */
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(number, sizeof(number), "%d", announce);
	snprintf(timeout, sizeof(timeout), "%.9f", (double)common->timeout / 1e9);
	arguments[count++] = options->manual ? "--progress=manual" : "--progress=thread";
	cli_connection_arguments(common, &connection);
	for (size_t i = 0; i < connection.count; i++)
		arguments[count++] = connection.list[i];
	if (common->timeout) {
		arguments[count++] = "--timeout";
		arguments[count++] = timeout;
	}
	arguments[count++] = "--memory";
	arguments[count++] = options->peer_memory ? options->peer_memory : options->memory;
	if (options->huge)
		arguments[count++] = "--huge-pages";
	if (options->peer_cpus) {
		arguments[count++] = "--cpu";
		arguments[count++] = options->peer_cpus;
	}
	arguments[count++] = "127.0.0.1:0";
	execv("/proc/self/exe", (char **)(uintptr_t)arguments);
	_exit(127);
}

/* The server's first line. */
static int read_address(struct bench_child *child, int fd, struct pl_error *error)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	size_t length = 0;

	while (length < sizeof(child->address) - 1) {
		ssize_t got = 0;

		if (poll(&ready, 1, START_MS) > 0)
			got = read(fd, child->address + length, sizeof(child->address) - 1 - length);
		if (got <= 0)
			break;
		length += (size_t)got;
		child->address[length] = '\0';
		if (child->address[length - 1] == '\n') {
			child->address[length - 1] = '\0';
			return 0;
		}
	}
	return cli_fail(error, -ECHILD, "BENCH-SERVER-START", NULL, "see what it printed; --server starts it by hand",
			"the server process did not start");
}

int bench_child_start(struct bench_child *child, struct bench_options *options, struct pl_error *error)
{
	pid_t parent = getpid();
	int announce[2], rc;

	*child = (struct bench_child){ .key = -1 };
	rc = make_key(child, options, error);
	if (rc < 0)
		return rc;
	if (pipe(announce) < 0)
		return cli_fail_errno(error, -errno, "pipe", NULL);
	fflush(NULL);
	child->pid = fork();
	if (child->pid == 0) {
		close(announce[0]);
		become_server(options, announce[1], parent);
	}
	close(announce[1]);
	if (child->pid < 0) {
		child->pid = 0;
		rc = cli_fail_errno(error, -errno, "fork", NULL);
	} else {
		rc = read_address(child, announce[0], error);
	}
	close(announce[0]);
	if (rc < 0)
		bench_child_stop(child);
	return rc;
}

void bench_child_stop(struct bench_child *child)
{
	if (child->pid > 0) {
		pid_t ended = 0;

		for (int waited = 0; ended == 0 && waited < STOP_MS; waited += 5) {
			ended = waitpid(child->pid, NULL, WNOHANG);
			if (ended == 0)
				usleep(5000);
		}
		if (ended == 0) {
			kill(child->pid, SIGKILL);
			waitpid(child->pid, NULL, 0);
		}
	}
	if (child->key >= 0)
		close(child->key);
	child->pid = 0;
	child->key = -1;
}
