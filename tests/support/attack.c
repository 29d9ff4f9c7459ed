/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/attack.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/lane_auth.h"
#include "support/check.h"
#include "support/socket.h"
#include "support/tls_link.h"
#include "support/victim.h"

struct bytes attack_encode(const struct pl_control *control)
{
	struct bytes bytes;
	int length = pl_control_encode(control, bytes.data, MESSAGE_MAX);

	check(length > 0);
	bytes.length = (size_t)length;
	return bytes;
}

/* Data between processes of one host is in the clear unless an end demands encryption. */
static void read_boot_id(uint8_t id[16])
{
	char text[40] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

	check(file && fgets(text, sizeof(text), file));
	fclose(file);
	for (unsigned i = 0, at = 0; i < 16; i++, at += 2) {
		at += text[at] == '-';
		check_number(sscanf(text + at, "%2hhx", &id[i]), 1);
	}
}

struct pl_control attack_hello(void)
{
	struct pl_control control = { .type = PL_CONTROL_HELLO };

	control.hello.version_min = control.hello.version_max = PL_PROTOCOL_VERSION;
	read_boot_id(control.hello.boot_id);
	memset(control.hello.context_id, 7, sizeof(control.hello.context_id));
	control.hello.lanes = 4;
	control.hello.eager_max = 8192;
	control.hello.window = 64;
	control.hello.capabilities = PL_CAPABILITY_NOTIFY_LANES;
	strcpy(control.hello.software, "peerlane 0.1.0");
	control.hello.fabric_count = 1;
	strcpy(control.hello.fabrics[0].name, "tcp");
	return control;
}

static void digest_body(const void *body, size_t length, uint8_t digest[PL_SECRET])
{
	SHA256(body, length, digest);
}

static void receive_hello(struct tls_link *link, struct pl_control *hello, uint8_t digest[PL_SECRET])
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	uint32_t length;
	uint16_t type;

	check(tls_link_receive(link, header, sizeof(header), 10000));
	check_number(pl_control_header_decode(header, &type, &length), 0);
	check(tls_link_receive(link, body, length, 10000));
	check_number(pl_control_decode(type, body, length, hello), 0);
	check_number(hello->type, PL_CONTROL_HELLO);
	digest_body(body, length, digest);
}

/* Derives the secret of both ends: digests[0] is that of the initiator's hello. */
static void derive_secret(const struct tls_link *link, uint8_t digests[2][PL_SECRET], struct attack_target *target)
{
	uint8_t context[PL_SECRET];

	digest_body(digests, 2 * PL_SECRET, context);
	check_number(pl_stream_export(&link->stream, PL_EXPORT_LANES, context, target->secret), 0);
}

/* Both fill the digests of the initiator's and of the acceptor's hello, and the other end's hello. */
static void greet(struct tls_link *link, const char *address, const struct pl_control *hello, struct pl_control *answer,
		  uint8_t digests[2][PL_SECRET])
{
	struct bytes bytes = attack_encode(hello);
	int fd = socket_connect(address);

	check(fd >= 0);
	check(tls_link_open(link, fd, false));
	check(tls_link_send(link, bytes.data, bytes.length));
	digest_body(bytes.data + PL_CONTROL_HEADER, bytes.length - PL_CONTROL_HEADER, digests[0]);
	receive_hello(link, answer, digests[1]);
}

static void serve(struct tls_link *link, int listener, const struct pl_control *answer, struct pl_control *hello,
		  uint8_t digests[2][PL_SECRET])
{
	struct bytes bytes = attack_encode(answer);

	check(tls_link_open(link, socket_accept(listener), true));
	receive_hello(link, hello, digests[0]);
	digest_body(bytes.data + PL_CONTROL_HEADER, bytes.length - PL_CONTROL_HEADER, digests[1]);
	check(tls_link_send(link, bytes.data, bytes.length));
}

int attack_greet(const char *address, struct attack_target *target)
{
	struct pl_control hello = attack_hello(), answer;
	uint8_t digests[2][PL_SECRET];
	struct tls_link link;
	struct pl_reader reader;

	greet(&link, address, &hello, &answer, digests);
	if (target) {
		check_text(answer.hello.fabrics[0].name, "tcp");
		pl_reader_init(&reader, answer.hello.fabrics[0].blob, answer.hello.fabrics[0].blob_length);
		target->peer_index = pl_get_u64(&reader);
		check(!reader.bad);
		derive_secret(&link, digests, target);
	}
	return tls_link_socket(&link);
}

