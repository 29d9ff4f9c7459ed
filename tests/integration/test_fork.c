/* SPDX-License-Identifier: BSD-2-Clause */
/* Children of fork(2): they cannot end or disturb the connections of their parents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/context.h"
#include "peerlane/peerlane.h"
#include "peerlane/stream.h"

#define LENGTH 4096
/* More than a publisher may push without credits. */
#define FRAMES 100
/* Seconds after which a child that waits for threads of its parent is ended. */
#define CHILD_TIME 60

struct rig {
	struct pl_context *owner, *user;
	struct pl_region *target, *source;
	struct pl_listener *listener;
	struct pl_peer *peer, *accepted;
	struct pl_remote *remote;
	struct pl_remote_set *set;
	struct pl_vector *vector;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame, *loan; /* that the program holds */
	atomic_uint releases;                 /* calls of the program's allocator for `user` that free memory */
	char address[80];
};

static struct pl_error error;

static void *fork_allocate(size_t size, void *user)
{
	(void)user;
	return malloc(size);
}

static void *fork_reallocate(void *pointer, size_t size, void *user)
{
	(void)user;
	return realloc(pointer, size);
}

static void fork_release(void *pointer, void *user)
{
	struct rig *rig = user;

	atomic_fetch_add(&rig->releases, 1);
	free(pointer);
}

static void import_rig_set(struct rig *rig)
{
	uint8_t blob[PL_REGIONS_BLOB_SIZE(1)];
	size_t length = sizeof(blob);

	assert_int_equal(pl_regions_share(&rig->target, 1, NULL, blob, &length, &error), 0);
	assert_int_equal(pl_remote_set_import(rig->peer, blob, length, 0, &rig->set, &error), 0);
}

static void open_rig(struct rig *rig, const char *fabric)
{
	const struct pl_allocator allocator = { fork_allocate, fork_reallocate, fork_release, rig };
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options subscriber = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_options options = PL_OPTIONS_INIT;
	unsigned char token[PL_TOKEN_MAX];
	size_t length = sizeof(token);

	options.fabric = fabric;
	publisher.slot_bytes = 64;
	/* Released frames give credits to the publisher. */
	subscriber.push = true;
	assert_int_equal(pl_open(&rig->owner, &options, &error), 0);
	options.allocator = &allocator;
	assert_int_equal(pl_open(&rig->user, &options, &error), 0);
	assert_int_equal(pl_region_allocate(rig->owner, LENGTH, PL_ACCESS_ALL, &rig->target, &error), 0);
	assert_int_equal(pl_region_allocate(rig->user, LENGTH, PL_ACCESS_LOCAL, &rig->source, &error), 0);
	assert_int_equal(pl_listen(rig->owner, "127.0.0.1:0", &rig->listener, &error), 0);
	pl_listener_address(rig->listener, rig->address, sizeof(rig->address));
	assert_int_equal(pl_connect(rig->user, rig->address, 0, &rig->peer, &error), 0);
	assert_int_equal(pl_accept(rig->listener, UINT64_MAX, &rig->accepted, &error), 0);
	assert_int_equal(pl_region_share(rig->target, NULL, token, &length, &error), 0);
	assert_int_equal(pl_remote_import(rig->peer, token, length, 0, &rig->remote, &error), 0);
	import_rig_set(rig);
	assert_int_equal(pl_vector_prepare(rig->peer, PL_KIND_WRITE,
					   &(struct pl_transfer){ rig->remote, 0, rig->source, 0, 8 }, 1, &rig->vector,
					   &error),
			 0);
	assert_int_equal(pl_publisher_open(rig->owner, "s", &publisher, &rig->publisher, &error), 0);
	assert_int_equal(pl_publisher_loan(rig->publisher, 0, &rig->loan, &error), 0);
	assert_int_equal(pl_subscriber_open(rig->peer, "s", &subscriber, UINT64_MAX, &rig->subscriber, &error), 0);
}

/*
 * Calls, in the child, the functions that end objects, as exit handlers and destructors do. None of them calls the program's
 * allocator, whose locks another thread of the parent may have held.
 */
static int end_all(const struct rig *rig)
{
	const unsigned releases = atomic_load(&rig->releases);

	pl_frame_release(rig->frame);
	pl_frame_discard(rig->loan);
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	pl_vector_free(rig->vector);
	pl_remote_set_release(rig->set);
	pl_remote_release(rig->remote);
	pl_peer_close(rig->peer);
	pl_peer_close(rig->accepted);
	pl_listener_close(rig->listener);
	if (pl_region_deregister(rig->target) || pl_region_deregister(rig->source))
		return 1;
	pl_close(rig->user);
	pl_close(rig->owner);
	return atomic_load(&rig->releases) != releases;
}

