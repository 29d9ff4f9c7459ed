/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks for devices, and calls that open one, which a test lets wait, as a driver does that resets a device. */
#include <string.h>

#include "card/card.h"

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held;
	unsigned count;
	unsigned opens; /* devices that are not opened, a bit for each */
	const char *function; /* function whose calls do not return; NULL: none */
	const char *failing;  /* function whose calls fail; NULL: none */
} looks = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void card_await_look(void)
{
	pthread_mutex_lock(&looks.lock);
	looks.count++;
	while (looks.held)
		pthread_cond_wait(&looks.changed, &looks.lock);
	looks.count--;
	pthread_mutex_unlock(&looks.lock);
}

void card_await_open(unsigned device)
{
	pthread_mutex_lock(&looks.lock);
	while (looks.opens & 1u << device)
		pthread_cond_wait(&looks.changed, &looks.lock);
	pthread_mutex_unlock(&looks.lock);
}

void card_await_call(const char *function)
{
	pthread_mutex_lock(&looks.lock);
	while (looks.function && !strcmp(looks.function, function))
		pthread_cond_wait(&looks.changed, &looks.lock);
	pthread_mutex_unlock(&looks.lock);
}

bool card_call_fails(const char *function)
{
	bool fails;

	pthread_mutex_lock(&looks.lock);
	fails = looks.failing && !strcmp(looks.failing, function);
	pthread_mutex_unlock(&looks.lock);
	return fails;
}

void standin_card_fail_calls(const char *function)
{
	pthread_mutex_lock(&looks.lock);
	looks.failing = function;
	pthread_mutex_unlock(&looks.lock);
}

void standin_card_hold_calls(const char *function)
{
	pthread_mutex_lock(&looks.lock);
	looks.function = function;
	pthread_cond_broadcast(&looks.changed);
	pthread_mutex_unlock(&looks.lock);
}

void standin_card_hold_opens(unsigned devices)
{
	pthread_mutex_lock(&looks.lock);
	looks.opens = devices;
	pthread_cond_broadcast(&looks.changed);
	pthread_mutex_unlock(&looks.lock);
}

void standin_card_hold_looks(bool held)
{
	pthread_mutex_lock(&looks.lock);
	looks.held = held;
	pthread_cond_broadcast(&looks.changed);
	pthread_mutex_unlock(&looks.lock);
}

unsigned standin_card_looks_held(void)
{
	unsigned count;

	pthread_mutex_lock(&looks.lock);
	count = looks.held ? looks.count : 0;
	pthread_mutex_unlock(&looks.lock);
	return count;
}
