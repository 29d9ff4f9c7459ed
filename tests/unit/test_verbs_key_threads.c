/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that make and forget remote keys of one verbs endpoint, as its engine and the threads of the program do.
 * ThreadSanitizer reports an access to the endpoint's list without the lock of the fabric's state.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/remote.h"
#include "fabric/verbs/verbs.h"

#define ROUNDS 2000

static struct pl_context context;
static struct verbs_state state = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct verbs_endpoint endpoint = { .state = &state, .rail_count = 1 };

static void *make_and_forget(void *argument)
{
	(void)argument;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pl_remote remote = { .context = &context };

		if (!verbs_remote_key_make(&remote, &endpoint))
			return &context;
		remote.forget(&remote);
	}
	return NULL;
}

static void test_make_and_forget(void **unused)
{
	pthread_t threads[2];
	void *failed;

	(void)unused;
	context.allocator = pl_system_allocator;
	pl_list_init(&endpoint.targets);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make_and_forget, NULL), 0);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_true(pl_list_empty(&endpoint.targets));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make_and_forget),
	};

	return cmocka_run_group_tests_name("verbs-key-threads", tests, NULL, NULL);
}
