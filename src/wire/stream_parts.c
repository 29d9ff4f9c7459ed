/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of messages about streams: descriptions of streams, accounts and tokens. */
#include "wire/stream_message.h"

/* Bits of a byte of an entry. */
enum {
	ENTRY_ALLOW_BLOCK = 1,
	ENTRY_NEEDS_TOKEN = 2,
};

bool pl_get_bool(struct pl_reader *reader)
{
	uint8_t value = pl_get_u8(reader);

	reader->bad |= value > 1;
	return value;
}

void pl_get_entry(struct pl_reader *reader, struct pl_stream_entry *entry)
{
	struct pl_layout *layout = &entry->layout;
	uint8_t bits;

	pl_get_string(reader, entry->name, sizeof(entry->name));
	pl_get_string(reader, entry->content_type, sizeof(entry->content_type));
	pl_get_bytes(reader, entry->instance, sizeof(entry->instance));
	entry->created = pl_get_u64(reader);
	entry->slots = pl_get_u32(reader);
	entry->metadata_bytes = pl_get_u32(reader);
	entry->slot_bytes = pl_get_u64(reader);
	layout->code = pl_get_u8(reader);
	layout->bits = pl_get_u8(reader);
	layout->lanes = pl_get_u16(reader);
	layout->dimensions = pl_get_u32(reader);
	for (unsigned i = 0; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		layout->shape[i] = pl_get_u64(reader);
	entry->claimed = pl_get_u64(reader);
	entry->published = pl_get_u64(reader);
	entry->subscribers = pl_get_u32(reader);
	entry->blocking = pl_get_u32(reader);
	bits = pl_get_u8(reader);
	reader->bad |= bits > (ENTRY_ALLOW_BLOCK | ENTRY_NEEDS_TOKEN);
	entry->allow_block = bits & ENTRY_ALLOW_BLOCK;
	entry->needs_token = bits & ENTRY_NEEDS_TOKEN;
	entry->state = (enum pl_stream_state)pl_get_u8(reader);
	entry->gpu = pl_get_bool(reader);
}

void pl_put_entry(struct pl_writer *writer, const struct pl_stream_entry *entry)
{
	const struct pl_layout *layout = &entry->layout;

	pl_put_string(writer, entry->name);
	pl_put_string(writer, entry->content_type);
	pl_put_bytes(writer, entry->instance, sizeof(entry->instance));
	pl_put_u64(writer, entry->created);
	pl_put_u32(writer, entry->slots);
	pl_put_u32(writer, entry->metadata_bytes);
	pl_put_u64(writer, entry->slot_bytes);
	pl_put_u8(writer, layout->code);
	pl_put_u8(writer, layout->bits);
	pl_put_u16(writer, layout->lanes);
	pl_put_u32(writer, layout->dimensions);
	for (unsigned i = 0; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		pl_put_u64(writer, layout->shape[i]);
	pl_put_u64(writer, entry->claimed);
	pl_put_u64(writer, entry->published);
	pl_put_u32(writer, entry->subscribers);
	pl_put_u32(writer, entry->blocking);
	pl_put_u8(writer, (uint8_t)((entry->allow_block ? ENTRY_ALLOW_BLOCK : 0) |
				    (entry->needs_token ? ENTRY_NEEDS_TOKEN : 0)));
	pl_put_u8(writer, (uint8_t)entry->state);
	pl_put_u8(writer, entry->gpu);
}

bool pl_accounts_exact(const struct pl_accounts *accounts)
{
	const uint64_t fates[] = { accounts->delivered, accounts->lapped, accounts->dropped,  accounts->rejected,
				   accounts->aborted,   accounts->missed, accounts->unwanted, accounts->pending };
	uint64_t sum = accounts->first;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(fates); i++)
		if (__builtin_add_overflow(sum, fates[i], &sum))
			return false;
	return sum == accounts->next;
}

void pl_get_accounts(struct pl_reader *reader, struct pl_accounts *accounts)
{
	uint64_t *const numbers[] = { &accounts->first,    &accounts->next,     &accounts->delivered, &accounts->lapped,
				      &accounts->dropped,  &accounts->rejected, &accounts->aborted,   &accounts->missed,
				      &accounts->unwanted, &accounts->pending };

	for (unsigned i = 0; i < PL_ARRAY_SIZE(numbers); i++)
		*numbers[i] = pl_get_u64(reader);
}

void pl_put_accounts(struct pl_writer *writer, const struct pl_accounts *accounts)
{
	const uint64_t numbers[] = { accounts->first,    accounts->next,     accounts->delivered, accounts->lapped,
				     accounts->dropped,  accounts->rejected, accounts->aborted,   accounts->missed,
				     accounts->unwanted, accounts->pending };

	for (unsigned i = 0; i < PL_ARRAY_SIZE(numbers); i++)
		pl_put_u64(writer, numbers[i]);
}

void pl_get_stream_token(struct pl_reader *reader, struct pl_stream_token *token)
{
	if (reader->at == reader->end)
		return;
	token->given = true;
	token->id = pl_get_u64(reader);
	pl_get_bytes(reader, token->secret, sizeof(token->secret));
}

void pl_put_stream_token(struct pl_writer *writer, const struct pl_stream_token *token)
{
	if (!token->given)
		return;
	pl_put_u64(writer, token->id);
	pl_put_bytes(writer, token->secret, sizeof(token->secret));
}
