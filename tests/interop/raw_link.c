/* SPDX-License-Identifier: BSD-2-Clause */
#include "raw_link.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LIMIT_MS 5000
#define SILENCE_MS 300
#define ADVERT_PORT 17 /* port in the server's blob: link layer, GID */
#define FIRST_PSN 0xfffff0 /* wraps around soon */
#define READS 1

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

/* Receives a message of any type. */
static enum control hear_any(struct stranger *stranger, uint8_t body[BODY_MAX], size_t *length)
{
	uint8_t header[12];

	read_all(stranger, header, 12);
	*length = get(header + 8, 4);
	if (memcmp(header, "PLC1", 4) || get(header + 6, 2) || *length > BODY_MAX)
		fail("a malformed message of type %u", (unsigned)get(header + 4, 2));
	read_all(stranger, body, *length);
	return (enum control)get(header + 4, 2);
}

/*
 * True for the server's report that it uses an earlier connection no more. The server's queue pair may fail after this
 * end has closed its own.
 */
static int is_late_down(const struct stranger *stranger, enum control type, const uint8_t *body, size_t length)
{
	if (type != RAIL || length != RAIL_BODY || body[0] != DOWN)
		return 0;
	for (size_t i = 4; i < RAIL_BODY; i++)
		if (body[i])
			fail("byte %zu of a DOWN is not zero", i);
	if (body[1])
		fail("a DOWN of rail %u", body[1]);
	return !stranger->in_use || get(body + 2, 2) != stranger->generation;
}

size_t hear(struct stranger *stranger, enum control type, uint8_t body[BODY_MAX])
{
	enum control heard;
	size_t length;

	do
		heard = hear_any(stranger, body, &length);
	while (is_late_down(stranger, heard, body, length));
	if (heard != type)
		fail("message of type %u, not %u", heard, type);
	return length;
}

void expect_silence(struct stranger *stranger)
{
	struct pollfd ready = { .fd = stranger->control, .events = POLLIN };
	uint8_t body[BODY_MAX];
	enum control type;
	size_t length;

	while (SSL_pending(stranger->ssl) || poll(&ready, 1, SILENCE_MS) == 1) {
		type = hear_any(stranger, body, &length);
		if (!is_late_down(stranger, type, body, length))
			fail("an answer of type %u", type);
	}
}

void expect_end(struct stranger *stranger)
{
	uint8_t byte;

	if (SSL_read(stranger->ssl, &byte, 1) > 0)
		fail("the server does not end the control channel");
	if (SSL_get_error(stranger->ssl, 0) == SSL_ERROR_WANT_READ)
		fail("the server does nothing");
}

static union ibv_gid mapped(const struct sockaddr_in *address)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	memcpy(gid.raw + 12, &address->sin_addr, 4);
	return gid;
}

static void connect_control(struct stranger *stranger, const char *address, const char *port)
{
	struct sockaddr_in server = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) }, local;
	const struct timeval limit = { .tv_sec = LIMIT_MS / 1000 };
	socklen_t length = sizeof(local);

	check(inet_pton(AF_INET, address, &server.sin_addr) == 1, address);
	stranger->control = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(stranger->control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(stranger->control, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	check(!connect(stranger->control, (struct sockaddr *)&server, sizeof(server)), "connect");
	check(!getsockname(stranger->control, (struct sockaddr *)&local, &length), "getsockname");
	stranger->here = mapped(&local);
	stranger->there = mapped(&server);
	/* The server has no key: its certificate proves nothing. */
	stranger->tls = SSL_CTX_new(TLS_client_method());
	check(stranger->tls && SSL_CTX_set_min_proto_version(stranger->tls, TLS1_3_VERSION), "SSL_CTX_new");
	stranger->ssl = SSL_new(stranger->tls);
	check(stranger->ssl && SSL_set_fd(stranger->ssl, stranger->control), "SSL_new");
	check(SSL_connect(stranger->ssl) == 1, "SSL_connect");
}

/* Takes the server's ports: most rails, number of ports, link layer and GID of each. */
static void read_advert(struct stranger *stranger, const uint8_t *blob, size_t length)
{
	if (length < 2 || !blob[0] || !blob[1] || length != 2 + (size_t)blob[1] * ADVERT_PORT)
		fail("a description of the verbs fabric in %zu bytes", length);
	stranger->most_rails = blob[0];
	stranger->far_port_count = blob[1];
	for (uint8_t i = 0; i < stranger->far_port_count; i++) {
		const uint8_t *port = blob + 2 + i * ADVERT_PORT;

		if (port[0] != IBV_LINK_LAYER_INFINIBAND && port[0] != IBV_LINK_LAYER_ETHERNET)
			fail("port %u has the link layer %u", i, port[0]);
		if (!memcmp(port + 1, &stranger->there, sizeof(stranger->there)))
			stranger->far_port = i;
	}
}

static void exchange_hellos(struct stranger *stranger)
{
	uint8_t hello[BODY_MAX], body[BODY_MAX], *at = put(put(hello, 2, 2), 2, 2);
	size_t length, blob;

	memset(at, 0, 16); /* no boot id */
	memcpy(at + 16, "any 16 bytes id.", 16);
	at = put(at + 32, 0, 8);
	at = put(put(put(put(at, 1, 4), 8192, 4), 64, 4), 0, 4); /* sockets, eager messages, window, flags */
	at = mempcpy(put(at, 9, 2), "raw verbs", 9);
	at = mempcpy(put(put(at, 1, 2), 5, 2), "verbs", 5);
	at = put(at, 0, 2);
	say(stranger, HELLO, hello, (size_t)(at - hello));

	length = hear(stranger, HELLO, body);
	/* The only fabric: its name and its blob. */
	blob = 62 + get(body + 60, 2) + 2 + 2 + 5 + 2;
	if (length < blob || get(body + blob - 11, 2) != 1 || get(body + blob - 9, 2) != 5 ||
	    memcmp(body + blob - 7, "verbs", 5) || length < blob + get(body + blob - 2, 2))
		fail("the answer chooses no verbs fabric");
	read_advert(stranger, body + blob, get(body + blob - 2, 2));
}

/* -- the device ------------------------------------------------------------------------------------ */

/* Looks for this end's address at a port. Prefers version 2 of RoCE, which the library uses. */
static int find_gid(struct stranger *stranger, struct ibv_context *device, uint8_t number)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	int found = 0;

	check(!ibv_query_port(device, number, &port), "ibv_query_port");
	for (int i = 0; i < port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(device, number, (uint32_t)i, &entry, 0) ||
		    memcmp(&entry.gid, &stranger->here, sizeof(entry.gid)))
			continue;
		if (!found || entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			stranger->gid_index = (uint8_t)i;
		found = 1;
	}
	stranger->mtu = port.active_mtu;
	stranger->port = number;
	return found;
}

