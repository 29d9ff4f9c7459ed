/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions of the context, for the comms of all communicators: any call of NCCL takes them all. */
#include <stdlib.h>
#include <time.h>

#include "core/context.h"
#include "state.h"

#define BATCH 64

static void take_notification(struct plugin_link *link, struct pl_completion *completion)
{
	struct message message;

	mailbox_follow(link->mailbox);
	if (link->state == LINK_UP) {
		if (message_decode(completion->value, completion->data, completion->data_length, &message) < 0)
			link_lost(link,
				  "the other end sent an unknown message; it may have another version of the plugin");
		else
			message_handle(link, &message);
	}
	pl_notification_free(link->device->context, completion);
}

/* The peer of a lost connection may have been closed, and its link freed, since the event. */
static void take_loss(const struct pl_completion *completion)
{
	struct pl_error error;

	pl_list_for_each(at, &plugin.links) {
		struct plugin_link *link = pl_list_entry(at, struct plugin_link, link);

		if (completion->peer && link->peer == completion->peer) {
			/* Messages that the other end sent before come first. */
			mailbox_take_last(link->mailbox);
			pl_completion_error(link->device->context, completion, &error);
			link->gone = true;
			link_lost(link, completion->status < 0 ? error.message : "the other end closed the connection");
			return;
		}
	}
}

static void take_completion(struct pl_context *context, struct pl_completion *completion)
{
	void *object = user_object(completion->user_data);

	if (completion->kind == PL_KIND_NOTIFIED) {
		struct plugin_link *link = completion->peer ? user_object(pl_peer_user_data(completion->peer)) : NULL;

		if (link)
			take_notification(link, completion);
		else
			pl_notification_free(context, completion);
		return;
	}
	if (completion->kind == PL_KIND_LOST) {
		take_loss(completion);
		return;
	}
	switch (completion->user_data & USER_KIND_MASK) {
	case USER_REQUEST:
		request_piece_completed(object, completion);
		break;
	case USER_NOTIFICATION:
		plugin.notifications--;
		break;
	case USER_LINK:
		link_connected(object, completion);
		break;
	case USER_DEVICE:
		link_accepted(object, completion);
		break;
	case USER_REMOTE:
		remote_imported(object, completion);
		break;
	case USER_MAILBOX:
		mailbox_imported(object, completion);
		break;
	}
}

/* Closes peers that got no link, for lack of memory. */
static void close_unlinked(const struct pl_completion *completions, int count)
{
	for (int i = 0; i < count; i++)
		if (completions[i].kind == PL_KIND_ACCEPT && completions[i].peer &&
		    !pl_peer_user_data(completions[i].peer))
			pl_peer_close(completions[i].peer);
}

static void progress_context(struct pl_context *context)
{
	struct pl_completion completions[BATCH];
	struct copy_job *job;
	int count;

	do {
		count = pl_poll(context, completions, BATCH);
		for (int i = 0; i < count; i++)
			take_completion(context, &completions[i]);
		while ((job = copy_threads_take_finished(&plugin.copy_threads)))
			request_finish(pl_container_of(job, struct plugin_request, job));
		/* Peers of this batch are named in it, so they are closed at its end. */
		close_unlinked(completions, count);
		links_reap();
	} while (count == BATCH);
}

void plugin_progress(void)
{
	mailboxes_poll();
	/* Interfaces share the context of the first. */
	for (int i = 0; i < (plugin.cards ? plugin.device_count : 1); i++)
		if (plugin.devices[i].used || !plugin.cards)
			progress_context(plugin.devices[i].context);
}

void plugin_begin_end(void)
{
	plugin_lock();
	plugin_progress();
}

/*
 * Looks whether copies have ended, as waking an engine's thread would take longer than a copy. The driver's calls take long, so
 * that the other ranks of the process get the lock meanwhile. The caller's communicator keeps the context open.
 */
static void poll_gpu_copies(void)
{
	if (atomic_load_explicit(&plugin.gpu_copies, memory_order_relaxed))
		pl_context_poll_copies(plugin.devices[0].context);
}

void plugin_begin(void)
{
	poll_gpu_copies();
	plugin_begin_end();
	remotes_open();
}

void plugin_drain_notifications(uint64_t deadline)
{
	while (plugin.notifications && pl_now() < deadline) {
		plugin_progress();
		if (plugin.notifications)
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
}
