/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small complete session in which allocation n fails, for every n until none fails.  Each session ends with an
 * out-of-memory error, leaves nothing allocated or open, and does not hang.
 */
#include <stdlib.h>

#include "support/cases.h"
#include "support/environment.h"

#define SIZE (200 << 10)
#define MOST 5000
#define CONNECT_TIMEOUT (3000 * slowness() * MS)

struct allocations {
	atomic_ulong count;
	atomic_long live;
	unsigned long failing; /* index of the first allocation that fails */
	unsigned long run;     /* number of allocations after it that fail too */
};

static bool fails(struct allocations *allocations)
{
	unsigned long number = atomic_fetch_add(&allocations->count, 1) + 1;

	return number >= allocations->failing && number - allocations->failing <= allocations->run;
}

static void *allocate(size_t size, void *user)
{
	struct allocations *allocations = user;
	void *pointer = fails(allocations) ? NULL : malloc(size);

	if (pointer)
		atomic_fetch_add(&allocations->live, 1);
	return pointer;
}

static void *reallocate(void *pointer, size_t size, void *user)
{
	struct allocations *allocations = user;
	void *moved = fails(allocations) ? NULL : realloc(pointer, size);

	if (moved && !pointer)
		atomic_fetch_add(&allocations->live, 1);
	return moved;
}

static void release(void *pointer, void *user)
{
	struct allocations *allocations = user;

	if (pointer)
		atomic_fetch_sub(&allocations->live, 1);
	free(pointer);
}

struct plan {
	struct setting setting;
	bool near_fails, far_fails;
	unsigned long run;
};

struct session {
	struct scenario_environment environment;
	struct pl_region *near, *far;
	uint8_t *near_bytes, *far_bytes;
	struct pl_remote *remote;
	struct pl_error error;
};

/* Opens the contexts.  Each step returns 0, or the negative errno of its first failing call. */
static int step_open(struct session *session, const struct plan *plan, const struct pl_allocator *allocator)
{
	struct scenario_environment *environment = &session->environment;
	struct pl_options options = setting_options(&plan->setting);
	int status;

	/* No session may wait so long: a timeout is a failure of the test. */
	options.operation_timeout = 2 * AMPLE_TIME;
	options.connect_timeout = CONNECT_TIMEOUT;
	options.workers = 1;
	environment->setting = &plan->setting;
	options.allocator = plan->near_fails ? allocator : NULL;
	status = pl_open(&environment->near, &options, &session->error);
	if (status)
		return status;
	drive(environment, environment->near);
	options.allocator = plan->far_fails ? allocator : NULL;
	status = pl_open(&environment->far, &options, &session->error);
	if (!status)
		drive(environment, environment->far);
	return status;
}

static int finish(struct session *session, int posted, struct pl_operation *operation, struct pl_completion *receipt)
{
	return posted ? posted : await(&session->environment, operation, receipt, &session->error);
}

static int step_connect(struct session *session)
{
	struct scenario_environment *environment = &session->environment;
	struct pl_operation *connecting = NULL, *accepting = NULL;
	struct pl_completion receipt;
	int status;

	status = pl_listen(environment->far, "127.0.0.1:0", &environment->listener, &session->error);
	if (status)
		return status;
	pl_listener_address(environment->listener, environment->address, sizeof(environment->address));
	status = pl_accept_start(environment->listener, 0, &accepting, &session->error);
	if (status)
		return status;
	status = pl_connect_start(environment->near, environment->address, 0, 0, &connecting, &session->error);
	status = finish(session, status, connecting, &receipt);
	if (!status)
		environment->near_peer = receipt.peer;
	if (status)
		pl_cancel(accepting);
	else
		settle(environment, 1);
	/* If only this end has completed the connection, the other end closes it after its time limit. */
	for (uint64_t until = clock_now() + CONNECT_TIMEOUT; !status && clock_now() < until;) {
		status = pl_test(accepting, &receipt, &session->error);
		if (status != -EINPROGRESS) {
			environment->far_peer = status ? NULL : receipt.peer;
			return status;
		}
		status = 0;
		settle(environment, 1);
	}
	return status ? status : -ECANCELED;
}

