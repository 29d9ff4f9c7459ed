/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane relay` */
#include "cmd/stream/relay.h"

#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cmd/common/output.h"

/* -- frames --------------------------------------------------------------------------------------------------- */

static void relay_serve(void *user)
{
	struct relay *relay = user;

	stream_server_wait(&relay->server, -1, 0);
}

static bool relay_goes_on(void *user)
{
	relay_serve(user);
	return !cli_signal_pending();
}

/* Borrows the slot of a frame.  Sequences before it that the relay does not have are skipped. */
static int relay_borrow_slot(struct relay *relay, const struct pl_frame_info *info, struct pl_stream_frame **frame,
			     struct pl_error *error)
{
	uint64_t lost = info->lost_before - info->absent_before;
	int rc = stream_server_skip(&relay->server, info->sequence, lost, relay_goes_on, relay, error);

	if (rc < 0)
		return rc;
	relay->lost += lost;
	while ((rc = pl_publisher_loan(relay->server.publisher, STREAM_SERVER_SLICE, frame, error)) == -EAGAIN)
		if (!relay_goes_on(relay))
			return -EINTR;
	return rc;
}

static int relay_frame(void *user, const struct pl_frame_info *frame, struct pl_error *error)
{
	struct relay *relay = user;
	const struct pl_layout *layout = &relay->subscribe.info.stream.layout;
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info slot = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *loan;
	int rc = relay_borrow_slot(relay, frame, &loan, error);

	if (rc < 0)
		return rc;
	pl_frame_query(loan, &slot);
	if (frame->length <= slot.length)
		memcpy(slot.data, frame->data, frame->length);
	options.length = frame->length;
	options.captured = frame->captured;
	options.metadata = frame->metadata;
	options.metadata_length = frame->metadata_length;
	options.layout = memcmp(&frame->layout, layout, sizeof(*layout)) ? &frame->layout : NULL;
	options.flags = frame->flags;
	rc = pl_frame_publish(loan, &options, error);
	if (rc < 0)
		pl_frame_discard(loan);
	return rc;
}

/* -- life ------------------------------------------------------------------------------------------------------ */

/* Opens a stream with the properties of the relayed one. */
static int relay_publish(struct relay *relay, struct pl_error *error)
{
	const struct relay_options *options = relay->options;
	const struct pl_publisher_info *from = &relay->subscribe.info.stream;
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;

	stream.slots = (unsigned)(options->slots ? options->slots : from->slots);
	stream.slot_bytes = from->slot_bytes;
	stream.metadata_bytes = from->metadata_bytes;
	stream.layout = from->layout;
	stream.content_type = from->content_type[0] ? from->content_type : NULL;
	stream.allow_block = options->allow_block;
	stream.patience = options->patience;
	stream.first = relay->subscribe.info.accounts.first;
	return stream_server_publish(&relay->server, options->name ? options->name : from->name, &stream,
				     &options->share, error);
}

static int relay_open(struct relay *relay, struct pl_error *error)
{
	const struct cli_options *common = &relay->options->upstream.source.common;
	int rc = subscribe_open(&relay->subscribe, error);

	if (rc == 0)
		rc = stream_server_open(&relay->server, common, CLI_PROGRAM_RELAY, error);
	if (rc == 0)
		rc = relay_publish(relay, error);
	if (rc == 0)
		rc = stream_server_listen(&relay->server, relay->options->listen, &relay->options->share, error);
	if (rc == 0)
		rc = stream_server_announce(&relay->server, common, "relaying", error);
	if (rc < 0)
		return rc;
	relay->forward = (struct subscribe_forward){
		.server = &relay->server,
		.work = { .fd = pl_fd(relay->server.context), .serve = relay_serve, .user = relay },
		.user = relay,
		.frame = relay_frame,
	};
	relay->subscribe.forward = &relay->forward;
	relay->subscribe.client.work = &relay->forward.work;
	return 0;
}

/* Takes a signal that has ended the frames. */
static void relay_consume_signal(const struct relay *relay)
{
	struct signalfd_siginfo signal;

	while (read(relay->subscribe.client.signals, &signal, sizeof(signal)) == sizeof(signal))
		;
}

static bool relay_awaits_subscribers(void *user)
{
	struct relay *relay = user;

	return stream_server_awaits_subscribers(&relay->server);
}

/* Skips the sequences behind the last frame, so that subscribers learn of each sequence that the publisher had. */
static int relay_skip_rest(struct relay *relay, struct pl_error *error)
{
	const struct pl_accounts *accounts = &relay->subscribe.info.accounts;
	uint64_t all = stream_accounts_lost(accounts), lost = all - CLI_MIN(all, relay->lost);
	int rc = stream_server_skip(&relay->server, accounts->next, lost, relay_awaits_subscribers, relay, error);

	/* The wait for subscribers is over: stream_server_end() waits no longer. */
	return rc == -EINTR ? 0 : rc;
}

/* Relays until the end. */
static int relay_run(struct relay *relay)
{
	struct pl_error error;
	int rc = subscribe_frames(&relay->subscribe, &error), status;

	/* A signal from now on ends the wait for subscribers. */
	relay_consume_signal(relay);
	relay->server.signals = relay->subscribe.client.signals;
	stream_server_begin_end(&relay->server, &relay->options->upstream.source.common);
	if (rc == 0 && relay->subscribe.end == SUBSCRIBE_ENDED)
		rc = relay_skip_rest(relay, &error);
	if (rc < 0)
		stream_server_fail(&relay->server);
	else
		rc = stream_server_end(&relay->server, &error);
	if (rc < 0)
		relay->subscribe.end = SUBSCRIBE_FAILED;
	cli_signal_ignore();
	status = subscribe_print(&relay->subscribe, rc < 0 ? &error : NULL);
	stream_server_warn(&relay->server);
	return status;
}

int pl_cli_relay(int argc, char **argv)
{
	struct relay *relay = calloc(1, sizeof(*relay));
	struct relay_options options;
	struct pl_error error;
	int status;

	if (!relay) {
		cli_warn("there is no memory");
		return CLI_FAILED;
	}
	relay_parse_arguments(&options, argc, argv);
	relay->options = &options;
	relay->server.signals = -1;
	subscribe_init(&relay->subscribe, &options.upstream);
	if (relay_open(relay, &error) < 0)
		status = cli_report_for(&options.upstream.source.common, &error);
	else
		status = relay_run(relay);
	stream_server_close(&relay->server);
	subscribe_close(&relay->subscribe);
	free(relay);
	return status;
}
