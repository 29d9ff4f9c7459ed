/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control channel is full, because the other end does not read it: messages that can wait do so. Sockets have small buffers, so
 * that few messages fill them. Both ends have manual progress, so the test decides when the far end reads.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/trust.h"
#include "support/cases.h"
#include "support/full_channel.h"
#include "support/pair.h"

/* More bytes than the channel and both sockets take. Fewer messages than the window has. */
#define COUNT 400u
#define LENGTH PL_SEND_COPY_MAX
/* The releases of so many imports are more than that, too. */
#define REGIONS 8192u
#define SETS 3u
/* More answers than the channel and the sockets take. */
#define ANSWERS 32768u
/* More imports than the channel and the sockets take, at each end. */
#define IMPORTS 16384u
/* Imports that are sent without an answer, and others that wait for the answers. */
#define SENT 512u
#define LATER 16u
/* Bytes of an operation for which an end opens more lanes. */
#define LARGE ((size_t)4 << 20)

static const struct setting setting = {
	.name = "control-room", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* Replaces that of the C library. Accepted sockets take over the sizes of the listening one. */
int socket(int domain, int type, int protocol)
{
	int fd = (int)syscall(SYS_socket, domain, type, protocol), size = 64 << 10;

	if (fd >= 0 && domain != AF_UNIX) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	}
	return fd;
}

/* Messages in flight. */
struct room {
	struct scenario_environment environment;
	struct buffer buffer;
	struct pl_operation *sends[COUNT];
};

static void send_confidential(struct room *room, struct pl_peer *peer)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	static uint8_t bytes[LENGTH];
	struct pl_error error;

	attributes.flags = PL_CONFIDENTIAL;
	for (unsigned i = 0; i < COUNT; i++) {
		pattern_fill(bytes, LENGTH, i, 0);
		check_ok(pl_send_copy(peer, 1, bytes, LENGTH, &attributes, &room->sends[i], &error), &error);
	}
	check(!pl_list_empty(&peer->unsent));
}

/* Opens both ends, and sends messages that the far end does not read. */
static void room_open(struct room *room)
{
	environment_open(&room->environment, &setting);
	buffer_open(&room->buffer, room->environment.far, LENGTH, PL_ACCESS_LOCAL);
	send_confidential(room, room->environment.near_peer);
}

static void room_close(struct room *room)
{
	buffer_close(&room->buffer);
	environment_close(&room->environment);
}

/* The far end receives the next message, which is that of this number. */
static void receive_next(struct room *room, unsigned number)
{
	struct pl_operation *receive;
	struct pl_error error;

	check_ok(pl_receive(room->environment.far_peer, 1, UINT64_MAX,
			    &(struct pl_buffer){ room->buffer.region, 0, LENGTH }, NULL, &receive, &error),
		 &error);
	complete(&room->environment, receive, NULL);
	pattern_check(room->buffer.bytes, LENGTH, number, 0);
}

static void confidential_messages_wait(void *unused)
{
	struct room room;

	(void)unused;
	room_open(&room);
	for (unsigned i = 0; i < COUNT; i++)
		receive_next(&room, i);
	for (unsigned i = 0; i < COUNT; i++)
		complete(&room.environment, room.sends[i], NULL);
	room_close(&room);
}

/* Both ends send before they receive. */
static void both_ends_send(void *unused)
{
	struct pl_operation *sends[COUNT];
	struct room room;

	(void)unused;
	room_open(&room);
	memcpy(sends, room.sends, sizeof(sends));
	send_confidential(&room, room.environment.far_peer);
	for (unsigned i = 0; i < COUNT; i++)
		receive_next(&room, i);
	for (unsigned i = 0; i < COUNT; i++) {
		complete(&room.environment, sends[i], NULL);
		complete(&room.environment, room.sends[i], NULL);
	}
	room_close(&room);
}

/* The first waiting message and every second one behind it are cancelled. The others arrive. */
static void waiting_messages_are_cancelled(void *unused)
{
	struct pl_operation *first;
	unsigned waiting = 0;
	struct room room;

	(void)unused;
	room_open(&room);
	first = pl_list_first(&room.environment.near_peer->unsent, struct pl_operation, queue_link);
	while (room.sends[waiting] != first)
		waiting++;
	for (unsigned i = waiting; i < COUNT; i += 2) {
		pl_cancel(room.sends[i]);
		fail_with(&room.environment, room.sends[i], -ECANCELED);
		room.sends[i] = NULL;
	}
	for (unsigned i = 0; i < COUNT; i++) {
		if (!room.sends[i])
			continue;
		receive_next(&room, i);
		complete(&room.environment, room.sends[i], NULL);
	}
	room_close(&room);
}