static int step_share(struct session *session)
{
	struct scenario_environment *environment = &session->environment;
	struct pl_operation *operation = NULL;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_completion receipt;
	int status;

	status = pl_region_allocate(environment->near, SIZE, PL_ACCESS_ALL, &session->near, &session->error);
	if (status)
		return status;
	status = pl_region_register(environment->far, session->far_bytes, SIZE, PL_ACCESS_ALL, &session->far,
				    &session->error);
	if (status)
		return status;
	session->near_bytes = pl_region_address(session->near);
	status = pl_region_share(session->far, NULL, token, &length, &session->error);
	if (status)
		return status;
	status = pl_remote_import_start(environment->near_peer, token, length, 0, &operation, &session->error);
	status = finish(session, status, operation, &receipt);
	session->remote = status ? NULL : receipt.remote;
	return status;
}

static int step_transfer(struct session *session)
{
	struct pl_peer *peer = session->environment.near_peer;
	struct pl_transfer halves[2] = {
		{ session->remote, 0, session->near, 0, SIZE / 2 },
		{ session->remote, SIZE / 2, session->near, SIZE / 2, SIZE / 2 },
	};
	struct pl_operation *operation = NULL;
	struct pl_error *error = &session->error;
	int status;

	pattern_fill(session->near_bytes, SIZE, 1, 0);
	status = pl_writev(peer, halves, 2, NULL, &operation, error);
	status = finish(session, status, operation, NULL);
	if (status)
		return status;
	pattern_check(session->far_bytes, SIZE, 1, 0);
	memset(session->near_bytes, POISON, SIZE);
	status = pl_read(peer, &(struct pl_transfer){ session->remote, 0, session->near, 0, SIZE }, NULL, &operation,
			 error);
	status = finish(session, status, operation, NULL);
	if (status)
		return status;
	pattern_check(session->near_bytes, SIZE, 1, 0);
	status = pl_fetch_add(peer, &(struct pl_atomic){ .remote = session->remote, .remote_offset = 0, .operand = 1 },
			      NULL, &operation, error);
	status = finish(session, status, operation, NULL);
	if (status)
		return status;
	status = pl_compare_swap(
		peer, &(struct pl_atomic){ .remote = session->remote, .remote_offset = 0, .operand = 1, .compare = 0 },
		NULL, &operation, error);
	return finish(session, status, operation, NULL);
}

/* Waits for a send and its receive.  The first failure is the result, and cancels the other operation. */
static int finish_both(struct session *session, struct pl_operation *operations[2])
{
	struct scenario_environment *environment = &session->environment;
	bool done[2] = { false, false };
	int first = 0;

	while (!done[0] || !done[1]) {
		for (unsigned i = 0; i < 2; i++) {
			struct pl_error error;
			int status = done[i] ? -EINPROGRESS : pl_test(operations[i], NULL, &error);

			if (status == -EINPROGRESS)
				continue;
			done[i] = true;
			if (!status || first)
				continue;
			first = status;
			session->error = error;
			if (!done[!i])
				pl_cancel(operations[!i]);
		}
		progress(environment);
	}
	return first;
}

static int step_messages(struct session *session)
{
	struct scenario_environment *environment = &session->environment;
	struct pl_operation *operation = NULL, *pair[2] = { NULL };
	struct pl_error *error = &session->error;
	int status;

	pattern_fill(session->near_bytes, SIZE, 2, 0);
	status = pl_send_copy(environment->near_peer, 1, "small", 5, NULL, &pair[0], error);
	if (status)
		return status;
	settle(environment, 1);
	status = pl_receive(environment->far_peer, 1, UINT64_MAX, &(struct pl_buffer){ session->far, 0, 64 }, NULL,
			    &pair[1], error);
	if (!status)
		status = finish_both(session, pair);
	if (status)
		return status;
	check(!memcmp(session->far_bytes, "small", 5));
	status = pl_send(environment->near_peer, 2, &(struct pl_buffer){ session->near, 0, SIZE }, NULL, &pair[0],
			 error);
	if (status)
		return status;
	status = pl_receive(environment->far_peer, 2, UINT64_MAX, &(struct pl_buffer){ session->far, 0, SIZE }, NULL,
			    &pair[1], error);
	if (!status)
		status = finish_both(session, pair);
	if (status)
		return status;
	pattern_check(session->far_bytes, SIZE, 2, 0);
	status = pl_notify(environment->near_peer, 3, NULL, 0, NULL, &operation, error);
	return finish(session, status, operation, NULL);
}

