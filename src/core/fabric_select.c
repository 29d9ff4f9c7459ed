/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Selection of a peer's fabric. The initiator's hello names the fabrics that it could use for this peer. The acceptor
 * selects the first of its own list among them, and names it in its answer.
 */
#include <stdio.h>

#include "core/fabric.h"

/* Time that an acceptor waits for the best fabric if the ends have another one. The initiator's time may be short. */
#define HOLD_MAX (250 * PL_NS_PER_MS)

const struct pl_fabric_ops *const pl_fabrics[] = {
	&pl_local_fabric,
#ifdef PL_HAVE_VERBS
	&pl_verbs_fabric,
#endif
	&pl_tcp_fabric,
	NULL,
};

/* Reasons for tcp: peers with a rate, peers on the same host that use sockets, and peers that cards cannot reach. */
#define DIRECT "tcp: the socket reads and writes the region itself; not "
#define SOCKETS DIRECT "the local fabric, as "
static const char *const refusal_reasons[PL_REFUSAL_END] = {
	[PL_REFUSAL_USER] = SOCKETS "the other process belongs to another user",
	[PL_REFUSAL_NAMESPACE] = SOCKETS "the other process is in another container (process or user namespace)",
	[PL_REFUSAL_SOCKET] = SOCKETS "the other process cannot be reached by a local socket (network namespace)",
	[PL_REFUSAL_DESCRIPTOR] = SOCKETS
	"the accepting process had no free file descriptor for a local socket (ulimit -n, LimitNOFILE=)",
	[PL_REFUSAL_CARDS] = DIRECT "verbs, as the RDMA devices of the two ends did not reach each other",
	[PL_REFUSAL_RATE] = DIRECT "another fabric, as an end limits the rate of the connection",
};

/* Operations are counted by fabric. */
static void set_peer_counts(struct pl_peer *peer)
{
	const struct pl_context *context = peer->context;
	unsigned engine = pl_context_engine_index(context, peer->home), fabric = 0;

	while (context->fabrics[fabric] != peer->ops)
		fabric++;
	peer->fabric = fabric;
	peer->counts = context->counters.engines[engine].counts[fabric];
}

static void set_peer_fabric(struct pl_peer *peer, const struct pl_fabric_ops *fabric)
{
	peer->ops = fabric;
	set_peer_counts(peer);
	peer->reason = fabric->reason;
	if (fabric == &pl_tcp_fabric && (peer->same_host || peer->refusal >= PL_REFUSAL_CARDS) &&
	    refusal_reasons[peer->refusal])
		peer->reason = refusal_reasons[peer->refusal];
}

static int unknown_fabric(const char *name, struct pl_error *error)
{
	char names[64] = "";
	size_t used = 0;

	for (unsigned i = 0; pl_fabrics[i] && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, ", \"%s\"", pl_fabrics[i]->name);
	pl_fail(error, -ENOTSUP, "FABRIC-UNKNOWN", "pl_open", name, NULL, "there is no such fabric");
	if (error)
		snprintf(error->hint, sizeof(error->hint), "use \"auto\", or a fabric that this build has: %s",
			 names + 2);
	return -ENOTSUP;
}

int pl_fabrics_configure(struct pl_context *context, const char *name, struct pl_error *error)
{
	bool all = !name || !strcmp(name, "auto");

	for (unsigned i = 0; pl_fabrics[i]; i++)
		if (all || !strcmp(name, pl_fabrics[i]->name))
			context->fabrics[context->fabric_count++] = pl_fabrics[i];
	return context->fabric_count ? 0 : unknown_fabric(name, error);
}

static int fabric_serves(const struct pl_fabric_ops *fabric, struct pl_peer *peer, struct pl_error *error)
{
	if (!pl_peer_fabric_limits(peer, fabric))
		return pl_fail(error, -ENOTSUP, "FABRIC-NONE", "hello", fabric->name,
			       "let both ends choose the fabric, or take the rate away",
			       "an end limits the rate of the connection, which the %s fabric cannot do", fabric->name);
	return fabric->serves ? fabric->serves(peer, error) : 0;
}

int pl_fabrics_advertise(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error)
{
	const struct pl_context *context = peer->context;
	int rc = 0;

	for (unsigned i = 0; i < context->fabric_count; i++) {
		struct pl_fabric_advert *offer = &hello->fabrics[hello->fabric_count];

		if (context->fabrics[i] == peer->failed)
			continue;
		rc = fabric_serves(context->fabrics[i], peer, error);
		if (rc < 0)
			continue;
		snprintf(offer->name, sizeof(offer->name), "%s", context->fabrics[i]->name);
		if (context->fabrics[i]->invite)
			offer->blob_length = (uint16_t)context->fabrics[i]->invite(peer, offer->blob);
		hello->fabric_count++;
	}
	return hello->fabric_count ? 0 : rc;
}

static const struct pl_fabric_advert *find_advert(const struct pl_hello *hello, const char *name)
{
	for (unsigned i = 0; i < hello->fabric_count; i++)
		if (!strcmp(hello->fabrics[i].name, name))
			return &hello->fabrics[i];
	return NULL;
}

static int fabric_suits(const struct pl_fabric_ops *fabric, struct pl_peer *peer, const struct pl_fabric_advert *offer,
			struct pl_error *error)
{
	int rc = fabric_serves(fabric, peer, error);

	return rc == 0 && !peer->initiator && fabric->suits ? fabric->suits(peer, offer, error) : rc;
}

const struct pl_fabric_advert *pl_fabrics_select(struct pl_peer *peer, const struct pl_hello *hello,
						 struct pl_error *error)
{
	const struct pl_context *context = peer->context;

	pl_fail(error, -EPROTO, "FABRIC-NONE", "hello", NULL, "leave the fabric to be chosen at both ends",
		"the two ends have no fabric in common that reaches these addresses");
	for (unsigned i = 0; i < context->fabric_count; i++) {
		const struct pl_fabric_advert *offer = find_advert(hello, context->fabrics[i]->name);
		int rc = offer ? fabric_suits(context->fabrics[i], peer, offer, error) : -ENOENT;

		if (rc == -EAGAIN && (!peer->hello_until || pl_now() < peer->hello_until))
			return NULL;
		if (rc < 0)
			continue;
		set_peer_fabric(peer, context->fabrics[i]);
		return offer;
	}
	error->code = -EPROTO;
	snprintf(error->id, sizeof(error->id), "FABRIC-NONE");
	return NULL;
}

uint64_t pl_fabrics_hold_time(struct pl_peer *peer, const struct pl_hello *hello)
{
	const struct pl_context *context = peer->context;
	uint64_t half = context->options.connect_timeout / 2;
	struct pl_error unused;
	unsigned common = 0;

	for (unsigned i = 0; i < context->fabric_count; i++)
		common += find_advert(hello, context->fabrics[i]->name) &&
			  fabric_serves(context->fabrics[i], peer, &unused) == 0;
	return common > 1 ? PL_MIN(half, HOLD_MAX) : half;
}

void **pl_fabric_state(struct pl_context *context, const struct pl_fabric_ops *fabric)
{
	unsigned index = 0;

	while (context->fabrics[index] != fabric)
		index++;
	return &context->fabric_states[index];
}

void pl_fabrics_close(struct pl_context *context)
{
	for (unsigned i = 0; i < context->fabric_count; i++)
		if (context->fabric_states[i])
			context->fabrics[i]->close_state(context, context->fabric_states[i]);
}
