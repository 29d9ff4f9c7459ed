/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls of the victim's program, which uses the connection of the intruder as that of any peer. */
#include "context/intruder.h"

#define SECOND PL_NS_PER_S
#define MS PL_NS_PER_MS

uint64_t step_value(const struct fuzz_step *step)
{
	uint64_t value;

	memcpy(&value, step->value, sizeof(value));
	return le64toh(value);
}

static uint64_t choose_length(const struct fuzz_step *step)
{
	static const uint32_t lengths[] = { 0, 1, 8, 64, 65, 4096, 8192, 8193, 16384, TRANSFER_MAX };

	return lengths[step->length % PL_ARRAY_SIZE(lengths)];
}

static struct pl_attributes choose_attributes(const struct fuzz_step *step)
{
	static const enum pl_visible levels[] = { PL_VISIBLE_DEFAULT, PL_VISIBLE_ON_WIRE, PL_VISIBLE_ACKNOWLEDGED,
						  PL_VISIBLE_PLACED };
	static const uint64_t timeouts[] = { 0, 5 * MS, SECOND, UINT64_MAX };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.flags = step->flags & (PL_FENCE | PL_NOTIFY | PL_MORE | PL_CONFIDENTIAL);
	attributes.visible = levels[step->flags >> 6];
	attributes.timeout = timeouts[step->cookie % 4];
	attributes.user_data = 1 + step->key % (FUZZ_USERS - 1);
	attributes.notify = step->offset;
	return attributes;
}

static void count_posted(struct world *world, int rc)
{
	world->outstanding += rc == 0;
}

/* A token of the intruder, which answers as it likes. */
static void call_import(struct world *world, const struct fuzz_step *step)
{
	struct pl_token token = { .rights = PL_ACCESS_ALL, .grant = step->key, .length = SHARED };
	uint8_t bytes[PL_TOKEN_SIZE];

	memset(token.context_id, INTRUDER_ID, sizeof(token.context_id));
	pl_token_encode(&token, bytes);
	count_posted(world, pl_remote_import_start(world->peer, bytes, sizeof(bytes), 1, NULL, NULL));
}

/* Each transfer ends where the memory of the transfers ends. */
static struct pl_transfer choose_transfer(const struct world *world, const struct fuzz_step *step, unsigned region)
{
	uint64_t length = choose_length(step);

	return (struct pl_transfer){ .remote = world->remotes[step->channel % world->remote_count],
				     .remote_offset = step_value(step) % 3 ? 0 : step_value(step),
				     .region = world->memory[region].region,
				     .offset = TRANSFER_MAX - length,
				     .length = length };
}

static void call_transfer(struct world *world, const struct fuzz_step *step)
{
	struct pl_attributes attributes = choose_attributes(step);
	bool write = step->kind == CALL_WRITE || (step->kind == CALL_VECTOR && step->offset % 2);
	struct pl_transfer transfers[3];
	struct pl_atomic atomic = { .operand = step->offset };
	int rc;

	if (!world->remote_count)
		return;
	attributes.flags &= ~(unsigned)PL_CONFIDENTIAL;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(transfers); i++)
		transfers[i] = choose_transfer(world, step, write ? REGION_SOURCE : REGION_TARGET);
	atomic.remote = transfers[0].remote;
	atomic.remote_offset = step_value(step) % SHARED & ~7ull;
	if (step->kind == CALL_ATOMIC)
		rc = step->flags % 2 ? pl_fetch_add(world->peer, &atomic, &attributes, NULL, NULL)
				     : pl_compare_swap(world->peer, &atomic, &attributes, NULL, NULL);
	else if (step->kind == CALL_VECTOR)
		rc = write ? pl_writev(world->peer, transfers, 3, &attributes, NULL, NULL)
			   : pl_readv(world->peer, transfers, 3, &attributes, NULL, NULL);
	else
		rc = write ? pl_write(world->peer, transfers, &attributes, NULL, NULL)
			   : pl_read(world->peer, transfers, &attributes, NULL, NULL);
	count_posted(world, rc);
}

static void call_message(struct world *world, const struct fuzz_step *step)
{
	static const uint8_t text[PL_SEND_COPY_MAX];
	struct pl_attributes attributes = choose_attributes(step);
	uint64_t length = choose_length(step), tag = step_value(step) % 4;
	struct pl_buffer source = { world->memory[REGION_SOURCE].region, TRANSFER_MAX - length, length };
	struct pl_buffer target = { world->memory[REGION_TARGET].region, TRANSFER_MAX - length, length };
	int rc;

	attributes.flags &= ~(unsigned)PL_NOTIFY;
	if (step->kind != CALL_SEND_COPY)
		attributes.flags &= ~(unsigned)PL_CONFIDENTIAL;
	if (step->kind == CALL_RECEIVE)
		rc = pl_receive(world->peer, tag, step->offset % 2 ? 0 : UINT64_MAX, length ? &target : NULL,
				&attributes, NULL, NULL);
	else if (step->kind == CALL_SEND)
		rc = pl_send(world->peer, tag, &source, &attributes, NULL, NULL);
	else if (step->kind == CALL_SEND_COPY)
		rc = pl_send_copy(world->peer, tag, text, length, &attributes, NULL, NULL);
	else
		rc = pl_notify(world->peer, tag, text, length, &attributes, NULL, NULL);
	count_posted(world, rc);
}

static void call_close(struct world *world)
{
	pl_peer_close(world->peer);
	world->peer = NULL;
}

static void call_query(struct world *world)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_identity identity = PL_IDENTITY_INIT;
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	static struct pl_event_record records[PL_EVENTS_MAX];

	REQUIRE(pl_peer_query(world->peer, &info) == 0);
	REQUIRE(pl_peer_identity(world->peer, &identity) == 0);
	REQUIRE(pl_peer_events(world->peer, &query, records, PL_EVENTS_MAX) >= 0);
}

static void call_release(struct world *world, const struct fuzz_step *step)
{
	unsigned index;

	if (!world->remote_count)
		return;
	index = step->key % world->remote_count;
	pl_remote_release(world->remotes[index]);
	world->remotes[index] = world->remotes[--world->remote_count];
}

static void call_with_peer(struct world *world, const struct fuzz_step *step)
{
	switch (step->kind % CALLS) {
	case CALL_IMPORT:
		call_import(world, step);
		break;
	case CALL_WRITE:
	case CALL_READ:
	case CALL_ATOMIC:
	case CALL_VECTOR:
		call_transfer(world, step);
		break;
	case CALL_CLOSE:
		call_close(world);
		break;
	case CALL_QUERY:
		call_query(world);
		break;
	case CALL_RELEASE:
		call_release(world, step);
		break;
	default:
		call_message(world, step);
	}
}

void program_step(struct world *world, const struct fuzz_step *given)
{
	struct fuzz_step step = *given;

	step.kind %= CALLS;
	if (step.kind == CALL_SHARE)
		changing_share(world, step.flags & PL_ACCESS_ALL, step.flags & 8 ? 10 * MS : 0);
	else if (step.kind == CALL_REVOKE)
		changing_revoke(world, step.key % TOKENS);
	else if (step.kind == CALL_DEREGISTER)
		changing_deregister(world);
	else if (step.kind == CALL_CANCEL)
		pl_cancel_posted(world->victim, 1 + step.key % (FUZZ_USERS - 1));
	else if (step.kind == CALL_STREAM)
		program_stream(world, &step);
	else if (world->peer)
		call_with_peer(world, &step);
}