static int find_port(struct stranger *stranger, struct ibv_context *device)
{
	struct ibv_device_attr attributes;

	check(!ibv_query_device(device, &attributes), "ibv_query_device");
	for (uint8_t number = 1; number <= attributes.phys_port_cnt; number++)
		if (find_gid(stranger, device, number))
			return 1;
	return 0;
}

static void open_device(struct stranger *stranger)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	check(list != NULL, "ibv_get_device_list");
	for (struct ibv_device **at = list; *at && !stranger->device; at++) {
		struct ibv_context *device = ibv_open_device(*at);

		check(device != NULL, "ibv_open_device");
		if (find_port(stranger, device))
			stranger->device = device;
		else
			ibv_close_device(device);
	}
	ibv_free_device_list(list);
	if (!stranger->device)
		fail("no device has the address of the control channel");
	stranger->pd = ibv_alloc_pd(stranger->device);
	check(stranger->pd != NULL, "ibv_alloc_pd");
	stranger->mr = ibv_reg_mr(stranger->pd, stranger, sizeof(*stranger), IBV_ACCESS_LOCAL_WRITE);
	check(stranger->mr != NULL, "ibv_reg_mr");
}

struct stranger *greet(const char *address, const char *port)
{
	struct stranger *stranger = calloc(1, sizeof(*stranger));

	check(stranger != NULL, "calloc");
	connect_control(stranger, address, port);
	exchange_hellos(stranger);
	open_device(stranger);
	return stranger;
}

void part(struct stranger *stranger)
{
	SSL_free(stranger->ssl);
	SSL_CTX_free(stranger->tls);
	close(stranger->control);
	check(!ibv_dereg_mr(stranger->mr) && !ibv_dealloc_pd(stranger->pd), "ibv_dealloc_pd");
	check(!ibv_close_device(stranger->device), "ibv_close_device");
	free(stranger);
}

/* -- the queue pair -------------------------------------------------------------------------------- */

void post_receive(struct stranger *stranger, uint64_t number)
{
	struct ibv_sge element = { (uintptr_t)stranger->receives[number], FRAME_MAX, stranger->mr->lkey };
	struct ibv_recv_wr request = { .wr_id = number, .sg_list = &element, .num_sge = 1 }, *bad;

	check(!ibv_post_recv(stranger->qp, &request, &bad), "ibv_post_recv");
}

void make_queue_pair(struct stranger *stranger)
{
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = 4, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	/* The server accesses no memory of this end. */
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = stranger->port };

	attributes.send_cq = stranger->send_cq = ibv_create_cq(stranger->device, 4, NULL, NULL, 0);
	attributes.recv_cq = stranger->receive_cq = ibv_create_cq(stranger->device, RECEIVES, NULL, NULL, 0);
	check(stranger->send_cq && stranger->receive_cq, "ibv_create_cq");
	stranger->qp = ibv_create_qp(stranger->pd, &attributes);
	check(stranger->qp != NULL, "ibv_create_qp");
	check(!ibv_modify_qp(stranger->qp, &init,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	      "ibv_modify_qp to INIT");
	/* The server may send as soon as it has the empty message. */
	for (unsigned i = 0; i < RECEIVES; i++)
		post_receive(stranger, i);
}