static bool failed_as_forked(int rc)
{
	bool forked = rc == -EBADF && !strcmp(error.id, "FORKED") && error.hint[0];

	memset(&error, 0, sizeof(error));
	return forked;
}

/* A child takes no lock of its parent, whose other threads may have held it. */
static bool reconnects_in_vain(const struct rig *rig)
{
	struct pl_peer *peer = rig->peer;
	bool named = pl_peer_reconnect(&peer, NULL, 0, &error) == -EBADF && !strcmp(error.call, "pl_peer_reconnect");

	return named && peer == rig->peer && failed_as_forked(-EBADF);
}

/* Calls, in the child, the functions that would change the epoll sets of the parent. */
static int connect_in_vain(const struct rig *rig)
{
	struct pl_operation *operation;
	struct pl_listener *listener;
	struct pl_peer *peer;

	return !failed_as_forked(pl_connect(rig->user, rig->address, 0, &peer, &error)) ||
	       !failed_as_forked(pl_connect_start(rig->user, rig->address, 0, 0, &operation, &error)) ||
	       !failed_as_forked(pl_listen(rig->owner, "127.0.0.1:0", &listener, &error)) ||
	       !failed_as_forked(pl_listen_socket(rig->owner, dup(0), &listener, &error)) ||
	       !failed_as_forked(pl_accept(rig->listener, UINT64_MAX, &peer, &error)) ||
	       !failed_as_forked(pl_accept_start(rig->listener, 0, &operation, &error)) || !reconnects_in_vain(rig);
}

static void run_child(const struct rig *rig, int (*run)(const struct rig *rig))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		alarm(CHILD_TIME);
		_exit(run(rig));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* Publishes the loan, takes its frame, and borrows the next slot. */
static void publish_and_take(struct rig *rig)
{
	assert_int_equal(pl_frame_publish(rig->loan, NULL, &error), 0);
	assert_int_equal(pl_subscriber_take(rig->subscriber, &rig->frame, 1, UINT64_MAX, &error), 1);
	assert_int_equal(pl_publisher_loan(rig->publisher, 0, &rig->loan, &error), 0);
}

/* Moves bytes by each object of the rig, and connects once more. */
static void expect_whole(struct rig *rig, char byte)
{
	struct pl_operation *operation;
	struct pl_peer *more;

	memset(pl_region_address(rig->source), byte, LENGTH);
	assert_int_equal(pl_write(rig->peer, &(struct pl_transfer){ rig->remote, 0, rig->source, 0, LENGTH }, NULL,
				  &operation, &error),
			 0);
	assert_int_equal(pl_wait(operation, UINT64_MAX, NULL, &error), 0);
	assert_memory_equal(pl_region_address(rig->target), pl_region_address(rig->source), LENGTH);
	assert_int_equal(pl_vector_post(rig->vector, 0, 0, NULL, &operation, &error), 0);
	assert_int_equal(pl_wait(operation, UINT64_MAX, NULL, &error), 0);
	for (unsigned i = 0; i < FRAMES; i++) {
		pl_frame_release(rig->frame);
		publish_and_take(rig);
	}
	assert_int_equal(pl_connect(rig->user, rig->address, 0, &more, &error), 0);
	pl_peer_close(more);
	assert_int_equal(pl_accept(rig->listener, UINT64_MAX, &more, &error), 0);
	pl_peer_close(more);
}

static void run(const char *fabric)
{
	struct rig rig = { 0 };

	open_rig(&rig, fabric);
	expect_whole(&rig, 1);
	run_child(&rig, connect_in_vain);
	expect_whole(&rig, 2);
	run_child(&rig, end_all);
	expect_whole(&rig, 3);
	pl_remote_set_release(rig.set);
	pl_close(rig.user);
	pl_close(rig.owner);
}

static void test_local(void **state)
{
	(void)state;
	run("local");
}

static void test_tcp(void **state)
{
	(void)state;
	run("tcp");
}

/* A look at the mark needs no system call, a child finds it empty, and the parent keeps it until the end. */
static void test_mark(void **state)
{
	struct pl_context context = { 0 };
	unsigned char resident;
	void *page;
	int status;
	pid_t child;

	(void)state;
	pl_context_mark_process(&context);
	page = (void *)context.fork_mark;
	assert_non_null(page);
	assert_false(pl_context_forked(&context));
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(pl_context_forked(&context) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(mincore(page, 1, &resident), 0);
	pl_context_unmark_process(&context);
	assert_int_equal(mincore(page, 1, &resident), -1);
	assert_int_equal(errno, ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_mark),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
