/* SPDX-License-Identifier: BSD-2-Clause */
#include "mailbox.h"

#include <stdlib.h>

#include "state.h"

#define MAILBOX_SLOTS 128u
#define MAILBOX_SLOT 1088u
#define MAILBOX_HEADER 64u
#define MAILBOX_SIZE (MAILBOX_HEADER + MAILBOX_SLOTS * MAILBOX_SLOT)
/* Messages after which the other end learns that their slots are free. */
#define REPORT_AFTER (MAILBOX_SLOTS / 4)

struct slot {
	uint64_t sequence, value;
	uint32_t length, reserved;
	uint8_t data[PL_NOTIFY_DATA_MAX];
};

_Static_assert(sizeof(struct slot) <= MAILBOX_SLOT && MAILBOX_SLOT % 64 == 0, "whole cache lines");

struct mailbox {
	struct pl_list link;       /* of the plugin */
	struct plugin_link *owner; /* NULL: closed while the import runs */
	struct pl_region *inbox;   /* the other end writes into it */
	struct pl_region *outbox;  /* a slot, and a counter, of this end: what is written into the other end's inbox */
	struct pl_remote *remote;  /* the other end's inbox; NULL: not imported */
	bool importing, mapped, mapped_there; /* either end writes into the other's inbox */
	bool sends, receives;                 /* by the mailbox */
	uint64_t sent, received, reported;
};

static struct slot *outbox_slot(struct mailbox *mailbox)
{
	return pl_region_address(mailbox->outbox);
}

/* Writes from the outbox into the other end's inbox. Returns 0 or a negative errno, as link_write_now() does. */
static int mailbox_write(struct mailbox *mailbox, uint64_t to, uint64_t from, uint64_t length)
{
	return link_write_now(mailbox->owner, &(struct pl_transfer){ .remote = mailbox->remote,
								     .remote_offset = to,
								     .region = mailbox->outbox,
								     .offset = from,
								     .length = length });
}

/* -- life ----------------------------------------------------------------------------------------- */

static void mailbox_free(struct mailbox *mailbox)
{
	pl_remote_release(mailbox->remote);
	if (mailbox->inbox)
		pl_region_deregister(mailbox->inbox);
	if (mailbox->outbox)
		pl_region_deregister(mailbox->outbox);
	pl_list_remove(&mailbox->link);
	free(mailbox);
}

static bool mailbox_offer(struct mailbox *mailbox)
{
	struct pl_context *context = mailbox->owner->device->context;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	if (pl_region_allocate(context, MAILBOX_SIZE, PL_ACCESS_WRITE, &mailbox->inbox, &error) < 0 ||
	    pl_region_allocate(context, sizeof(struct slot), PL_ACCESS_LOCAL, &mailbox->outbox, &error) < 0 ||
	    pl_region_share(mailbox->inbox, NULL, token, &length, &error) < 0) {
		plugin_info("no mailbox for %s: %s", mailbox->owner->address, error.message);
		return false;
	}
	link_send(mailbox->owner,
		  &(struct message){ .type = MESSAGE_MAILBOX, .payload = token, .length = length });
	return true;
}

void mailbox_open(struct plugin_link *link)
{
	struct mailbox *mailbox;

	if (link->mailbox || !link->local || link->state != LINK_UP)
		return;
	mailbox = calloc(1, sizeof(*mailbox));
	if (!mailbox)
		return;
	pl_list_append(&plugin.mailboxes, &mailbox->link);
	mailbox->owner = link;
	if (mailbox_offer(mailbox))
		link->mailbox = mailbox;
	else
		mailbox_free(mailbox);
}

void mailbox_close(struct plugin_link *link)
{
	struct mailbox *mailbox = link->mailbox;

	if (!mailbox)
		return;
	link->mailbox = NULL;
	mailbox->owner = NULL;
	mailbox->sends = mailbox->receives = false;
	if (!mailbox->importing)
		mailbox_free(mailbox);
}

/* -- agreement ------------------------------------------------------------------------------------ */

static void switch_if_agreed(struct mailbox *mailbox)
{
	if (mailbox->sends || !mailbox->mapped || !mailbox->mapped_there)
		return;
	link_send(mailbox->owner, &(struct message){ .type = MESSAGE_SWITCHED });
	mailbox->sends = true;
	plugin_info("%s: messages lie in memory of both processes", mailbox->owner->address);
}

static void import_inbox(struct mailbox *mailbox, const struct message *message)
{
	if (mailbox->importing || mailbox->remote ||
	    pl_remote_import_start(mailbox->owner->peer, message->payload, message->length,
				   user_data(mailbox, USER_MAILBOX), NULL, NULL) < 0)
		return;
	mailbox->importing = true;
	plugin.imports++;
}