void drop_queue_pair(struct stranger *stranger)
{
	check(!ibv_destroy_qp(stranger->qp), "ibv_destroy_qp");
	check(!ibv_destroy_cq(stranger->send_cq) && !ibv_destroy_cq(stranger->receive_cq), "ibv_destroy_cq");
}

void ask(struct stranger *stranger, uint16_t generation, unsigned rails, uint8_t far_port)
{
	uint8_t body[RAIL_BODY] = { CONNECT, 0 }, *at = put(put(body + 2, generation, 2), rails, 1);

	memset(at, far_port, rails);
	at = put(at + 8, 0, 2); /* renewals */
	at = put(put(put(at, stranger->qp->qp_num, 4), FIRST_PSN, 4), 0, 2);
	at = mempcpy(at, stranger->here.raw, sizeof(stranger->here.raw));
	put(put(put(at, stranger->mtu, 1), READS, 1), 0, 1);
	say(stranger, RAIL, body, sizeof(body));
}

void say_down(struct stranger *stranger, uint16_t generation)
{
	uint8_t body[RAIL_BODY] = { DOWN, 0 };

	put(body + 2, generation, 2);
	say(stranger, RAIL, body, sizeof(body));
}

/* Connects the queue pair to the one that the server's ACCEPT describes. */
static void move_queue_pair(struct stranger *stranger, const uint8_t *answer)
{
	uint8_t mtu = answer[41], reads = answer[42];
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu < stranger->mtu ? (enum ibv_mtu)mtu : stranger->mtu,
		.dest_qp_num = (uint32_t)get(answer + 15, 4),
		.rq_psn = (uint32_t)get(answer + 19, 4),
		.max_dest_rd_atomic = READS,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = stranger->port,
			.dlid = (uint16_t)get(answer + 23, 2),
			.grh = { .sgid_index = stranger->gid_index, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = FIRST_PSN,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 6,
		.max_rd_atomic = reads < READS ? reads : READS,
	};

	memcpy(receive.ah_attr.grh.dgid.raw, answer + 25, sizeof(receive.ah_attr.grh.dgid.raw));
	check(!ibv_modify_qp(stranger->qp, &receive,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      "ibv_modify_qp to RTR");
	check(!ibv_modify_qp(stranger->qp, &send,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC),
	      "ibv_modify_qp to RTS");
}

/* Checks the server's queue pair. */
static void check_accept(struct stranger *stranger, const uint8_t *body, size_t length)
{
	static const uint8_t none[1 + 8];

	if (length != RAIL_BODY || body[0] != ACCEPT || body[1] || get(body + 2, 2) != stranger->generation)
		fail("step %u of rail %u, generation %u, in %zu bytes", body[0], body[1], (unsigned)get(body + 2, 2),
		     length);
	if (memcmp(body + 4, none, sizeof(none)) || get(body + 13, 2))
		fail("an ACCEPT with rails, ports or renewals");
	if (memcmp(body + 25, &stranger->there, sizeof(stranger->there)))
		fail("an ACCEPT from another address");
	if (!get(body + 15, 4) || get(body + 15, 4) >> 24 || get(body + 19, 4) >> 24 || !body[42])
		fail("an ACCEPT without a queue pair");
}

/* Sends the empty message that proves the path. */
static void prove(struct stranger *stranger)
{
	struct ibv_send_wr proof = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc done;

	check(!ibv_post_send(stranger->qp, &proof, &bad), "ibv_post_send");
	done = completion(stranger->send_cq);
	if (done.status != IBV_WC_SUCCESS)
		fail("the empty message: %s", ibv_wc_status_str(done.status));
}

/* True for an answer to a CONNECT that this end gave up. */
static int is_given_up(const struct stranger *stranger, const uint8_t *body, size_t length)
{
	uint16_t generation = (uint16_t)get(body + 2, 2);

	return stranger->given_up && length == RAIL_BODY && body[0] == ACCEPT && generation >= stranger->given_up &&
	       generation < stranger->generation;
}

void open_link(struct stranger *stranger, uint16_t generation)
{
	uint8_t answer[BODY_MAX];
	size_t length;

	make_queue_pair(stranger);
	stranger->generation = generation;
	stranger->in_use = 1;
	ask(stranger, generation, 1, stranger->far_port);
	do
		length = hear(stranger, RAIL, answer);
	while (is_given_up(stranger, answer, length));
	check_accept(stranger, answer, length);
	move_queue_pair(stranger, answer);
	prove(stranger);
}

void close_link(struct stranger *stranger)
{
	stranger->in_use = 0;
	drop_queue_pair(stranger);
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
