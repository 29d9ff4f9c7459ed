/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/stream_server.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cmd/common/events.h"
#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/layout_text.h"
#include "cmd/stream/stream_json.h"

#define BATCH 16
/* Connections of a publisher: its subscribers, and others that list streams. */
#define PEERS_MAX 320
/* Accepts that are under way, so that a look takes at least as many connections that wait. */
#define ACCEPTS 32
/* Completions of one look after which the command goes on: two of each connection, so that all are taken. */
#define LOOK_COMPLETIONS (2 * PEERS_MAX)
/* Time that subscribers have to take the last frames, unless --timeout gives one. */
#define END_TIMEOUT (30 * CLI_NS_PER_S)
/* The same of a stream that failed. It does not end, so no report tells that they have taken them. */
#define FAILURE_TIME CLI_NS_PER_S
/* Subscribers that are described: those that a publisher can have, and 64 that have ended. */
#define SUBSCRIBERS_DESCRIBED (256 + 64)

/* -- begin ------------------------------------------------------------------------------------------------ */

int stream_server_open(struct stream_server *server, const struct cli_options *options, const char *program,
		       struct pl_error *error)
{
	struct cli_options common = *options;

	common.program = program;
	common.peers_max = PEERS_MAX;
	server->quiet = options->quiet;
	return cli_open(&server->context, &common, PL_PROGRESS_THREAD, error);
}

int stream_server_publish(struct stream_server *server, const char *name, const struct pl_publisher_options *given,
			  const struct stream_share *share, struct pl_error *error)
{
	struct pl_publisher_options options = *given, *stream = &options;
	int rc;

	stream->needs_token = share->file;
	rc = pl_publisher_open(server->context, name, stream, &server->publisher, error);
	if (rc == -ENOMEM)
		snprintf(error->hint, sizeof(error->hint), "use fewer --slots, or smaller frames");
	return rc;
}

int stream_server_listen(struct stream_server *server, const char *address, const struct stream_share *share,
			 struct pl_error *error)
{
	char text[300];
	int rc = cli_address(address, text, sizeof(text), error);

	if (rc == 0)
		rc = pl_listen(server->context, text, &server->listener, error);
	/* A start that fails leaves the file to the publisher that has the port. */
	if (rc == 0)
		rc = stream_share_write(share, server->publisher, error);
	for (int i = 0; i < ACCEPTS && rc == 0; i++)
		rc = pl_accept_start(server->listener, 0, NULL, error);
	return rc;
}

static void warn_about_missing_key(const struct cli_options *options, bool needs_token)
{
	if (cli_authenticates(options))
		return;
	/* The token alone protects a stream on loopback. */
	if (needs_token && options->insecure)
		cli_warn("an attacker on the way can take the token, because there is no key\n"
			 "  hint: add --key FILE at both ends");
	else if (!needs_token)
		cli_warn(options->insecure ? "anybody who can reach this address can subscribe, because there is no key"
					   : "any user of this host can subscribe, because there is no key\n"
					     "  hint: add --key FILE at both ends");
}

int stream_server_announce(const struct stream_server *server, const struct cli_options *options, const char *what,
			   struct pl_error *error)
{
	char address[80], dtype[STREAM_DTYPE_MAX], shape[STREAM_SHAPE_MAX], bytes[CLI_UNIT_MAX];
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct json_object *object;
	int rc;

	pl_listener_address(server->listener, address, sizeof(address));
	pl_publisher_query(server->publisher, &info);
	if (!options->quiet)
		warn_about_missing_key(options, info.needs_token);
	if (options->json) {
		object = cli_json_begin();
		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_add(object, "stream", stream_json_describe(&info, -1));
		rc = cli_json_end(object, false);
		return rc < 0 ? cli_fail_errno(error, rc, "malloc", "standard output") : 0;
	}
	printf("listening on %s\n", address);
	if (!options->quiet)
		printf("%s %s: %s %s, frames of %s, %llu slot%s\n", what, info.name,
		       stream_dtype_format(dtype, &info.layout), stream_shape_format(shape, &info.layout),
		       cli_format_bytes(bytes, info.slot_bytes), (unsigned long long)info.slots,
		       cli_plural(info.slots));
	fflush(stdout);
	return 0;
}

