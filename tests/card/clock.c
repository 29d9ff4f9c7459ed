/* SPDX-License-Identifier: BSD-2-Clause */
/* The card's thread, which makes delayed calls under the lock. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "card/wire.h"

#define NS_PER_S 1000000000ull

struct delayed {
	struct delayed *next;
	uint64_t at;
	void (*call)(void *argument);
	void *argument;
};

pthread_mutex_t card_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct delayed *first;
static pthread_t thread;
static bool running, stopping;

uint64_t card_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static void clock_sleep(uint64_t until)
{
	struct timespec time = { (time_t)(until / NS_PER_S), (long)(until % NS_PER_S) };

	pthread_cond_timedwait(&changed, &card_lock, &time);
}

static void *card_thread(void *argument)
{
	pthread_mutex_lock(&card_lock);
	while (!stopping) {
		struct delayed *delayed = first;

		if (!delayed) {
			pthread_cond_wait(&changed, &card_lock);
		} else if (delayed->at > card_now()) {
			clock_sleep(delayed->at);
		} else {
			first = delayed->next;
			delayed->call(delayed->argument);
			free(delayed);
		}
	}
	pthread_mutex_unlock(&card_lock);
	return argument;
}

/* Starts the thread with the first use of the card: the test's process has forked before. */
void card_start(void)
{
	pthread_condattr_t attributes;
	sigset_t all, before;

	pthread_mutex_lock(&card_lock);
	if (!running) {
		pthread_condattr_init(&attributes);
		pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
		pthread_cond_init(&changed, &attributes);
		pthread_condattr_destroy(&attributes);
		sigfillset(&all);
		/* The kernel ends a process at a blocked fault. */
		sigdelset(&all, SIGBUS);
		sigdelset(&all, SIGSEGV);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		running = !pthread_create(&thread, NULL, card_thread, NULL);
		card_wire_start();
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	pthread_mutex_unlock(&card_lock);
	if (!running)
		abort();
}

/* Delayed calls of the same time keep their order. */
void card_after(uint64_t delay, void (*call)(void *argument), void *argument)
{
	struct delayed *delayed = malloc(sizeof(*delayed)), **at = &first;

	if (!delayed)
		abort();
	*delayed = (struct delayed){ .at = card_now() + delay, .call = call, .argument = argument };
	while (*at && (*at)->at <= delayed->at)
		at = &(*at)->next;
	delayed->next = *at;
	*at = delayed;
	pthread_cond_signal(&changed);
}

void card_forget(const void *argument)
{
	struct delayed **at = &first;

	while (*at) {
		struct delayed *delayed = *at;

		if (delayed->argument != argument) {
			at = &delayed->next;
			continue;
		}
		*at = delayed->next;
		free(delayed);
	}
}

static void clock_stop(void) __attribute__((destructor(101)));

/* Delayed calls that are left stay in the list, with their arguments. */
static void clock_stop(void)
{
	bool was;

	pthread_mutex_lock(&card_lock);
	was = running;
	stopping = true;
	if (was)
		pthread_cond_signal(&changed);
	pthread_mutex_unlock(&card_lock);
	if (was)
		pthread_join(thread, NULL);
}
