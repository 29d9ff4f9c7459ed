/* SPDX-License-Identifier: BSD-2-Clause */
/* Workers of the local fabric that the kernel refuses to watch. This program's epoll_ctl(2) replaces the C library's. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>

#include "support/cases.h"
#include "support/local.h"

#define LENGTH (32u << 20)

/* Descriptors that may still be added to an epoll set; negative: any number. */
static atomic_int additions_left = -1;
static atomic_uint added, removed;

/* The function that this program's replaces; ThreadSanitizer's tells it what threads exchange through the set. */
static int call_next(int set, int operation, int fd, struct epoll_event *event)
{
	void *found = dlsym(RTLD_NEXT, "epoll_ctl");
	int (*next)(int, int, int, struct epoll_event *);

	memcpy(&next, &found, sizeof(next));
	return next(set, operation, fd, event);
}

int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	if (operation == EPOLL_CTL_ADD) {
		if (atomic_load(&additions_left) == 0) {
			errno = ENOSPC;
			return -1;
		}
		if (atomic_load(&additions_left) > 0)
			atomic_fetch_sub(&additions_left, 1);
		atomic_fetch_add(&added, 1);
	}
	if (operation == EPOLL_CTL_DEL)
		atomic_fetch_add(&removed, 1);
	return call_next(set, operation, fd, event);
}

/* The first of two workers stays, as only its engine may remove it. The next large operation adds the other one. */
static void second_worker_is_refused(void *setting)
{
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
	unsigned before;

	environment_open(&environment, setting);
	buffer_open(&near, environment.near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, LENGTH, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_number(write_some(&environment, remote, near.region, 100, NULL), 0);
	before = atomic_load(&removed);
	atomic_store(&added, 0);
	atomic_store(&additions_left, 1);
	check_number(write_some(&environment, remote, near.region, LENGTH, NULL), -ENOSPC);
	check_number(atomic_load(&added), 1);
	check_number(atomic_load(&removed), before);
	atomic_store(&additions_left, -1);
	check_number(write_some(&environment, remote, near.region, LENGTH, NULL), 0);
	check_number(atomic_load(&added), 2);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "second-worker-is-refused", second_worker_is_refused, &local_threads, 60 },
};

int main(void)
{
	return cases_run("local-workers", cases, sizeof(cases) / sizeof(cases[0]));
}
