/* SPDX-License-Identifier: BSD-2-Clause */
/* Windows of a connection that ends: those that are being invalidated end with it, and other requests have none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

static const struct ibv_mw *ended;
static unsigned ends;

static int dealloc_window(struct ibv_mw *mw)
{
	ended = mw;
	ends++;
	return 0;
}

static void test_posted_requests(void **state)
{
	struct ibv_context context = { .ops = { .dealloc_mw = dealloc_window } };
	struct ibv_mw mw = { .context = &context };
	struct verbs_mw bound = { .mw = &mw }, unbound = { .mw = NULL };
	struct verbs_work posted[] = { { .kind = VERBS_WRITE },
				       { .kind = VERBS_INVALIDATE, .window = &unbound },
				       { .kind = VERBS_INVALIDATE, .window = &bound },
				       { .kind = VERBS_FRAME } };
	struct pl_context owner = { .closing = false };
	struct verbs_state fabric = { .context = &owner };
	struct verbs_device device = { .state = &fabric };
	struct verbs_rail rail = { .device = &device, .window_count = 3 };

	(void)state;
	pl_list_init(&rail.windows);
	pl_list_init(&rail.posted);
	for (size_t i = 0; i < PL_ARRAY_SIZE(posted); i++)
		pl_list_append(&rail.posted, &posted[i].link);
	verbs_mw_forget(&rail);
	assert_int_equal(ends, 1);
	assert_ptr_equal(ended, &mw);
	assert_null(bound.mw);
	assert_int_equal(rail.window_count, 0);
	/* The end of the request finds no window. */
	verbs_mw_forget(&rail);
	assert_int_equal(ends, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_posted_requests),
	};

	return cmocka_run_group_tests_name("windows of an ended connection", tests, NULL, NULL);
}
