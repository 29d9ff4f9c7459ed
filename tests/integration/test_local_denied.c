/* SPDX-License-Identifier: BSD-2-Clause */
/* The local fabric where the kernel refuses copies between processes, as containers and kernel.yama.ptrace_scope do. */
#include "support/cases.h"
#include "support/local.h"
#include "support/system_call.h"

#define SIZE ((size_t)3 << 20)
#define DENIED "the kernel does not let this process copy"

/* Writes and reads back `length` bytes. */
static void move_both_ways(struct scenario_environment *environment, struct pl_remote *remote, struct buffer *near,
			   struct buffer *far, size_t length)
{
	struct pl_transfer transfer = { remote, 0, near->region, 0, length };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	pattern_fill(near->bytes, length, length, 0);
	check_number(write_some(environment, remote, near->region, length, &receipt), 0);
	check(strstr(receipt.reason, DENIED));
	pattern_check(far->bytes, length, length, 0);
	memset(near->bytes, 0, length);
	check_ok(pl_read(environment->near_peer, &transfer, NULL, &operation, &error), &error);
	complete(environment, operation, &receipt);
	pattern_check(near->bytes, length, length, 0);
}

static void check_denied(struct scenario_environment *environment, struct pl_remote *remote, struct buffer *near,
			 struct buffer *far)
{
	check_reason(environment, remote, near->region, DENIED);
	move_both_ways(environment, remote, near, far, 8);
	move_both_ways(environment, remote, near, far, 5000);
	move_both_ways(environment, remote, near, far, SIZE);
}

/* The library asks the kernel when it imports a region, and uses sockets from the first byte. */
static void denied_before_import(void *argument)
{
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;

	refuse_process_vm();
	environment_open(&environment, argument);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_denied(&environment, remote, &near, &far);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* The kernel begins to refuse while a region is in use. Its next import uses sockets, as the error's hint says. */
static void denied_after_import(void *argument)
{
	struct scenario_environment environment;
	struct pl_completion receipt;
	struct buffer near, far;
	struct pl_remote *remote;

	environment_open(&environment, argument);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_reason(&environment, remote, near.region, "process_vm_writev), as the library did not allocate");
	refuse_process_vm();
	check_number(write_some(&environment, remote, near.region, SIZE, &receipt), -EPERM);
	pl_remote_release(remote);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_denied(&environment, remote, &near, &far);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "denied before an import", denied_before_import, &local_threads, 30 },
		{ "denied before an import, manual", denied_before_import, &local_manual, 30 },
		{ "denied after an import", denied_after_import, &local_threads, 30 },
		{ "denied after an import, manual", denied_after_import, &local_manual, 30 },
	};

	return cases_run("local-denied", cases, sizeof(cases) / sizeof(cases[0]));
}