void mailbox_imported(struct mailbox *mailbox, const struct pl_completion *completion)
{
	plugin.imports--;
	mailbox->importing = false;
	if (completion->status == 0)
		mailbox->remote = completion->remote;
	if (!mailbox->owner) {
		mailbox_free(mailbox);
		return;
	}
	/* The counter is zero now, so that writing it changes nothing. */
	if (mailbox->owner->state != LINK_UP || !mailbox->remote || pl_remote_length(mailbox->remote) != MAILBOX_SIZE ||
	    mailbox_write(mailbox, 0, 0, sizeof(uint64_t)) < 0)
		return;
	mailbox->mapped = true;
	link_send(mailbox->owner, &(struct message){ .type = MESSAGE_MAPPED });
	switch_if_agreed(mailbox);
}

void mailbox_handle(struct plugin_link *link, const struct message *message)
{
	struct mailbox *mailbox = link->mailbox;

	if (!mailbox)
		return;
	if (message->type == MESSAGE_MAILBOX) {
		import_inbox(mailbox, message);
	} else if (message->type == MESSAGE_MAPPED) {
		mailbox->mapped_there = true;
		switch_if_agreed(mailbox);
	} else {
		mailbox->receives = true;
	}
}

/* -- sending -------------------------------------------------------------------------------------- */

static bool has_free_slot(const struct mailbox *mailbox)
{
	const uint64_t *taken = pl_region_address(mailbox->inbox);

	return mailbox->sent - __atomic_load_n(taken, __ATOMIC_ACQUIRE) < MAILBOX_SLOTS;
}

/* Returns 0 or a negative errno: without the sequence number the other end does not take the message. */
static int put_message(struct mailbox *mailbox, uint64_t value, const void *data, size_t length)
{
	uint64_t at = MAILBOX_HEADER + mailbox->sent % MAILBOX_SLOTS * MAILBOX_SLOT;
	const uint64_t begin = offsetof(struct slot, value);
	struct slot *slot = outbox_slot(mailbox);
	int rc;

	slot->sequence = mailbox->sent + 1;
	slot->value = value;
	slot->length = (uint32_t)length;
	if (length)
		memcpy(slot->data, data, length);
	rc = mailbox_write(mailbox, at + begin, begin, offsetof(struct slot, data) - begin + length);
	if (rc < 0)
		return rc;
	rc = mailbox_write(mailbox, at, 0, begin);
	/* The other end may have the message: as a notification, too, it would come twice. */
	if (rc == -ECANCELED || rc == -ETIMEDOUT)
		link_lost(mailbox->owner, "a write to its memory did not end in time");
	return rc;
}

bool mailbox_send(struct plugin_link *link, uint64_t value, const void *data, size_t length)
{
	struct mailbox *mailbox = link->mailbox;
	bool put;

	if (!mailbox || !mailbox->sends)
		return false;
	put = mailbox->mapped && has_free_slot(mailbox);
	/* The other end closes, or has revoked the inbox. */
	if (put && put_message(mailbox, value, data, length) < 0)
		put = mailbox->mapped = false;
	mailbox->sent++;
	return put;
}

/* -- taking --------------------------------------------------------------------------------------- */

static void report_taken(struct mailbox *mailbox)
{
	uint64_t *taken = &outbox_slot(mailbox)->sequence;

	if (!mailbox->mapped || mailbox->received - mailbox->reported < REPORT_AFTER)
		return;
	*taken = mailbox->reported = mailbox->received;
	mailbox_write(mailbox, 0, 0, sizeof(*taken));
}

/* The other end may change its bytes at any time, so that each is read once. */
static bool take_message(struct mailbox *mailbox)
{
	const uint8_t *inbox = pl_region_address(mailbox->inbox);
	const struct slot *from =
		(const void *)(inbox + MAILBOX_HEADER + mailbox->received % MAILBOX_SLOTS * MAILBOX_SLOT);
	uint8_t data[PL_NOTIFY_DATA_MAX];
	struct message message;
	uint32_t length;
	uint64_t value;

	if (__atomic_load_n(&from->sequence, __ATOMIC_ACQUIRE) != mailbox->received + 1)
		return false;
	value = __atomic_load_n(&from->value, __ATOMIC_RELAXED);
	length = __atomic_load_n(&from->length, __ATOMIC_RELAXED);
	if (length <= sizeof(data))
		memcpy(data, from->data, length);
	mailbox->received++;
	if (length > sizeof(data) || message_decode(value, data, length, &message) < 0)
		link_lost(mailbox->owner, "the other end sent an unknown message");
	else
		message_handle(mailbox->owner, &message);
	return true;
}

void mailbox_poll(struct mailbox *mailbox)
{
	if (!mailbox)
		return;
	for (unsigned i = 0; i < MAILBOX_SLOTS && mailbox->receives && mailbox->owner->state == LINK_UP; i++) {
		if (!take_message(mailbox))
			break;
		report_taken(mailbox);
	}
}

void mailbox_follow(struct mailbox *mailbox)
{
	if (!mailbox || !mailbox->receives)
		return;
	mailbox_poll(mailbox);
	mailbox->received++;
	report_taken(mailbox);
}

void mailbox_take_last(struct mailbox *mailbox)
{
	if (!mailbox)
		return;
	mailbox->receives = true;
	mailbox_poll(mailbox);
}

void mailboxes_poll(void)
{
	pl_list_for_each(at, &plugin.mailboxes)
		mailbox_poll(pl_list_entry(at, struct mailbox, link));
}
