/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The end of a subscription over the local fabric waits once for the reads of both keys, and not for one key after the other. This
 * program's nanosleep(2) and sched_yield(2), which the waiting thread calls, replace the C library's.
 */
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "fabric/local/local.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/local.h"

/* Length of the owner's pauses while it waits for holders. */
#define PAUSE_NS (50 * 1000)

/* Gates of a subscription's keys: the test holds the first one until the owner waits. */
static struct local_gate *_Atomic control, *_Atomic payload;
static atomic_uint waits, open_in_wait;

int nanosleep(const struct timespec *time, struct timespec *left)
{
	struct local_gate *held = atomic_load(&control);

	if (held && !time->tv_sec && time->tv_nsec == PAUSE_NS && !atomic_load(&held->open) &&
	    atomic_exchange(&control, NULL)) {
		atomic_fetch_add(&waits, 1);
		atomic_store(&open_in_wait, atomic_load(&atomic_load(&payload)->open));
		local_gate_release(held);
	}
	return (int)syscall(SYS_nanosleep, time, left);
}

/*
 * The owner yields 1,000 times before it pauses. On a loaded machine, each yield takes until all other processes have run, and the
 * owner's wait of at most 1 s would end before its first pause.
 */
int sched_yield(void)
{
	struct local_gate *held = atomic_load(&control);

	return held && !atomic_load(&held->open) ? 0 : (int)syscall(SYS_sched_yield);
}

static struct local_gate *gate_of(const struct pl_remote *remote)
{
	const struct local_access *access = remote->fabric_data;

	return access->gate;
}

static void both_keys_are_shut(void *setting)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct scenario_environment environment;
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	const struct local_access *access;
	struct pl_error error;

	environment_open(&environment, setting);
	options.slot_bytes = 64;
	check_ok(pl_publisher_open(environment.far, "cam0", &options, &publisher, &error), &error);
	check_ok(pl_subscriber_open(environment.near_peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	access = subscriber->control->fabric_data;
	check(local_gate_hold(access->gate, access->number));
	check(atomic_load(&gate_of(subscriber->payload)->open));
	atomic_store(&payload, gate_of(subscriber->payload));
	atomic_store(&control, gate_of(subscriber->control));
	pl_publisher_close(publisher);
	check_number(atomic_load(&waits), 1);
	check_number(atomic_load(&open_in_wait), 0);
	pl_subscriber_close(subscriber);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "both-keys-are-shut", both_keys_are_shut, &local_threads, 60 },
};

int main(void)
{
	return cases_run("stream-shut", cases, sizeof(cases) / sizeof(cases[0]));
}
