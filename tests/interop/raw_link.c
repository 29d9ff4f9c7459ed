/* SPDX-License-Identifier: BSD-2-Clause */
#include "raw_link.h"

#include <arpa/inet.h>
#include <endian.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LIMIT_MS 5000
#define LANE_HELLO 40

void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("raw_verbs: ", stderr);
	vfprintf(stderr, format, arguments);
	fputs("\n", stderr);
	va_end(arguments);
	exit(1);
}

void check(int good, const char *what)
{
	if (!good)
		fail("%s: %m", what);
}

uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*at++ = (uint8_t)(value >> (8 * i));
	return at;
}

uint64_t get(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | at[bytes];
	return value;
}

/* -- the control channel --------------------------------------------------------------------------- */

void say(struct stranger *stranger, enum control type, const uint8_t *body, size_t length)
{
	uint8_t message[12 + BODY_MAX];

	memcpy(message, "PLC1", 4);
	put(put(put(message + 4, type, 2), 0, 2), length, 4);
	memcpy(message + 12, body, length);
	check(SSL_write(stranger->ssl, message, (int)(12 + length)) == (int)(12 + length), "SSL_write");
}

/* Receives bytes, all of them. */
static void read_all(struct stranger *stranger, uint8_t *bytes, size_t length)
{
	while (length) {
		int got = SSL_read(stranger->ssl, bytes, (int)length);

		check(got > 0, "SSL_read");
		bytes += got;
		length -= (size_t)got;
	}
}

size_t hear(struct stranger *stranger, enum control type, uint8_t body[BODY_MAX])
{
	uint8_t header[12];
	size_t length;

	read_all(stranger, header, 12);
	length = get(header + 8, 4);
	if (memcmp(header, "PLC1", 4) || get(header + 4, 2) != type || get(header + 6, 2) || length > BODY_MAX)
		fail("message of type %u, not %u", (unsigned)get(header + 4, 2), type);
	read_all(stranger, body, length);
	return length;
}

