/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/run.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cmd/fleet/child.h"

#define PROGRESS_INTERVAL (250 * CLI_NS_PER_MS)
/* A host starts again after 0.2 to 1.2 s. */
#define AGAIN_MIN (200 * CLI_NS_PER_MS)
#define AGAIN_STEP (370 * CLI_NS_PER_MS)
#define AGAIN_SPREAD (1000 * CLI_NS_PER_MS)

struct run {
	const struct run_options *options;
	struct child *children; /* options->parallel, those with a pid run */
	unsigned char *states;
	struct pollfd *ready;
	size_t *queue; /* hosts in the order of their starts; those behind options->count start again */
	size_t next, queued, running, ended;
	uint64_t again;           /* time from which hosts start again */
	int exits, interrupts;    /* signal descriptors */
	bool interrupted, exited; /* exited: some child did since the last look */
};

/* Opens a descriptor for signals, and blocks them. */
static int open_signals(const sigset_t *set)
{
	sigprocmask(SIG_BLOCK, set, NULL);
	return signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int watch_signals(struct run *run, struct pl_error *error)
{
	static const int signals[] = { SIGINT, SIGTERM };
	struct sigaction action;
	sigset_t exits, interrupts;

	/* An ignored SIGCHLD would let the kernel reap the children. */
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&exits);
	sigaddset(&exits, SIGCHLD);
	sigemptyset(&interrupts);
	/* An ignored signal, as in a job that a script starts with &, would be pending if it were blocked. */
	for (size_t i = 0; i < CLI_ARRAY_SIZE(signals); i++)
		if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&interrupts, signals[i]);
	run->exits = open_signals(&exits);
	run->interrupts = open_signals(&interrupts);
	return run->exits < 0 || run->interrupts < 0 ? cli_fail_errno(error, -errno, "signalfd", NULL) : 0;
}

static void tell_end(struct run *run, const struct child *child)
{
	run->states[child->host] = RUN_ENDED;
	/* The hosts of an interrupted run did not fail. */
	if (run->interrupted)
		return;
	run->ended++;
	run->options->ended(run->options->user, child->host, &child->result);
}

/*
 * True if a daemon of ssh dropped the connection before it asked for anything, as one that many connections reach at the
 * same time does (MaxStartups).
 */
static bool was_dropped(const struct run_result *result)
{
	return result->end == RUN_EXITED && result->status == 255 && !result->length &&
	       strstr(result->errors, "exchange_identification");
}

/* Queues a host once more, if this was its first start. */
static bool start_again(struct run *run, const struct child *child)
{
	if (run->interrupted || child->again || !was_dropped(&child->result))
		return false;
	run->states[child->host] = RUN_WAITING;
	run->queue[run->queued++] = child->host;
	/* The hosts of one moment do not come at one moment again. */
	run->again = cli_now() + AGAIN_MIN + child->host * AGAIN_STEP % AGAIN_SPREAD;
	return true;
}

static struct child *find_free_child(struct run *run)
{
	for (size_t i = 0; i < run->options->parallel; i++)
		if (!run->children[i].pid)
			return &run->children[i];
	return NULL;
}

/* Starts the next host.  Returns false if it has to wait for the end of others. */
static bool start_next_host(struct run *run)
{
	const struct run_options *options = run->options;
	struct child *child = find_free_child(run);
	bool again = run->next >= options->count;
	char **words;
	size_t host;
	int rc;

	if (!child || run->next == run->queued || run->interrupted || (again && cli_now() < run->again))
		return false;
	host = run->queue[run->next];
	words = launch_make_words(options->launch, options->hosts[host],
				  options->command_of ? options->command_of(options->user, host) : options->command);
	rc = words ? child_start(child, host, words, options) : -ENOMEM;
	launch_free_words(words);
	/* Descriptors, processes or memory may be there later. */
	if (rc < 0 && run->running)
		return false;
	if (rc < 0) {
		*child = (struct child){ .host = host, .result = { .end = RUN_NO_START, .status = rc } };
		child->result.begun = child->result.ended = cli_now();
		tell_end(run, child);
	} else {
		child->again = again;
		run->states[host] = RUN_RUNNING;
		run->running++;
	}
	run->next++;
	return true;
}

static void end_child(struct run *run, struct child *child)
{
	run->running--;
	if (!start_again(run, child))
		tell_end(run, child);
	child_release(child);
	child->pid = 0;
}

