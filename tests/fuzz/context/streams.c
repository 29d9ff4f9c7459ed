/* SPDX-License-Identifier: BSD-2-Clause */
/* A stream of the victim: calls of its program, and messages of the intruder about streams. */
#include <string.h>

#include "context/intruder.h"
#include "wire/stream_message.h"

#define NAME "cam0"
#define SLOTS 4u
#define SLOT 4096u
#define METADATA 64u
#define SUBSCRIBERS 3u
#define FILL 0x33
#define SKIP_MAX 10000u
#define PATIENCE (20 * PL_NS_PER_MS)

/* -- the program of the victim ---------------------------------------------------------------------- */

static void open_publisher(struct world *world, bool needs_token)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;

	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.loans = LOANS;
	options.metadata_bytes = METADATA;
	options.subscribers = SUBSCRIBERS;
	options.allow_block = true;
	options.patience = PATIENCE;
	options.needs_token = needs_token;
	REQUIRE(pl_publisher_open(world->victim, NAME, &options, &world->publisher, NULL) == 0);
	world->claimed = 0;
	world->slot = NULL;
	world->stream_token.length = needs_token ? sizeof(world->stream_token.bytes) : 0;
	if (needs_token)
		REQUIRE(pl_publisher_share(world->publisher, NULL, world->stream_token.bytes,
					   &world->stream_token.length, NULL) == 0);
}

void publisher_open(struct world *world)
{
	open_publisher(world, false);
}

void publisher_close(struct world *world)
{
	pl_publisher_close(world->publisher);
	world->publisher = NULL;
	world->loan_count = 0;
}

static void loan_slot(struct world *world)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *loan;
	int rc = pl_publisher_loan(world->publisher, 0, &loan, NULL);

	REQUIRE(rc == 0 || rc == -EAGAIN || (rc == -EMLINK && world->loan_count == LOANS));
	if (rc < 0)
		return;
	REQUIRE(pl_frame_query(loan, &info) == 0 && info.sequence == world->claimed);
	world->claimed++;
	world->loans[world->loan_count++] = loan;
	memset(info.data, FILL, SLOT);
	world->slot = info.data;
}

/* Publishes the oldest loan, or gives it up. */
static void end_loan(struct world *world, const struct fuzz_step *step, bool publish)
{
	static const uint8_t metadata[METADATA];
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;

	if (!world->loan_count)
		return;
	options.length = step_value(step) % (SLOT + 1);
	options.metadata = metadata;
	options.metadata_length = step->length % (METADATA + 1);
	if (publish)
		REQUIRE(pl_frame_publish(world->loans[0], &options, NULL) == 0);
	else
		pl_frame_discard(world->loans[0]);
	world->loans[0] = world->loans[--world->loan_count];
}

static void skip_sequences(struct world *world, const struct fuzz_step *step)
{
	uint64_t sequence = world->claimed + step_value(step) % SKIP_MAX;
	int rc = pl_publisher_skip(world->publisher, sequence, 0, NULL);

	REQUIRE(rc == 0 || rc == -EAGAIN || (rc == -EBUSY && world->loan_count));
	if (rc == 0)
		world->claimed = sequence;
}

void publisher_check(const struct world *world)
{
	struct pl_subscription_info infos[SUBSCRIBERS + 1];
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	int count;

	REQUIRE(pl_publisher_query(world->publisher, &info) == 0);
	REQUIRE(info.claimed == world->claimed && info.claimed - info.published == world->loan_count);
	REQUIRE(info.subscribers <= SUBSCRIBERS && info.blocking <= info.subscribers);
	infos[0] = (struct pl_subscription_info)PL_SUBSCRIPTION_INFO_INIT;
	count = pl_publisher_subscribers(world->publisher, infos, SUBSCRIBERS + 1);
	REQUIRE(count >= 0 && count <= (int)SUBSCRIBERS + 1);
	for (int i = 0; i < count; i++)
		REQUIRE(pl_accounts_exact(&infos[i].accounts));
	/* Subscribers can only read. */
	for (unsigned i = 0; world->slot && i < SLOT; i++)
		REQUIRE(world->slot[i] == FILL);
}

void program_stream(struct world *world, const struct fuzz_step *step)
{
	switch (step->flags % 8) {
	case 0:
	case 1:
		loan_slot(world);
		break;
	case 2:
		end_loan(world, step, true);
		break;
	case 3:
		end_loan(world, step, false);
		break;
	case 4:
		skip_sequences(world, step);
		break;
	case 5:
		publisher_close(world);
		publisher_open(world);
		break;
	case 6:
		publisher_close(world);
		open_publisher(world, true);
		break;
	case 7:
		pl_publisher_revoke(world->publisher, world->stream_token.bytes, world->stream_token.length);
		break;
	}
	publisher_check(world);
}

/* -- the intruder ----------------------------------------------------------------------------------- */