int attack_greet_as(const char *address, const struct pl_control *hello, struct pl_control *answer)
{
	uint8_t digests[2][PL_SECRET];
	struct tls_link link;

	greet(&link, address, hello, answer, digests);
	return tls_link_socket(&link);
}

int attack_serve(int listener, struct attack_target *target)
{
	struct pl_control hello, answer = attack_hello();
	uint8_t digests[2][PL_SECRET];
	struct tls_link link;

	target->peer_index = 0;
	answer.hello.fabrics[0].blob_length = sizeof(target->peer_index);
	serve(&link, listener, &answer, &hello, digests);
	derive_secret(&link, digests, target);
	return tls_link_socket(&link);
}

int attack_serve_as(int listener, const struct pl_control *answer)
{
	uint8_t digests[2][PL_SECRET];
	struct pl_control hello;
	struct tls_link link;

	serve(&link, listener, answer, &hello, digests);
	return tls_link_socket(&link);
}

int attack_lane(const char *address, const struct attack_target *target, uint16_t lane)
{
	struct pl_peer *peer = calloc(1, sizeof(*peer));
	uint8_t proof[PL_TAG], welcome[PL_LANE_WELCOME], secret[PL_SECRET];
	struct pl_lane_auth auth;
	uint32_t status;
	int fd = socket_connect(address);

	check(fd >= 0 && peer);
	peer->secret = secret;
	memcpy(secret, target->secret, sizeof(secret));
	check_number(pl_lane_auth_hello(&auth, target->peer_index, lane), 0);
	check(socket_send(fd, auth.hello, sizeof(auth.hello)));
	check(socket_receive(fd, auth.challenge, sizeof(auth.challenge), AMPLE_MS));
	check_number(pl_lane_auth_prove(&auth, peer, proof), 0);
	check(socket_send(fd, proof, sizeof(proof)));
	check(socket_receive(fd, welcome, sizeof(welcome), AMPLE_MS));
	check_number(pl_lane_welcome_decode(welcome, &status), 0);
	check_number(status, PL_WIRE_OK);
	free(peer);
	return fd;
}

int attack_serve_lane(int listener, const struct attack_target *target)
{
	struct pl_peer *peer = calloc(1, sizeof(*peer));
	uint8_t proof[PL_TAG], welcome[PL_LANE_WELCOME], secret[PL_SECRET];
	struct pl_lane_auth auth;
	int fd = socket_accept(listener);

	check(peer);
	peer->secret = secret;
	memcpy(secret, target->secret, sizeof(secret));
	check(socket_receive(fd, auth.hello, sizeof(auth.hello), AMPLE_MS));
	check_number(pl_lane_auth_challenge(&auth, peer), 0);
	check(socket_send(fd, auth.challenge, sizeof(auth.challenge)));
	check(socket_receive(fd, proof, sizeof(proof), AMPLE_MS));
	check(pl_lane_auth_check(&auth, peer, proof));
	pl_lane_welcome_encode(PL_WIRE_OK, welcome);
	check(socket_send(fd, welcome, sizeof(welcome)));
	free(peer);
	return fd;
}

void attack_open(struct attack_link *link, struct victim *victim, bool connects)
{
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_error error;
	char address[32];

	link->listener = -1;
	if (!connects) {
		link->control = attack_greet(victim->address, &link->target);
		link->lane = attack_lane(victim->address, &link->target, 0);
		check_ok(pl_accept(victim->listener, AMPLE_TIME, &link->peer, &error), &error);
		return;
	}
	link->listener = socket_listen(address);
	check_ok(pl_connect_start(victim->context, address, AMPLE_TIME, 0, &operation, &error), &error);
	link->control = attack_serve(link->listener, &link->target);
	link->lane = attack_serve_lane(link->listener, &link->target);
	check_ok(pl_wait(operation, UINT64_MAX, &completion, &error), &error);
	link->peer = completion.peer;
}

void attack_close(struct attack_link *link)
{
	close(link->lane);
	close(link->control);
	if (link->listener >= 0)
		close(link->listener);
	pl_peer_close(link->peer);
}