static void waiting_messages_end_with_the_peer(void *unused)
{
	unsigned lost = 0;
	struct room room;

	(void)unused;
	room_open(&room);
	pl_peer_close(room.environment.far_peer);
	room.environment.far_peer = NULL;
	for (unsigned i = 0; i < COUNT; i++) {
		int status = await(&room.environment, room.sends[i], NULL, NULL);

		check_one_of(status, 0, -ECONNRESET);
		lost += status < 0;
	}
	check(lost);
	room_close(&room);
}

/* Imports the regions of a blob several times, while another thread drives the far end. */
static void import_many(struct pair *pair, const void *blob, size_t length, struct pl_remote_set *sets[SETS])
{
	struct pl_error error;
	struct pump pump;

	pump_start(&pair->environment, &pump, pair->environment.far);
	for (unsigned i = 0; i < SETS; i++)
		check_ok(pl_remote_set_import(pair->environment.near_peer, blob, length, 2 * AMPLE_TIME, &sets[i],
					      &error),
			 &error);
	pump_stop(&pump);
}

static unsigned imports_of(struct pl_peer *peer)
{
	unsigned count;

	pthread_mutex_lock(&peer->context->grant_lock);
	count = peer->imported;
	pthread_mutex_unlock(&peer->context->grant_lock);
	return count;
}

/* The owner does not read while this end releases more remote regions than the channel takes. Then it gets all releases. */
static void releases_wait(void *unused)
{
	static uint8_t blob[PL_REGIONS_BLOB_SIZE(REGIONS)];
	struct pl_region *regions[REGIONS];
	struct pl_remote_set *sets[SETS];
	size_t length = sizeof(blob);
	struct pl_operation *import;
	struct pl_completion completion;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length = sizeof(token);
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, 64);
	for (unsigned i = 0; i < REGIONS; i++)
		regions[i] = pair.far.region;
	check_ok(pl_regions_share(regions, REGIONS, NULL, blob, &length, &error), &error);
	check_ok(pl_region_share(pair.far.region, NULL, token, &token_length, &error), &error);
	import_many(&pair, blob, length, sets);
	check_number(imports_of(pair.environment.far_peer), SETS * REGIONS + 1);
	for (unsigned i = 0; i < SETS; i++)
		pl_remote_set_release(sets[i]);
	/* An import waits behind the releases. */
	check_ok(pl_remote_import_start(pair.environment.near_peer, token, token_length, 0, &import, &error), &error);
	complete(&pair.environment, import, &completion);
	check_number(imports_of(pair.environment.far_peer), 2);
	pl_remote_release(completion.remote);
	pair_close(&pair);
}

/*
 * The owner answers many imports in a row, as when a thread has registered their memory. The importer reads the answers later: here
 * to requests that it has given up. The connection stays.
 */
static void answers_wait(void *unused)
{
	struct pl_imported answer = { .status = PL_WIRE_BUSY };
	struct pl_engine *engine;
	struct pl_peer *owner;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, 64);
	owner = pair.environment.far_peer;
	engine = owner->home;
	pl_engine_lock(engine);
	for (unsigned i = 0; i < ANSWERS; i++) {
		answer.request = UINT64_MAX - i;
		pl_import_answer(owner, &answer);
	}
	check(!pl_list_empty(&owner->unsent_answers));
	pl_engine_unlock(engine);
	progress_until(&pair.environment, pl_list_empty(&owner->unsent_answers));
	pl_remote_release(share(&pair.environment, pair.far.region, pair.environment.near_peer, NULL));
	pair_close(&pair);
}

/* Imports of one end, all posted at once. */
struct imports {
	struct pl_operation *operations[IMPORTS];
};

static void imports_post(struct imports *imports, struct pl_peer *peer, struct pl_region *region)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(region, NULL, token, &length, &error), &error);
	for (unsigned i = 0; i < IMPORTS; i++)
		check_ok(pl_remote_import_start(peer, token, length, 0, &imports->operations[i], &error), &error);
}