/* -- connections ------------------------------------------------------------------------------------------- */

/* Tells of refused lists and subscriptions of a connection that has ended. */
static void warn_about_refusals(struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct cli_events events;

	cli_events_read(&events, peer);
	pl_peer_query(peer, &info);
	for (int i = 0; i < events.count; i++) {
		const struct pl_event_record *record = &events.records[i];
		bool refused = record->event == PL_EVENT_REFUSED_HERE || record->event == PL_EVENT_LIMIT_REACHED;

		if (refused && (!strncmp(record->text, "subscribe: ", 11) || !strncmp(record->text, "list: ", 6)))
			cli_warn("%s: %s (%u time%s)", info.address, record->text, record->count,
				 cli_plural(record->count));
	}
}

static void handle_server_event(struct stream_server *server, struct pl_completion *completion)
{
	if (completion->kind == PL_KIND_LOST) {
		if (!server->quiet)
			warn_about_refusals(completion->peer);
		pl_peer_close(completion->peer);
	}
	/* Without memory for another accept, the connections that exist go on, as do the other accepts. */
	if (completion->kind == PL_KIND_ACCEPT && pl_accept_start(server->listener, 0, NULL, NULL) < 0)
		cli_warn("no memory to accept as many connections at once");
	/* No subscriber sends notifications; the data of one that does is freed. */
	pl_notification_free(server->context, completion);
}

void stream_server_wait(struct stream_server *server, int fd, uint64_t nanoseconds)
{
	struct pollfd fds[] = { { .fd = pl_fd(server->context), .events = POLLIN },
				{ .fd = server->signals, .events = POLLIN },
				{ .fd = fd, .events = POLLIN } };
	struct timespec time = { .tv_sec = (time_t)(nanoseconds / CLI_NS_PER_S),
				 .tv_nsec = (long)(nanoseconds % CLI_NS_PER_S) };
	struct pl_completion completions[BATCH];
	struct signalfd_siginfo signal;
	int count, rest = LOOK_COMPLETIONS;

	if (ppoll(fds, CLI_ARRAY_SIZE(fds), nanoseconds == UINT64_MAX ? NULL : &time, NULL) < 0)
		return;
	/* A connection counts until it is accepted and closed. Each accept starts another one, which may complete at once. */
	do {
		count = fds[0].revents ? pl_poll(server->context, completions, BATCH) : 0;
		for (int i = 0; i < count; i++)
			handle_server_event(server, &completions[i]);
		rest -= count;
	} while (count > 0 && rest > 0);
	if (fds[1].revents && read(server->signals, &signal, sizeof(signal)) == sizeof(signal))
		server->stopping = true;
	server->looked = cli_now();
}

/* -- gaps ---------------------------------------------------------------------------------------------------- */

typedef int (*skip_function)(struct pl_publisher *publisher, uint64_t sequence, uint64_t timeout,
			     struct pl_error *error);

static int skip_in_slices(const struct stream_server *server, skip_function skip, uint64_t sequence,
			  bool (*serve)(void *user), void *user, struct pl_error *error)
{
	int rc;

	while ((rc = skip(server->publisher, sequence, STREAM_SERVER_SLICE, error)) == -EAGAIN)
		if (!serve(user))
			return -EINTR;
	return rc;
}

int stream_server_skip(const struct stream_server *server, uint64_t sequence, uint64_t lost, bool (*serve)(void *user),
		       void *user, struct pl_error *error)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	int rc;

	pl_publisher_query(server->publisher, &info);
	if (sequence <= info.claimed)
		return 0;
	rc = skip_in_slices(server, pl_publisher_skip_lost, info.claimed + CLI_MIN(lost, sequence - info.claimed),
			    serve, user, error);
	return rc < 0 ? rc : skip_in_slices(server, pl_publisher_skip, sequence, serve, user, error);
}

