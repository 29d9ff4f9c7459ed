/* SPDX-License-Identifier: BSD-2-Clause */
/* The limit of a measurement for a silent peer while it imports over many connections, one after another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/perf/connections.h"
#include "bench/perf/progress.h"
#include "support/environment.h"

/* The imports took longer than the limit for a silent peer. A wait that begins now has the whole limit. */
static void test_wait_behind_imports(void **state)
{
	static const struct setting threads = { .name = "threads", .fabric = "tcp", .host = "127.0.0.1", .lanes = 1 };
	struct scenario_environment environment;
	struct bench_endpoint *ep = calloc(1, sizeof(*ep));
	struct bench_peer peer = { .control = NULL };
	struct pl_region *region;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	(void)state;
	assert_non_null(ep);
	environment_open(&environment, &threads);
	assert_int_equal(pl_region_allocate(environment.far, 4096, PL_ACCESS_WRITE, &region, &error), 0);
	assert_int_equal(pl_region_share(region, NULL, token, &length, &error), 0);
	ep->context = environment.near;
	ep->peer = ep->peers = &peer;
	ep->peer->control = environment.near_peer;
	ep->timeout = AMPLE_TIME;
	ep->plan.connections = 1;
	ep->last_event = 1;
	assert_int_equal(bench_connections_import(ep, token, length), 0);
	/* The next round looks at the limit. */
	do
		assert_int_equal(bench_spin(ep, ep->timeout), 0);
	while (ep->idle_rounds < 1u << 12);
	bench_connections_release(ep);
	pl_region_deregister(region);
	environment_close(&environment);
	free(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wait_behind_imports),
	};

	return cmocka_run_group_tests_name("bench imports", tests, NULL, NULL);
}
