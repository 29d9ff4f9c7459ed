/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/check.h"
#include "support/socket.h"

#define CONNECTIONS 32

/* Place in a sequence of TLS records. */
struct records {
	uint8_t header[5]; /* type, version, length */
	unsigned have;     /* bytes of the header */
	size_t left;       /* bytes of the body */
};

struct relayed {
	int fds[2];         /* client, server */
	struct records records[2];
	uint64_t passed[2]; /* bytes from the client, from the server */
	bool ended[2];
	bool stalled[2];
};

struct relay {
	struct proxy *proxy;
	struct relayed connections[CONNECTIONS];
	unsigned count;
};

static void hang_up(struct relayed *relayed)
{
	for (unsigned i = 0; i < 2; i++) {
		shutdown(relayed->fds[i], SHUT_RDWR);
		relayed->ended[i] = true;
	}
}

/* Passes bytes and damages the byte at `at`.  Dropped bytes count as passed; inserted bytes do not count. */
static void pass_damaged(struct relay *relay, struct relayed *relayed, unsigned from, uint8_t *bytes, size_t length,
			 size_t at)
{
	const struct damage *damage = &relay->proxy->damage;
	int to = relayed->fds[!from];
	size_t skip;

	atomic_store(&relay->proxy->damaged, true);
	switch (damage->kind) {
	case DAMAGE_FLIP:
		bytes[at] ^= (uint8_t)(1u << damage->bit);
		socket_send(to, bytes, length);
		break;
	case DAMAGE_CUT:
		socket_send(to, bytes, at);
		hang_up(relayed);
		break;
	case DAMAGE_INSERT:
		socket_send(to, bytes, at);
		socket_send(to, damage->bytes, damage->length);
		socket_send(to, bytes + at, length - at);
		break;
	case DAMAGE_DROP:
		skip = length - at < damage->length ? length - at : damage->length;
		socket_send(to, bytes, at);
		socket_send(to, bytes + at + skip, length - at - skip);
		break;
	case DAMAGE_STALL:
		socket_send(to, bytes, at);
		relayed->stalled[from] = true;
		break;
	case DAMAGE_NONE:
		break;
	}
}

/* Returns the bytes up to the end of the present record, or all. `ended`: they end it. */
static size_t record_rest(struct records *records, const uint8_t *bytes, size_t length, bool *ended)
{
	size_t at = 0, rest;

	while (at < length && records->have < sizeof(records->header)) {
		records->header[records->have++] = bytes[at++];
		records->left = (size_t)records->header[3] << 8 | records->header[4];
	}
	rest = length - at < records->left ? length - at : records->left;
	records->left -= rest;
	*ended = records->have == sizeof(records->header) && records->left == 0;
	if (*ended)
		records->have = 0;
	return at + rest;
}

/* Passes bytes of the control channel. */
static void pass_records(struct relay *relay, struct relayed *relayed, unsigned from, const uint8_t *bytes,
			 size_t length)
{
	while (length) {
		bool ended;
		size_t part = record_rest(&relayed->records[from], bytes, length, &ended);

		if (!socket_send(relayed->fds[!from], bytes, part)) {
			hang_up(relayed);
			return;
		}
		bytes += part;
		length -= part;
		if (ended && relay->proxy->record(relay->proxy->user)) {
			for (unsigned i = 0; i < relay->count; i++)
				hang_up(&relay->connections[i]);
			return;
		}
	}
}

static void pass_bytes(struct relay *relay, unsigned index, unsigned from)
{
	const struct damage *damage = &relay->proxy->damage;
	struct relayed *relayed = &relay->connections[index];
	uint8_t bytes[16384];
	ssize_t got = recv(relayed->fds[from], bytes, sizeof(bytes), MSG_DONTWAIT);
	uint64_t before = relayed->passed[from];

	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0) {
		hang_up(relayed);
		return;
	}
	relayed->passed[from] += (uint64_t)got;
	if (relay->proxy->passes)
		relay->proxy->passes(relay->proxy->user, from, (size_t)got);
	if (relay->proxy->marker && memmem(bytes, (size_t)got, relay->proxy->marker, strlen(relay->proxy->marker)))
		atomic_fetch_add(&relay->proxy->seen, 1);
	if (relay->proxy->record && index == 0)
		pass_records(relay, relayed, from, bytes, (size_t)got);
	else if (damage->kind != DAMAGE_NONE && damage->connection == index && damage->direction == from &&
		 damage->offset >= before && damage->offset < before + (uint64_t)got)
		pass_damaged(relay, relayed, from, bytes, (size_t)got, damage->offset - before);
	else if (!socket_send(relayed->fds[!from], bytes, (size_t)got))
		hang_up(relayed);
}

static void proxy_accept(struct relay *relay)
{
	struct relayed *relayed = &relay->connections[relay->count];
	int client = socket_accept(relay->proxy->listener);
	int server = socket_connect(relay->proxy->target);

	if (server < 0 || relay->count == CONNECTIONS) {
		close(client);
		if (server >= 0)
			close(server);
		return;
	}
	*relayed = (struct relayed){ .fds = { client, server } };
	/* Records are sent one by one. */
	for (unsigned i = 0; relay->proxy->record && i < 2; i++)
		setsockopt(relayed->fds[i], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	relay->count++;
}

static bool holds(const struct relay *relay, unsigned connection, unsigned from)
{
	return connection == 1 && from == 1 && relay->connections[1].passed[1] && atomic_load(&relay->proxy->holds);
}

static void *relay_run(void *argument)
{
	struct relay relay = { .proxy = argument };

	while (!atomic_load(&relay.proxy->stop)) {
		struct pollfd fds[1 + 2 * CONNECTIONS] = { { relay.proxy->listener, POLLIN, 0 } };
		unsigned count = relay.count;

		for (unsigned i = 0; i < 2 * count; i++) {
			const struct relayed *relayed = &relay.connections[i / 2];
			bool quiet = relayed->ended[i % 2] || relayed->stalled[i % 2] || holds(&relay, i / 2, i % 2);

			fds[1 + i] = (struct pollfd){ quiet ? -1 : relayed->fds[i % 2], POLLIN, 0 };
		}
		if (poll(fds, 1 + 2 * count, 5) <= 0)
			continue;
		for (unsigned i = 0; i < 2 * count; i++) {
			if (fds[1 + i].revents)
				pass_bytes(&relay, i / 2, i % 2);
		}
		if (fds[0].revents)
			proxy_accept(&relay);
	}
	for (unsigned i = 0; i < relay.count; i++) {
		close(relay.connections[i].fds[0]);
		close(relay.connections[i].fds[1]);
	}
	return NULL;
}

static void run_proxy(struct proxy *proxy, const char *target)
{
	snprintf(proxy->target, sizeof(proxy->target), "%s", target);
	proxy->listener = socket_listen(proxy->address);
	check_number(pthread_create(&proxy->thread, NULL, relay_run, proxy), 0);
}

void proxy_start(struct proxy *proxy, const char *target, const struct damage *damage)
{
	*proxy = (struct proxy){ .damage = *damage };
	run_proxy(proxy, target);
}

void proxy_start_recording(struct proxy *proxy, const char *target, bool (*record)(void *user), void *user)
{
	*proxy = (struct proxy){ .record = record, .user = user };
	run_proxy(proxy, target);
}

bool proxy_stop(struct proxy *proxy)
{
	atomic_store(&proxy->stop, true);
	pthread_join(proxy->thread, NULL);
	close(proxy->listener);
	return atomic_load(&proxy->damaged);
}
