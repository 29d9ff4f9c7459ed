/* SPDX-License-Identifier: BSD-2-Clause */
/* Child processes that ask drivers, because drivers can hang and their libraries can crash. */
#include "diag/check/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAX (256u << 10)
#define GRACE (500 * PL_NS_PER_MS)

struct child {
	const struct pl_probe *probe;
	pid_t pid;
	int fd; /* -1: closed */
	char *text;
	size_t length;
};

/* Runs in the child; does not return. */
static void become(const struct pl_probe *probe, int fd)
{
	struct rlimit none = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	FILE *to = fdopen(fd, "w");

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setrlimit(RLIMIT_CORE, &none);
	/* Libraries of drivers print warnings there. */
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
	}
	if (to) {
		setvbuf(to, NULL, _IOLBF, BUFSIZ);
		probe->run(to, probe->argument);
		fflush(to);
	}
	_exit(0);
}

static void start_child(struct child *child, const struct pl_probe *probe)
{
	int ends[2];

	*child = (struct child){ .probe = probe, .pid = -1, .fd = -1 };
	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	child->pid = fork();
	if (child->pid == 0) {
		/* A reader that held the write end would never see the end. */
		close(ends[0]);
		become(probe, ends[1]);
	}
	close(ends[1]);
	if (child->pid < 0)
		close(ends[0]);
	else
		child->fd = ends[0];
}

/* Reads the output of a child; closes at its end, and if it is too long. */
static void take_child_output(struct child *child)
{
	char *text = realloc(child->text, child->length + 4096);
	ssize_t got = -1;

	if (text) {
		child->text = text;
		got = read(child->fd, text + child->length, 4096);
	}
	if (got > 0 && child->length + (size_t)got < ANSWER_MAX) {
		child->length += (size_t)got;
		return;
	}
	if (got > 0)
		kill(child->pid, SIGKILL);
	close(child->fd);
	child->fd = -1;
}

/* Kills a child that does not end by itself. One that hangs in the kernel does not die, and is left to init. */
static bool reap(pid_t pid, bool hangs, int *status)
{
	uint64_t deadline = pl_now() + (hangs ? 0 : GRACE);

	if (hangs)
		kill(pid, SIGKILL);
	do {
		if (waitpid(pid, status, WNOHANG) != 0)
			return true;
		poll(NULL, 0, 5);
	} while (pl_now() < deadline);
	kill(pid, SIGKILL);
	return waitpid(pid, status, WNOHANG) != 0;
}

/* Reads until all children are done, or the time is over. */
static void listen_to(struct child *children, size_t count, uint64_t deadline)
{
	struct pollfd polls[PL_PROBES_MAX];
	bool open = true;

	for (uint64_t now; open && (now = pl_now()) < deadline;) {
		open = false;
		for (size_t i = 0; i < count; i++) {
			polls[i] = (struct pollfd){ .fd = children[i].fd, .events = POLLIN };
			open = open || children[i].fd >= 0;
		}
		if (!open || poll(polls, count, (int)((deadline - now) / PL_NS_PER_MS) + 1) < 0)
			continue;
		for (size_t i = 0; i < count; i++)
			if (children[i].fd >= 0 && polls[i].revents)
				take_child_output(&children[i]);
	}
}

static void finish_child(struct child *child, struct pl_facts *facts)
{
	char key[PL_FACT_KEY_MAX];
	bool hangs = child->fd >= 0;
	int status = 0;

	snprintf(key, sizeof(key), "%s.state", child->probe->name);
	if (child->pid < 0) {
		pl_facts_set(facts, key, "not started");
		return;
	}
	if (hangs)
		close(child->fd);
	if (!reap(child->pid, hangs, &status))
		hangs = true;
	if (hangs)
		pl_facts_set(facts, key, "hangs");
	else if (WIFSIGNALED(status))
		pl_facts_set(facts, key, "crashed with signal %d", WTERMSIG(status));
	else
		pl_facts_set(facts, key, "done");
	pl_facts_parse(facts, child->text ? child->text : "", child->length);
	free(child->text);
}

void pl_probe_run(struct pl_facts *facts, const struct pl_probe *probes, size_t count, uint64_t timeout)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout);
	struct child children[PL_PROBES_MAX];

	count = PL_MIN(count, (size_t)PL_PROBES_MAX);
	for (size_t i = 0; i < count; i++)
		start_child(&children[i], &probes[i]);
	listen_to(children, count, deadline);
	for (size_t i = 0; i < count; i++)
		finish_child(&children[i], facts);
}

struct pl_facts *pl_probe_one(struct pl_sysroot *root, const struct pl_probe *probe, uint64_t timeout)
{
	struct pl_facts *facts = pl_facts_new();

	if (facts && pl_sysroot_is_live(root))
		pl_probe_run(facts, probe, 1, timeout);
	else if (facts)
		pl_facts_load(facts, root);
	return facts;
}

void pl_probe_all(struct pl_facts *facts, uint64_t timeout)
{
	static const struct pl_probe probes[] = {
		{ .name = "verbs", .run = pl_probe_verbs },
		{ .name = "cuda", .run = pl_probe_cuda },
		{ .name = "nvml", .run = pl_probe_nvml },
	};

	pl_probe_process(facts);
	pl_probe_kernel(facts);
	pl_probe_run(facts, probes, PL_ARRAY_SIZE(probes), timeout);
}