static void connect_control(struct stranger *stranger, const char *address, const char *port)
{
	const struct timeval limit = { .tv_sec = LIMIT_MS / 1000 };

	stranger->server = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	check(inet_pton(AF_INET, address, &stranger->server.sin_addr) == 1, address);
	stranger->control = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(stranger->control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(stranger->control, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	check(!connect(stranger->control, (struct sockaddr *)&stranger->server, sizeof(stranger->server)), "connect");
	/* The server has no key: its certificate proves nothing. */
	stranger->tls = SSL_CTX_new(TLS_client_method());
	check(stranger->tls && SSL_CTX_set_min_proto_version(stranger->tls, TLS1_3_VERSION), "SSL_CTX_new");
	stranger->ssl = SSL_new(stranger->tls);
	check(stranger->ssl && SSL_set_fd(stranger->ssl, stranger->control), "SSL_new");
	check(SSL_connect(stranger->ssl) == 1, "SSL_connect");
}

/* Derives the secret of both ends from the TLS connection and the bodies of the two hellos. */
static void derive_secret(struct stranger *stranger, const uint8_t *ours, size_t our_length, const uint8_t *theirs,
			  size_t their_length)
{
	static const char label[] = "EXPORTER-peerlane-lanes";
	uint8_t digests[2][32], context[32];

	SHA256(ours, our_length, digests[0]);
	SHA256(theirs, their_length, digests[1]);
	SHA256(digests[0], sizeof(digests), context);
	check(SSL_export_keying_material(stranger->ssl, stranger->secret, sizeof(stranger->secret), label,
					 strlen(label), context, sizeof(context), 1) == 1,
	      "SSL_export_keying_material");
}

/* Computes a tag: the first 16 bytes of an HMAC with SHA-256 over a label with its NUL, and a message. */
static void make_tag(const struct stranger *stranger, const char *label, const uint8_t *message, size_t length,
		     uint8_t tag[TAG])
{
	uint8_t bytes[128], mac[32];
	size_t label_length = strlen(label) + 1;

	memcpy(bytes, label, label_length);
	memcpy(bytes + label_length, message, length);
	check(HMAC(EVP_sha256(), stranger->secret, sizeof(stranger->secret), bytes, label_length + length, mac, NULL) !=
		      NULL,
	      "HMAC");
	memcpy(tag, mac, TAG);
}

void greet(struct stranger *stranger, const char *address, const char *port)
{
	uint8_t hello[BODY_MAX], body[BODY_MAX], *at = put(put(hello, 2, 2), 2, 2);
	size_t length, blob;

	connect_control(stranger, address, port);
	memset(at, 0, 16); /* no boot id */
	memcpy(at + 16, "any 16 bytes id.", 16);
	at = put(at + 32, 0, 8);
	at = put(put(put(put(at, 1, 4), 8192, 4), 64, 4), 0, 4); /* sockets, eager messages, window, flags */
	at = mempcpy(put(at, 9, 2), "raw verbs", 9);
	at = mempcpy(put(put(at, 1, 2), 5, 2), "verbs", 5);
	at = put(at, 0, 2);
	say(stranger, HELLO, hello, (size_t)(at - hello));

	length = hear(stranger, HELLO, body);
	blob = 62 + get(body + 60, 2) + 2 + 2 + 5 + 2;
	/*
	 * Offsets follow docs/protocol.md: peer index, number of rails, addresses.  The first address is the
	 * server's.
	 */
	if (length < blob + WHO + 2 + PLACE || get(body + blob + WHO + 1, 1) < 1 || get(body + blob - 11, 2) != 1 ||
	    memcmp(body + blob - 7, "verbs", 5))
		fail("the answer chooses no verbs fabric");
	stranger->server.sin_port = htons((uint16_t)get(body + blob + WHO + 2 + 17, 2));
	memcpy(stranger->who, body + blob, WHO);
	derive_secret(stranger, hello, (size_t)(at - hello), body, length);
}

/* -- the queue pair -------------------------------------------------------------------------------- */

static enum rdma_cm_event_type next_event(struct stranger *stranger)
{
	struct pollfd ready = { .fd = stranger->events->fd, .events = POLLIN };
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;

	if (poll(&ready, 1, LIMIT_MS) != 1)
		fail("no event of the connection manager");
	check(!rdma_get_cm_event(stranger->events, &event), "rdma_get_cm_event");
	type = event->event;
	memset(stranger->answer, 0, sizeof(stranger->answer));
	if (type == RDMA_CM_EVENT_ESTABLISHED && event->param.conn.private_data_len >= sizeof(stranger->answer))
		memcpy(stranger->answer, event->param.conn.private_data, sizeof(stranger->answer));
	rdma_ack_cm_event(event);
	return type;
}

static void await_event(struct stranger *stranger, enum rdma_cm_event_type wanted)
{
	enum rdma_cm_event_type type = next_event(stranger);

	if (type != wanted)
		fail("%s in place of %s", rdma_event_str(type), rdma_event_str(wanted));
}

void post_receive(struct stranger *stranger, uint64_t number)
{
	struct ibv_sge element = { (uintptr_t)stranger->receives[number], FRAME_MAX, stranger->mr->lkey };
	struct ibv_recv_wr request = { .wr_id = number, .sg_list = &element, .num_sge = 1 }, *bad;

	check(!ibv_post_recv(stranger->id->qp, &request, &bad), "ibv_post_recv");
}

static void make_queue_pair(struct stranger *stranger)
{
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = 4, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (!stranger->pd) {
		stranger->pd = ibv_alloc_pd(stranger->id->verbs);
		check(stranger->pd != NULL, "ibv_alloc_pd");
		stranger->mr = ibv_reg_mr(stranger->pd, stranger, sizeof(*stranger), IBV_ACCESS_LOCAL_WRITE);
		check(stranger->mr != NULL, "ibv_reg_mr");
	}
	attributes.send_cq = stranger->send_cq = ibv_create_cq(stranger->id->verbs, 4, NULL, NULL, 0);
	attributes.recv_cq = stranger->receive_cq = ibv_create_cq(stranger->id->verbs, RECEIVES, NULL, NULL, 0);
	check(stranger->send_cq && stranger->receive_cq, "ibv_create_cq");
	check(!rdma_create_qp(stranger->id, stranger->pd, &attributes), "rdma_create_qp");
	/* The acceptor may send as soon as it is connected. */
	for (unsigned i = 0; i < RECEIVES; i++)
		post_receive(stranger, i);
}

void close_link(struct stranger *stranger)
{
	rdma_disconnect(stranger->id);
	rdma_destroy_qp(stranger->id);
	check(!ibv_destroy_cq(stranger->send_cq) && !ibv_destroy_cq(stranger->receive_cq), "ibv_destroy_cq");
	check(!rdma_destroy_id(stranger->id), "rdma_destroy_id");
	stranger->id = NULL;
}

void open_link(struct stranger *stranger, uint16_t generation, enum rdma_cm_event_type wanted)
{
	uint8_t hello[LANE_HELLO + RAIL] = "PLL2", answer[LANE_HELLO + RAIL + 2], tag[TAG];
	struct rdma_conn_param parameters = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 6,
		.rnr_retry_count = 6,
	};

	memcpy(put(put(hello + 4, 2, 2), generation, 2), stranger->who, WHO);
	put(hello + LANE_HELLO, 0x0100, 2); /* rail 0 of 1, to the first address */
	/* Over the message with zeros in place of the tag. */
	make_tag(stranger, "peerlane rail", hello, sizeof(hello), hello + 4 + 2 + 2 + WHO);
	check(!rdma_create_id(stranger->events, &stranger->id, NULL, RDMA_PS_TCP), "rdma_create_id");
	check(!rdma_resolve_addr(stranger->id, NULL, (struct sockaddr *)&stranger->server, LIMIT_MS),
	      "rdma_resolve_addr");
	await_event(stranger, RDMA_CM_EVENT_ADDR_RESOLVED);
	check(!rdma_resolve_route(stranger->id, LIMIT_MS), "rdma_resolve_route");
	await_event(stranger, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_queue_pair(stranger);
	check(!rdma_connect(stranger->id, &parameters), "rdma_connect");
	await_event(stranger, wanted);
	if (wanted != RDMA_CM_EVENT_ESTABLISHED)
		return;
	memcpy(answer, hello, sizeof(hello));
	memcpy(answer + sizeof(hello), stranger->answer, 2);
	make_tag(stranger, "peerlane rail answer", answer, sizeof(answer), tag);
	if (memcmp(tag, stranger->answer + 2, TAG))
		fail("the server's answer does not prove the secret");
}

struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc completion;

	for (unsigned i = 0; i < LIMIT_MS; i++) {
		if (ibv_poll_cq(cq, 1, &completion) == 1)
			return completion;
		usleep(1000);
	}
	fail("no completion");
}
