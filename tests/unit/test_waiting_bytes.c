/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An endpoint counts the bytes that wait for its lanes. The count decides how many lanes work, so operations that are not in it must
 * not change it. The far end has manual progress and does not read: what waits, stays.
 */
#include "core/work_list.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH ((size_t)32 << 20)
#define READS 8

static const struct setting setting = {
	.name = "waiting-bytes", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static struct pl_operation *read_page(struct pair *pair, unsigned page)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(pair->environment.near_peer,
			 &(struct pl_transfer){ pair->remote, 0, pair->near.region, (uint64_t)page << 12, 4096 }, NULL,
			 &operation, &error),
		 &error);
	return operation;
}

static void small_reads_are_not_counted(void *unused)
{
	struct pl_operation *large, *small[READS];
	const struct tcp_endpoint *endpoint;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, LENGTH);
	endpoint = tcp_endpoint_of(pair.environment.near_peer->endpoint);
	check_ok(pl_write(pair.environment.near_peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, LENGTH },
			  NULL, &large, &error),
		 &error);
	/* The lane takes further chunks beside the reads. */
	for (unsigned i = 0; i < READS; i++)
		small[i] = read_page(&pair, i);
	check(endpoint->waiting);
	check_number(endpoint->waiting, LENGTH - pl_work_item_of(large)->done);
	complete(&pair.environment, large, NULL);
	check_number(endpoint->waiting, 0);
	for (unsigned i = 0; i < READS; i++)
		complete(&pair.environment, small[i], NULL);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "small-reads-are-not-counted", small_reads_are_not_counted, NULL, 60 },
};

int main(void)
{
	return cases_run("waiting-bytes", cases, PL_ARRAY_SIZE(cases));
}
