/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/spawn.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TIME (20 * CLI_NS_PER_S)
#define STOP_MS 3000
#define KEY_BYTES 32
#define ARGUMENTS_MAX 64

int cli_child_make_key(struct cli_options *options, char path[32], int *key, struct pl_error *error)
{
	uint8_t bytes[KEY_BYTES];
	char text[2 * KEY_BYTES + 1];
	int rc = 0;

	*key = -1;
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return cli_fail_errno(error, -errno, "getrandom", NULL);
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	*key = memfd_create("peerlane-key", 0);
	if (*key < 0 || fchmod(*key, S_IRUSR | S_IWUSR) < 0 || write(*key, text, 2 * KEY_BYTES) != 2 * KEY_BYTES)
		rc = cli_fail_errno(error, -errno, "memfd_create", NULL);
	explicit_bzero(bytes, sizeof(bytes));
	explicit_bzero(text, sizeof(text));
	snprintf(path, 32, "/proc/self/fd/%d", *key);
	options->key_file = path;
	return rc;
}

int cli_child_key(struct cli_options *options, char path[32], int *key, struct pl_error *error)
{
	*key = -1;
	if (options->key_file || options->encrypt != PL_ON)
		return 0;
	return cli_child_make_key(options, path, key, error);
}

/* Runs the server in the child process; never returns. */
static void exec_peerlane_server(const char *const *given, const struct cli_options *options, int announce,
				 pid_t parent)
{
	struct cli_connection_arguments connection;
	const char *arguments[ARGUMENTS_MAX] = { "peerlane" };
	char number[16], timeout[32];
	size_t count = 1;
	sigset_t no_signals;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have exited before prctl(). */
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&no_signals);
	sigprocmask(SIG_SETMASK, &no_signals, NULL);
	snprintf(number, sizeof(number), "%d", announce);
	snprintf(timeout, sizeof(timeout), "%.9f", (double)options->timeout / 1e9);
	cli_connection_arguments(options, &connection);
	while (*given && count < ARGUMENTS_MAX - CLI_ARRAY_SIZE(connection.list) - 5)
		arguments[count++] = *given++;
	for (size_t i = 0; i < connection.count; i++)
		arguments[count++] = connection.list[i];
	if (options->timeout) {
		arguments[count++] = "--timeout";
		arguments[count++] = timeout;
	}
	arguments[count++] = "--announce";
	arguments[count++] = number;
	execv("/proc/self/exe", (char **)(uintptr_t)arguments);
	_exit(127);
}

/* Reads the one line that the child writes to its --announce descriptor. */
static int read_announced_address(struct cli_child *child, int fd, struct pl_error *error)
{
	size_t length = 0;

	while (length < sizeof(child->address) - 1) {
		ssize_t got =
			cli_read_within(fd, child->address + length, sizeof(child->address) - 1 - length, START_TIME);

		if (got <= 0)
			break;
		length += (size_t)got;
		child->address[length] = '\0';
		if (child->address[length - 1] == '\n') {
			child->address[length - 1] = '\0';
			return 0;
		}
	}
	return cli_fail(error, -ECHILD, "BENCH-SERVER-START", NULL,
			"read the messages above, or start the server by hand with --server",
			"the server process did not start");
}

int cli_child_start(struct cli_child *child, const char *const *arguments, const struct cli_options *options,
		    struct pl_error *error)
{
	pid_t parent = getpid();
	int announce[2], rc;

	*child = (struct cli_child){ 0 };
	if (pipe(announce) < 0)
		return cli_fail_errno(error, -errno, "pipe", NULL);
	fflush(NULL);
	child->pid = fork();
	if (child->pid == 0) {
		close(announce[0]);
		exec_peerlane_server(arguments, options, announce[1], parent);
	}
	close(announce[1]);
	if (child->pid < 0) {
		child->pid = 0;
		rc = cli_fail_errno(error, -errno, "fork", NULL);
	} else {
		rc = read_announced_address(child, announce[0], error);
	}
	close(announce[0]);
	if (rc < 0)
		cli_child_stop(child);
	return rc;
}

void cli_child_stop(struct cli_child *child)
{
	pid_t ended = 0;

	if (!child->pid)
		return;
	for (int waited = 0; ended == 0 && waited < STOP_MS; waited += 5) {
		ended = waitpid(child->pid, NULL, WNOHANG);
		if (ended == 0)
			usleep(5000);
	}
	if (ended == 0) {
		kill(child->pid, SIGKILL);
		while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	child->pid = 0;
}
