/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bench/matrix/rendezvous_internal.h"

#define KEEPALIVE (5 * CLI_NS_PER_S) /* after which a silent host is lost */
#define START_PATIENCE (60 * CLI_NS_PER_S)

static struct rendezvous *rendezvous_of(struct world *world)
{
	return (struct rendezvous *)world;
}

static int rendezvous_gather(struct world *world, const void *own, size_t each, void *all, struct pl_error *error)
{
	size_t length = each * (size_t)world->size;

	return world->rank == 0 ? coordinator_exchange(rendezvous_of(world), own, each, all, all, length, error)
				: member_exchange(rendezvous_of(world), own, each, all, length, error);
}

static int rendezvous_collect(struct world *world, const void *own, size_t each, void *all, struct pl_error *error)
{
	return world->rank == 0 ? coordinator_exchange(rendezvous_of(world), own, each, all, NULL, 0, error)
				: member_exchange(rendezvous_of(world), own, each, NULL, 0, error);
}

static int rendezvous_share(struct world *world, void *bytes, size_t length, struct pl_error *error)
{
	return world->rank == 0 ? coordinator_exchange(rendezvous_of(world), NULL, 0, NULL, bytes, length, error)
				: member_exchange(rendezvous_of(world), NULL, 0, bytes, length, error);
}

static int rendezvous_barrier(struct world *world, struct pl_error *error)
{
	return rendezvous_share(world, NULL, 0, error);
}

static void rendezvous_leave_out(struct world *world, int rank, const char *reason)
{
	coordinator_leave_out(rendezvous_of(world), rank, reason);
}

static void rendezvous_notice(struct world *world)
{
	if (world->rank == 0)
		coordinator_notice(rendezvous_of(world));
	else
		member_notice(rendezvous_of(world));
}

/* Replaces the port of this end of a connection by 0. */
static void rendezvous_local_address(struct world *world, char *address, size_t size)
{
	struct rendezvous *rendezvous = rendezvous_of(world);
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	char *colon;

	if (world->rank == 0)
		snprintf(address, size, "%s", rendezvous->address);
	else if (pl_peer_query(rendezvous->peer, &info) == 0 && !rendezvous_is_loopback(info.local_address))
		snprintf(address, size, "%s", info.local_address);
	else
		*address = '\0';
	colon = strrchr(address, ':');
	if (colon && (size_t)(colon - address) + 3 <= size)
		memcpy(colon, ":0", 3);
	else
		*address = '\0';
}

static void rendezvous_close(struct world *world)
{
	struct rendezvous *rendezvous = rendezvous_of(world);

	if (world->rank == 0 && rendezvous->seats)
		coordinator_close(rendezvous);
	inbox_clear(&rendezvous->inbox);
	pl_close(rendezvous->context);
	free(world->gone);
	free(world->lost);
	free(rendezvous);
}

static const struct world_ops rendezvous_ops = {
	.gather = rendezvous_gather,
	.collect = rendezvous_collect,
	.share = rendezvous_share,
	.barrier = rendezvous_barrier,
	.close = rendezvous_close,
	.leave_out = rendezvous_leave_out,
	.notice = rendezvous_notice,
	.local_address = rendezvous_local_address,
};

/* Opens the context of the messages: sockets, with all data encrypted, as tokens of regions are secrets. */
static int open_rendezvous_context(struct rendezvous *rendezvous, struct pl_error *error)
{
	struct cli_options common = *rendezvous->options->common;

	common.fabric = "tcp";
	common.devices = common.topology = NULL;
	common.lanes = 1;
	common.rails = 0;
	common.timeout = 0;
	common.keepalive = KEEPALIVE;
	common.program = CLI_PROGRAM_MATRIX;
	if (cli_authenticates(&common))
		common.encrypt = PL_ON;
	return cli_open(&rendezvous->context, &common, PL_PROGRESS_THREAD, error);
}

int rendezvous_open(struct world **result, const struct rendezvous_options *options, struct pl_error *error)
{
	struct rendezvous *rendezvous = calloc(1, sizeof(*rendezvous));
	int rc;

	if (!rendezvous)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	rendezvous->options = options;
	rendezvous->world = (struct world){ .ops = &rendezvous_ops,
					    .rank = options->membership->rank,
					    .size = options->membership->size,
					    .patience = START_PATIENCE };
	rendezvous->world.gone = calloc((size_t)rendezvous->world.size, 1);
	rendezvous->world.lost = calloc((size_t)rendezvous->world.size, 1);
	if (!rendezvous->world.gone || !rendezvous->world.lost)
		rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	else if (getrandom(&rendezvous->process, sizeof(rendezvous->process), 0) < 0)
		rc = cli_fail_errno(error, -errno, "getrandom", NULL);
	else
		rc = open_rendezvous_context(rendezvous, error);
	if (rc == 0)
		rc = rendezvous->world.rank == 0 ? coordinator_open(rendezvous, error) : member_open(rendezvous, error);
	if (rc < 0) {
		rendezvous_close(&rendezvous->world);
		return rc;
	}
	*result = &rendezvous->world;
	return 0;
}
