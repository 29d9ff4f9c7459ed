/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/child.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE (1 * CLI_NS_PER_S) /* between SIGTERM and SIGKILL */
#define GIVE_UP \
	(3 * CLI_NS_PER_S) /* between SIGKILL and the end without an exit, as of a process in an uninterruptible wait */
#define LAUNCHER_NOT_STARTED 125 /* exit status; 126 and 127 are those of shells behind a launcher */
#define BLOCK 65536u
#define PIPE_SIZE 262144  /* holds a whole document: its host does not wait for this process */
#define BLOCKS_AT_ONCE 16 /* other children wait meanwhile */

static uint64_t wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Becomes the launcher; never returns. */
static void exec_launcher(char *const *words, const int output[2], const int errors[2], pid_t parent)
{
	sigset_t none;
	int input, failure;

	/* Only the launcher itself: a killed parent cannot kill the session. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(LAUNCHER_NOT_STARTED);
	/* A session has no terminal: a launcher cannot ask for passwords there, and its whole group can be killed. */
	setsid();
	/* The parent's descriptors may be all that a process may have; these two are not for the launcher. */
	close(output[0]);
	close(errors[0]);
	input = open("/dev/null", O_RDONLY);
	if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output[1], STDOUT_FILENO) < 0 ||
	    dup2(errors[1], STDERR_FILENO) < 0)
		_exit(LAUNCHER_NOT_STARTED);
	if (input > STDERR_FILENO)
		close(input);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(words[0], words);
	failure = errno;
	dprintf(STDERR_FILENO, "%s: %s\n", words[0], strerror(failure));
	_exit(LAUNCHER_NOT_STARTED);
}

int child_start(struct child *child, size_t host, char *const *words, const struct run_options *options)
{
	int output[2] = { -1, -1 }, errors[2] = { -1, -1 }, rc = 0;
	pid_t parent = getpid();

	*child = (struct child){ .host = host, .output = -1, .errors = -1 };
	child->drops = options->first_only && host > 0;
	child->last_errors = options->last_errors;
	child->output_max = options->output_max ? options->output_max : RUN_OUTPUT_MAX;
	child->result.begun_wall = wall_clock();
	child->result.begun = cli_now();
	child->result.limit = options->timeout;
	child->deadline = child->result.begun + options->timeout;
	if (pipe2(output, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC) < 0 || fcntl(output[0], F_SETFL, O_NONBLOCK) < 0 ||
	    fcntl(errors[0], F_SETFL, O_NONBLOCK) < 0)
		rc = -errno;
	/* Without it the pipe is smaller, as if there were many pipes already. */
	if (rc == 0)
		fcntl(output[0], F_SETPIPE_SZ, PIPE_SIZE);
	child->pid = rc == 0 ? fork() : 0;
	if (rc == 0 && child->pid == 0)
		exec_launcher(words, output, errors, parent);
	if (child->pid < 0) {
		rc = -errno;
		child->pid = 0;
	}
	for (int end = rc < 0 ? 0 : 1; end < 2; end++) {
		if (output[end] >= 0)
			close(output[end]);
		if (errors[end] >= 0)
			close(errors[end]);
	}
	if (rc == 0) {
		child->output = output[0];
		child->errors = errors[0];
	}
	return rc;
}

static void close_child_pipe(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Signals all processes of the session; the leader alone if it did not begin the session yet. */
static void signal_child(const struct child *child, int number)
{
	if (kill(-child->pid, number) < 0)
		kill(child->pid, number);
}

/* Makes room for a block and a NUL.  Returns false if there is too much output or no memory. */
static bool make_output_room(struct child *child)
{
	struct run_result *result = &child->result;
	size_t room = child->room ? 2 * child->room : BLOCK;
	char *grown;

	if (result->length > child->output_max)
		return false;
	if (result->length + BLOCK < child->room)
		return true;
	room = CLI_MAX(room, result->length + BLOCK + 1);
	grown = realloc(result->output, room);
	if (!grown)
		return false;
	result->output = grown;
	child->room = room;
	return true;
}

static void read_child_output(struct child *child)
{
	struct run_result *result = &child->result;
	ssize_t got = -1;

	for (int i = 0; child->output >= 0 && i < BLOCKS_AT_ONCE; i++) {
		if (child->drops)
			result->length = 0;
		if (!make_output_room(child)) {
			close_child_pipe(&child->output);
			child->kills = CLI_MAX(child->kills, 1u);
			result->end = RUN_TOO_LONG;
			child->deadline = cli_now() + GIVE_UP;
			signal_child(child, SIGKILL);
			return;
		}
		got = read(child->output, result->output + result->length, BLOCK);
		if (got > 0)
			result->length += (size_t)got;
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			close_child_pipe(&child->output);
		if (got <= 0)
			return;
	}
}

/* Keeps the beginning or the end of the messages, and drops the rest. */
static void keep_child_errors(struct child *child, const char *bytes, size_t length)
{
	size_t room = RUN_ERRORS_MAX - child->errors_length;
	char *errors = child->result.errors;

	if (child->last_errors && length > RUN_ERRORS_MAX) {
		bytes += length - RUN_ERRORS_MAX;
		length = RUN_ERRORS_MAX;
	}
	if (child->last_errors && length > room) {
		memmove(errors, errors + (length - room), RUN_ERRORS_MAX - length);
		child->errors_length = RUN_ERRORS_MAX - length;
		room = length;
	}
	length = CLI_MIN(length, room);
	memcpy(errors + child->errors_length, bytes, length);
	child->errors_length += length;
}

static void read_child_errors(struct child *child)
{
	char block[4096];

	for (int i = 0; child->errors >= 0 && i < BLOCKS_AT_ONCE; i++) {
		ssize_t got = read(child->errors, block, sizeof(block));

		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			close_child_pipe(&child->errors);
		if (got <= 0)
			return;
		keep_child_errors(child, block, (size_t)got);
	}
}

void child_read(struct child *child)
{
	read_child_output(child);
	read_child_errors(child);
}

static void end_host_child(struct child *child)
{
	close_child_pipe(&child->output);
	close_child_pipe(&child->errors);
	child->pid = 0;
	child->result.ended = cli_now();
	child->result.ended_wall = wall_clock();
	if (child->result.output)
		child->result.output[child->result.length] = '\0';
}

bool child_reap(struct child *child)
{
	siginfo_t info = { .si_pid = 0 };
	int status;

	/* The zombie keeps its number until the rest of its session is killed. */
	if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
		return false;
	/* Reads all that is in the pipes: a pipe holds less than these blocks. */
	child_read(child);
	kill(-child->pid, SIGKILL);
	waitpid(child->pid, &status, 0);
	child->result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	end_host_child(child);
	return true;
}

bool child_kill(struct child *child, enum run_end reason)
{
	if (child->kills == 2) {
		end_host_child(child);
		return true;
	}
	if (child->result.end == RUN_EXITED)
		child->result.end = reason;
	signal_child(child, child->kills ? SIGKILL : SIGTERM);
	/* SIGTERM reaches stopped processes when they continue. */
	signal_child(child, SIGCONT);
	child->deadline = cli_now() + (child->kills ? GIVE_UP : GRACE);
	child->kills++;
	return false;
}

void child_release(struct child *child)
{
	free(child->result.output);
	child->result.output = NULL;
}