static int session_run(struct session *session, const struct plan *plan, const struct pl_allocator *allocator)
{
	int status = step_open(session, plan, allocator);

	if (!status)
		status = step_connect(session);
	if (!status)
		status = step_share(session);
	if (!status)
		status = step_transfer(session);
	if (!status)
		status = step_messages(session);
	pl_remote_release(session->remote);
	pl_close(session->environment.near);
	pl_close(session->environment.far);
	return status;
}

/* True if a status reports missing memory or a closed connection; an end must not stay silent. */
static bool acceptable(int status)
{
	static const int good[] = { 0, -ENOMEM, -EBUSY, -EPROTO, -ECONNRESET, -ENOTCONN, -ECANCELED };

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		if (status == good[i])
			return true;
	}
	return false;
}

static void check_failure(unsigned long n, const struct session *session, int status)
{
	char text[512] = "";

	if (!acceptable(status)) {
		pl_error_format(&session->error, text, sizeof(text));
		check_failed(__FILE__, __LINE__, "without allocation %lu the session gave %d: %s", n, status, text);
	}
	if (status)
		check_status(status, status, &session->error);
}

static void fail_each(void *argument)
{
	const struct plan *plan = argument;
	uint8_t *far_bytes = malloc(SIZE);
	unsigned descriptors = open_descriptors(), threads = running_threads();
	unsigned failures = 0, told = 0;
	unsigned long n;

	for (n = 1; n < MOST; n++) {
		struct allocations allocations = { .failing = n, .run = plan->run };
		struct pl_allocator allocator = { allocate, reallocate, release, &allocations };
		struct session session = { .far_bytes = far_bytes };
		int status;

		memset(far_bytes, 0, SIZE);
		status = session_run(&session, plan, &allocator);
		check_number(atomic_load(&allocations.live), 0);
		check_number(open_descriptors(), descriptors);
		check_threads(threads);
		check_failure(n, &session, status);
		if (atomic_load(&allocations.count) < n) {
			check_number(status, 0);
			break;
		}
		failures += status != 0;
		told += status == -ENOMEM;
	}
	check(n > 1 && n < MOST);
	check(failures > 0 && told > 0);
	free(far_bytes);
}

#define ONCE 0
#define FOR_GOOD (1ul << 40)

static const struct plan plans[] = {
	{ { "near", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 2, false, false, false, false }, true, false, ONCE },
	{ { "far", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 2, false, false, false, false }, false, true, ONCE },
	{ { "near keyed", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 1, true, true, false, false }, true, false, ONCE },
	{ { "near for good", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, false, false },
	  true,
	  false,
	  FOR_GOOD },
	{ { "near threads", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false },
	  true,
	  false,
	  ONCE },
	{ { "far threads", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false }, false, true, ONCE },
};

int main(void)
{
	const struct test_case cases[] = {
		{ "the n-th at near", fail_each, &plans[0], 20 },
		{ "the n-th at far", fail_each, &plans[1], 40 },
		{ "the n-th at near, keyed", fail_each, &plans[2], 20 },
		{ "from the n-th at near", fail_each, &plans[3], 20 },
		{ "the n-th at near, with threads", fail_each, &plans[4], 20 },
		{ "the n-th at far, with threads", fail_each, &plans[5], 40 },
	};

	return cases_run("allocation failure", cases, sizeof(cases) / sizeof(cases[0]));
}