static void imports_collect(struct scenario_environment *environment, const struct imports *imports)
{
	struct pl_completion completion;

	for (unsigned i = 0; i < IMPORTS; i++) {
		complete(environment, imports->operations[i], &completion);
		pl_remote_release(completion.remote);
	}
}

/* Both ends request more than the sockets take. Then one answers before the other reads. */
static void both_ends_import(void *unused)
{
	static struct imports near, far;
	struct buffer near_buffer;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, 64);
	buffer_open(&near_buffer, pair.environment.near, 64, PL_ACCESS_ALL);
	imports_post(&near, pair.environment.near_peer, pair.far.region);
	imports_post(&far, pair.environment.far_peer, near_buffer.region);
	for (int i = 0; i < 1000; i++)
		pl_poll(pair.environment.near, NULL, 0);
	for (int i = 0; i < 1000; i++)
		pl_poll(pair.environment.far, NULL, 0);
	imports_collect(&pair.environment, &near);
	imports_collect(&pair.environment, &far);
	buffer_close(&near_buffer);
	pair_close(&pair);
}

/* The owner limits the keys of a peer: those of cancelled imports are released before further imports are sent. */
static void releases_precede_imports(void *unused)
{
	static struct pl_operation *canceled[SENT], *later[LATER];
	static struct pl_admission limited;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_completion completion;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, 64);
	limited.rights =
		(struct pl_rights){ .access = PL_ACCESS_ALL, .imports = pair.environment.far_peer->imported + SENT };
	pair.environment.far_peer->admission = &limited;
	check_ok(pl_region_share(pair.far.region, NULL, token, &length, &error), &error);
	for (unsigned i = 0; i < SENT; i++)
		check_ok(pl_remote_import_start(pair.environment.near_peer, token, length, 0, &canceled[i], &error),
			 &error);
	for (unsigned i = 0; i < SENT; i++) {
		pl_cancel(canceled[i]);
		check_status(pl_wait(canceled[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	}
	for (unsigned i = 0; i < LATER; i++)
		check_ok(pl_remote_import_start(pair.environment.near_peer, token, length, 0, &later[i], &error),
			 &error);
	for (unsigned i = 0; i < LATER; i++) {
		complete(&pair.environment, later[i], &completion);
		pl_remote_release(completion.remote);
	}
	pair.environment.far_peer->admission = NULL;
	pair_close(&pair);
}

/* An acceptor's request for lanes that the channel did not take is repeated by a later operation. */
static void lanes_are_requested_again(void *unused)
{
	struct setting two = setting;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct buffer near_buffer;
	struct pl_remote *remote;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	two.lanes = 2;
	pair_open(&pair, &two, LARGE);
	buffer_open(&near_buffer, pair.environment.near, LARGE, PL_ACCESS_ALL);
	remote = share(&pair.environment, near_buffer.region, pair.environment.far_peer, NULL);
	full_channel_fill(pair.environment.far_peer);
	for (uint64_t end = clock_now() + AMPLE_TIME;;) {
		check_ok(pl_write(pair.environment.far_peer,
				  &(struct pl_transfer){ remote, 0, pair.far.region, 0, LARGE }, NULL, &operation,
				  &error),
			 &error);
		complete(&pair.environment, operation, &receipt);
		if (receipt.lanes >= two.lanes)
			break;
		check(clock_now() < end);
	}
	pl_remote_release(remote);
	buffer_close(&near_buffer);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "confidential-messages-wait", confidential_messages_wait, NULL, 60 },
	{ "both-ends-send", both_ends_send, NULL, 60 },
	{ "waiting-messages-are-cancelled", waiting_messages_are_cancelled, NULL, 60 },
	{ "waiting-messages-end-with-the-peer", waiting_messages_end_with_the_peer, NULL, 60 },
	{ "releases-wait", releases_wait, NULL, 120 },
	{ "answers-wait", answers_wait, NULL, 60 },
	{ "both-ends-import", both_ends_import, NULL, 60 },
	{ "releases-precede-imports", releases_precede_imports, NULL, 60 },
	{ "lanes-are-requested-again", lanes_are_requested_again, NULL, 60 },
};

int main(void)
{
	return cases_run("control-room", cases, PL_ARRAY_SIZE(cases));
}