/* Ends the children that exited, and takes the next step with those that are late. */
static void settle_children(struct run *run)
{
	uint64_t now = cli_now();

	for (size_t i = 0; i < run->options->parallel; i++) {
		struct child *child = &run->children[i];

		if (!child->pid)
			continue;
		if ((run->exited && child_reap(child)) || (now >= child->deadline && child_kill(child, RUN_TIMEOUT)))
			end_child(run, child);
	}
	run->exited = false;
}

static void interrupt_children(struct run *run)
{
	run->interrupted = true;
	for (size_t i = 0; i < run->options->parallel; i++)
		if (run->children[i].pid && !run->children[i].kills)
			child_kill(&run->children[i], RUN_TIMEOUT);
}

/* Returns the milliseconds until the next deadline or progress. */
static int time_to_wait(const struct run *run)
{
	uint64_t now = cli_now(), wait = PROGRESS_INTERVAL;

	for (size_t i = 0; i < run->options->parallel; i++) {
		const struct child *child = &run->children[i];

		if (child->pid)
			wait = CLI_MIN(wait, child->deadline > now ? child->deadline - now : 0);
	}
	return (int)((wait + CLI_NS_PER_MS - 1) / CLI_NS_PER_MS);
}

/* Lists the descriptors to wait for.  Returns their number: poll(2) takes no more than a process may have open. */
static size_t list_descriptors(struct run *run)
{
	struct pollfd *ready = run->ready;
	size_t count = 0;

	ready[count++] = (struct pollfd){ .fd = run->exits, .events = POLLIN };
	/* Pending signals stay pending: they end the command later. */
	ready[count++] = (struct pollfd){ .fd = run->interrupted ? -1 : run->interrupts, .events = POLLIN };
	for (size_t i = 0; i < run->options->parallel; i++) {
		const struct child *child = &run->children[i];

		if (child->pid && child->output >= 0)
			ready[count++] = (struct pollfd){ .fd = child->output, .events = POLLIN };
		if (child->pid && child->errors >= 0)
			ready[count++] = (struct pollfd){ .fd = child->errors, .events = POLLIN };
	}
	return count;
}

static void wait_for_children(struct run *run)
{
	size_t count = list_descriptors(run), next = 2;
	struct pollfd *ready = run->ready;
	struct signalfd_siginfo info;

	if (poll(ready, count, time_to_wait(run)) <= 0)
		return;
	/* A signal can stand for several children. */
	while (ready[0].revents && read(run->exits, &info, sizeof(info)) > 0)
		run->exited = true;
	if (ready[1].revents)
		interrupt_children(run);
	for (size_t i = 0; i < run->options->parallel; i++) {
		struct child *child = &run->children[i];
		bool output = child->pid && child->output >= 0, errors = child->pid && child->errors >= 0;
		bool has_output = output && ready[next].revents, has_errors = errors && ready[next + output].revents;

		next += (size_t)output + errors;
		if (has_output || has_errors)
			child_read(child);
	}
}

static void run_all_hosts(struct run *run)
{
	while (run->running || (run->next < run->queued && !run->interrupted)) {
		while (start_next_host(run))
			;
		wait_for_children(run);
		settle_children(run);
		run->options->progress(run->options->user, run->states);
	}
}

int run_on_hosts(const struct run_options *options, struct pl_error *error)
{
	struct run run = { .options = options, .exits = -1, .interrupts = -1 };
	int rc;

	run.children = calloc(options->parallel, sizeof(*run.children));
	run.states = calloc(options->count + 1, sizeof(*run.states));
	run.ready = calloc(2 + 2 * options->parallel, sizeof(*run.ready));
	run.queue = calloc(2 * options->count + 1, sizeof(*run.queue));
	if (!run.children || !run.states || !run.ready || !run.queue) {
		rc = cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	} else {
		for (; run.queued < options->count; run.queued++)
			run.queue[run.queued] = run.queued;
		rc = watch_signals(&run, error);
		if (rc == 0)
			run_all_hosts(&run);
		if (rc == 0 && run.interrupted)
			rc = cli_fail(error, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted after %zu of %zu hosts",
				      run.ended, options->count);
	}
	if (run.exits >= 0)
		close(run.exits);
	if (run.interrupts >= 0)
		close(run.interrupts);
	free(run.children);
	free(run.states);
	free(run.ready);
	free(run.queue);
	return rc;
}
