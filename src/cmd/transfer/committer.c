/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/committer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "cmd/common/cli.h"

/* Moves a commit to those that are done.  The lock is held. */
static void finish(struct committer *committer, struct commit *commit)
{
	uint64_t one = 1;

	commit->next = committer->done;
	committer->done = commit;
	/* A full counter is readable too. */
	if (write(committer->event_fd, &one, sizeof(one)) < 0)
		return;
}

static void *commit_thread(void *argument)
{
	struct committer *committer = argument;
	struct commit *commit;

	pthread_mutex_lock(&committer->lock);
	for (;;) {
		commit = committer->waiting;
		if (!commit && committer->ending)
			break;
		if (!commit) {
			pthread_cond_wait(&committer->changed, &committer->lock);
			continue;
		}
		committer->waiting = commit->next;
		if (!committer->waiting)
			committer->waiting_end = &committer->waiting;
		committer->running++;
		pthread_mutex_unlock(&committer->lock);
		commit->perform(commit);
		pthread_mutex_lock(&committer->lock);
		committer->running--;
		finish(committer, commit);
	}
	pthread_mutex_unlock(&committer->lock);
	return NULL;
}

int committer_open(struct committer *committer, struct pl_error *error)
{
	*committer = (struct committer){ .event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	committer->waiting_end = &committer->waiting;
	pthread_mutex_init(&committer->lock, NULL);
	pthread_cond_init(&committer->changed, NULL);
	return committer->event_fd < 0 ? cli_fail_errno(error, -errno, "eventfd", NULL) : 0;
}

/* True if a thread takes the commit at once, or a new one was started.  The lock is held. */
static bool find_thread(struct committer *committer)
{
	if (committer->running < committer->thread_count && !committer->waiting)
		return true;
	if (committer->thread_count < COMMITTER_THREADS &&
	    pthread_create(&committer->threads[committer->thread_count], NULL, commit_thread, committer) == 0)
		committer->thread_count++;
	return committer->thread_count;
}

void committer_submit(struct committer *committer, struct commit *commit)
{
	commit->next = NULL;
	pthread_mutex_lock(&committer->lock);
	if (find_thread(committer)) {
		*committer->waiting_end = commit;
		committer->waiting_end = &commit->next;
		pthread_cond_signal(&committer->changed);
	} else {
		/* Without threads the server waits itself. */
		commit->perform(commit);
		finish(committer, commit);
	}
	pthread_mutex_unlock(&committer->lock);
}

struct commit *committer_take_done(struct committer *committer)
{
	struct commit *done;
	uint64_t count;

	pthread_mutex_lock(&committer->lock);
	done = committer->done;
	committer->done = NULL;
	if (done && committer->event_fd >= 0 && read(committer->event_fd, &count, sizeof(count)) < 0)
		count = 0;
	pthread_mutex_unlock(&committer->lock);
	return done;
}

void committer_close(struct committer *committer)
{
	if (committer->event_fd < 0)
		return;
	pthread_mutex_lock(&committer->lock);
	committer->ending = true;
	pthread_cond_broadcast(&committer->changed);
	pthread_mutex_unlock(&committer->lock);
	for (unsigned i = 0; i < committer->thread_count; i++)
		pthread_join(committer->threads[i], NULL);
	committer->thread_count = 0;
	if (committer->event_fd >= 0)
		close(committer->event_fd);
	committer->event_fd = -1;
}