void intruder_note_stream(struct intruder *intruder, const void *body, size_t length)
{
	struct pl_stream_message message;

	REQUIRE(pl_stream_message_decode(body, length, &message) == 0);
	intruder->announced += message.type == PL_STREAM_ANNOUNCE;
	if (message.type != PL_STREAM_SUBSCRIBED || message.subscribed.status != PL_SUBSCRIBE_OK)
		return;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(intruder->stream_tokens); i++) {
		intruder->stream_tokens[i].length = PL_TOKEN_SIZE;
		memcpy(intruder->stream_tokens[i].bytes, i ? message.subscribed.payload : message.subscribed.control,
		       PL_TOKEN_SIZE);
	}
}

/* Presents the token of the stream, or a wrong one. */
static void fill_token(const struct world *world, const struct fuzz_step *step, struct pl_stream_message *message)
{
	struct pl_token token;

	if (step->cookie < 3 || pl_token_decode(world->stream_token.bytes, world->stream_token.length, &token) < 0)
		return;
	message->token.given = true;
	message->token.id = token.grant ^ (step->cookie == 4);
	memcpy(message->token.secret, token.secret, sizeof(token.secret));
	message->token.secret[0] ^= step->cookie == 5;
}

static void fill_subscribe(const struct fuzz_step *step, struct pl_stream_message *message)
{
	strcpy(message->subscribe.name, step->cookie == 1 ? "other" : NAME);
	message->subscribe.start = step->flags % 4;
	message->subscribe.overflow = step->flags / 4 % 3;
	message->subscribe.push = step->flags / 12 % 2;
	message->subscribe.prepare = step->flags / 24 % 2;
	message->subscribe.in_place = step->flags / 48 % 2;
	message->subscribe.from = step_value(step);
	message->subscribe.every = 1 + step->length % 4;
	if (step->cookie == 2)
		message->subscribe.instance[0] = 1 + step->offset;
}

static void fill_accounts(const struct fuzz_step *step, struct pl_accounts *accounts)
{
	accounts->first = step->offset;
	accounts->next = accounts->first + step->length;
	*(step->flags % 2 ? &accounts->delivered : &accounts->lapped) = step->length;
}

static void fill_taken(const struct intruder *intruder, const struct fuzz_step *step, struct pl_stream_message *message)
{
	message->taken.answered = step->cookie % 4 ? intruder->announced : step->cookie;
	message->taken.taken = step_value(step);
	fill_accounts(step, &message->taken.accounts);
}

/* Slots of the intruder, which never answers the import of their key; or a token that is none. */
static void fill_slots(const struct fuzz_step *step, struct pl_stream_message *message)
{
	struct pl_token token = { .rights = PL_ACCESS_WRITE, .grant = 1, .length = SLOT };

	message->slots.count = 1 + step->flags % 8;
	message->slots.stride = SLOT << (step->cookie == 1);
	memset(token.context_id, INTRUDER_ID, sizeof(token.context_id));
	if (step->cookie != 2)
		pl_token_encode(&token, message->slots.token);
}

static void fill_credit(const struct fuzz_step *step, struct pl_stream_message *message)
{
	fill_accounts(step, &message->credit.accounts);
	message->credit.paused = step->cookie % 2;
	message->credit.count = step->flags / 2 % 3;
	message->credit.slots[0] = step->flags % 8;
	message->credit.slots[1] = step->flags / 8 % 8;
}

void step_stream(struct intruder *intruder, const struct fuzz_step *step)
{
	struct pl_stream_message message = { .type = step->kind % (PL_STREAM_PUSHED + 1), .number = step->key % 4 };
	struct pl_control control = { .type = PL_CONTROL_STREAM };
	uint8_t bytes[PL_SEND_COPY_MAX];
	int length;

	if (message.type == PL_STREAM_LIST || message.type == PL_STREAM_SUBSCRIBE)
		fill_token(intruder->world, step, &message);
	if (message.type == PL_STREAM_LIST)
		message.from = step->offset;
	else if (message.type == PL_STREAM_SUBSCRIBE)
		fill_subscribe(step, &message);
	else if (message.type == PL_STREAM_TAKEN || message.type == PL_STREAM_UNSUBSCRIBE)
		fill_taken(intruder, step, &message);
	else if (message.type == PL_STREAM_SUBSCRIBED)
		message.subscribed.status = 1 + step->flags % (PL_SUBSCRIBE_END - 1);
	else if (message.type == PL_STREAM_ANNOUNCE)
		message.announce.claimed = message.announce.published = step_value(step);
	else if (message.type == PL_STREAM_SLOTS)
		fill_slots(step, &message);
	else if (message.type == PL_STREAM_CREDIT)
		fill_credit(step, &message);
	else if (message.type == PL_STREAM_PUSHED)
		message.pushed.state = PL_STREAM_LIVE;
	length = pl_stream_message_encode(&message, bytes, sizeof(bytes));
	if (length <= 0)
		return;
	control.message = (struct pl_control_message){ 0, (uint16_t)length, bytes };
	intruder_send_control(intruder, &control);
}
