/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which fabric a peer gets.  The initiator's hello names those that it could use for this peer; the
 * acceptor takes the first of its own list that is among them, and names that one in its answer.
 */
#include <stdio.h>

#include "core/core.h"

const struct pl_fabric_ops *const pl_fabrics[] = {
#ifdef PL_HAVE_VERBS
	&pl_verbs_fabric,
#endif
	&pl_tcp_fabric,
	NULL,
};

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

int pl_fabrics_choose(struct pl_context *context, const char *name, struct pl_error *error)
{
	bool all = !name || !strcmp(name, "auto");

	for (unsigned i = 0; pl_fabrics[i]; i++)
		if (all || !strcmp(name, pl_fabrics[i]->name))
			context->fabrics[context->fabric_count++] = pl_fabrics[i];
	return context->fabric_count ? 0 : unknown_fabric(name, error);
}

static int serves(const struct pl_fabric_ops *fabric, struct pl_peer *peer, struct pl_error *error)
{
	return fabric->serves ? fabric->serves(peer, error) : 0;
}

int pl_fabrics_offer(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error)
{
	const struct pl_context *context = peer->context;
	int rc = 0;

	for (unsigned i = 0; i < context->fabric_count; i++) {
		struct pl_fabric_offer *offer = &hello->fabrics[hello->fabric_count];

		rc = serves(context->fabrics[i], peer, error);
		if (rc < 0)
			continue;
		snprintf(offer->name, sizeof(offer->name), "%s", context->fabrics[i]->name);
		hello->fabric_count++;
	}
	return hello->fabric_count ? 0 : rc;
}

static const struct pl_fabric_offer *find(const struct pl_hello *hello, const char *name)
{
	for (unsigned i = 0; i < hello->fabric_count; i++)
		if (!strcmp(hello->fabrics[i].name, name))
			return &hello->fabrics[i];
	return NULL;
}

const struct pl_fabric_offer *pl_fabrics_take(struct pl_peer *peer, const struct pl_hello *hello)
{
	const struct pl_context *context = peer->context;

	for (unsigned i = 0; i < context->fabric_count; i++) {
		const struct pl_fabric_offer *offer = find(hello, context->fabrics[i]->name);

		if (!offer || serves(context->fabrics[i], peer, NULL) < 0)
			continue;
		peer->ops = context->fabrics[i];
		return offer;
	}
	return NULL;
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
