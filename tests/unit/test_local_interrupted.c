/* SPDX-License-Identifier: BSD-2-Clause */
/* Signals during system calls of the local fabric. This program's poll(2), fallocate(2) and madvise(2) replace the C library's. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/local.h"

#define LENGTH (2u << 20)
#define POPULATE_WRITE 23

/* Number of calls that a signal is still to interrupt. */
static atomic_int poll_interrupts, fallocate_interrupts;
/* True if the kernel is older than Linux 5.14, which cannot allocate pages through a mapping. */
static atomic_bool old_kernel;

static bool interrupt_call(atomic_int *interrupts)
{
	if (atomic_load(interrupts) == 0)
		return false;
	atomic_fetch_sub(interrupts, 1);
	errno = EINTR;
	return true;
}

int poll(struct pollfd *fds, nfds_t count, int milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000L };

	/* A look without waiting, at a pidfd. */
	if (count == 1 && milliseconds == 0 && interrupt_call(&poll_interrupts))
		return -1;
	return ppoll(fds, count, milliseconds < 0 ? NULL : &time, NULL);
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
	return interrupt_call(&fallocate_interrupts) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, length);
}

int madvise(void *address, size_t length, int advice)
{
	if (atomic_load(&old_kernel) && advice == POPULATE_WRITE) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, address, length, advice);
}

/* Writes to memory of the program, which the kernel copies between the processes. */
static void process_is_looked_at(void *setting)
{
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;

	environment_open(&environment, setting);
	buffer_open(&near, environment.near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, LENGTH, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_reason(&environment, remote, near.region, "process_vm");
	atomic_store(&poll_interrupts, 1);
	check_number(write_some(&environment, remote, near.region, LENGTH, NULL), 0);
	check_number(atomic_load(&poll_interrupts), 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* A key whose gate needs a page. Without the gate, its transfers take the sockets. */
static void gate_gets_its_page(void *setting)
{
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;

	atomic_store(&old_kernel, true);
	environment_open(&environment, setting);
	buffer_open(&near, environment.near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, LENGTH, PL_ACCESS_ALL);
	atomic_store(&fallocate_interrupts, 1);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_number(atomic_load(&fallocate_interrupts), 0);
	check_reason(&environment, remote, near.region, "process_vm");
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "process-is-looked-at", process_is_looked_at, &local_threads, 60 },
	{ "process-is-looked-at-manual", process_is_looked_at, &local_manual, 60 },
	{ "gate-gets-its-page", gate_gets_its_page, &local_threads, 60 },
};

int main(void)
{
	return cases_run("local-interrupted", cases, sizeof(cases) / sizeof(cases[0]));
}