/* -- subscribers --------------------------------------------------------------------------------------------- */

unsigned stream_server_subscribers(const struct stream_server *server)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	pl_publisher_query(server->publisher, &info);
	return info.subscribers;
}

/* Returns an array of *count subscribers, which the caller frees; NULL without memory. */
static struct pl_subscription_info *list_subscribers(const struct stream_server *server, unsigned *count)
{
	struct pl_subscription_info *infos = calloc(SUBSCRIBERS_DESCRIBED, sizeof(*infos));

	*count = 0;
	if (!infos)
		return NULL;
	infos[0].size = sizeof(*infos);
	*count = (unsigned)CLI_MAX(pl_publisher_subscribers(server->publisher, infos, SUBSCRIBERS_DESCRIBED), 0);
	return infos;
}

static struct json_object *subscription_json(const struct pl_subscription_info *info)
{
	struct json_object *object = json_object_new_object();
	struct pl_peer_info peer = PL_PEER_INFO_INIT;
	bool known = info->peer && pl_peer_query(info->peer, &peer) == 0;

	cli_json_add(object, "address", known ? cli_json_text(peer.address) : NULL);
	cli_json_add(object, "blocks", json_object_new_boolean(info->blocks));
	cli_json_add(object, "demoted", json_object_new_boolean(info->demoted));
	cli_json_add(object, "ended", json_object_new_boolean(info->ended));
	cli_json_add(object, "accounts", stream_json_accounts(&info->accounts));
	return object;
}

struct json_object *stream_server_subscribers_json(const struct stream_server *server)
{
	struct json_object *array = json_object_new_array();
	unsigned count;
	struct pl_subscription_info *infos = list_subscribers(server, &count);

	for (unsigned i = 0; i < count; i++)
		cli_json_append(array, subscription_json(&infos[i]));
	free(infos);
	return array;
}

unsigned stream_server_count_subscribers(const struct stream_server *server, unsigned *demoted)
{
	unsigned count;
	struct pl_subscription_info *infos = list_subscribers(server, &count);

	*demoted = 0;
	for (unsigned i = 0; i < count; i++)
		*demoted += infos[i].demoted;
	free(infos);
	return count;
}

/* -- end ------------------------------------------------------------------------------------------------------ */

void stream_server_begin_end(struct stream_server *server, const struct cli_options *options)
{
	server->stopping = false;
	server->end = cli_now() + (options->timeout ? options->timeout : END_TIMEOUT);
}

bool stream_server_awaits_subscribers(struct stream_server *server)
{
	stream_server_wait(server, -1, 0);
	return !server->stopping && cli_now() < server->end;
}

int stream_server_end(struct stream_server *server, struct pl_error *error)
{
	int rc;

	while ((rc = pl_publisher_end(server->publisher, STREAM_SERVER_SLICE, error)) == -ETIMEDOUT) {
		if (!stream_server_awaits_subscribers(server)) {
			server->unreported = stream_server_subscribers(server);
			return 0;
		}
	}
	return rc;
}

void stream_server_fail(struct stream_server *server)
{
	server->end = CLI_MIN(server->end, cli_now() + FAILURE_TIME);
	while (stream_server_subscribers(server) && !server->stopping && cli_now() < server->end)
		stream_server_wait(server, -1, STREAM_SERVER_SLICE);
}

void stream_server_warn(const struct stream_server *server)
{
	if (server->unreported)
		cli_warn("%u subscriber%s taken all frames\n"
			 "  hint: allow more time with --timeout",
			 server->unreported, server->unreported == 1 ? " has not" : "s have not");
}

void stream_server_close(struct stream_server *server)
{
	pl_publisher_close(server->publisher);
	pl_close(server->context);
}
