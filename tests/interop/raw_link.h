/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of raw_verbs: the control channel and a queue pair. */
#ifndef RAW_LINK_H
#define RAW_LINK_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <openssl/ssl.h>

#include "raw_plan.h"

#define RECEIVES 16
#define FRAME_HEADER 32
#define FRAME_MAX (FRAME_HEADER + 8192)
#define RAIL_BODY 46 /* body of RAIL */
#define BODY_MAX 4096

enum control { HELLO = 1, IMPORT = 3, IMPORTED = 4, BYE = 7, RAIL = 9 };
enum step { CONNECT = 1, ACCEPT, DOWN };

struct stranger {
	int control;
	SSL_CTX *tls;
	SSL *ssl;                /* over that socket */
	union ibv_gid here;      /* this end's address of the control channel */
	union ibv_gid there;     /* the server's */
	uint8_t most_rails;      /* of the server */
	uint8_t far_port_count;  /* the server's ports */
	uint8_t far_port;        /* number of the one that this end connects to */
	struct ibv_context *device;
	uint8_t port;            /* of the device */
	uint8_t gid_index;       /* index of `here` at the port */
	enum ibv_mtu mtu;
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* memory region of this structure */
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *receive_cq;
	uint16_t generation; /* of the last connection */
	int in_use;          /* that connection was not closed */
	uint16_t given_up;   /* generation from which on the server may answer a CONNECT late; 0: none */
	uint8_t receives[RECEIVES][FRAME_MAX];
	uint8_t frame[FRAME_MAX];
	uint8_t scratch[PLAN_LENGTH];
	uint32_t received; /* sequence number of the last frame */
};

/* Functions here end the program on failure. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void check(int good, const char *what);

/* Write and read little-endian numbers. put() returns the address after the number. */
uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes);
uint64_t get(const uint8_t *at, unsigned bytes);

/* Connects, offers the verbs fabric, takes the server's ports from the answer, and finds this end's port. */
struct stranger *greet(const char *address, const char *port);
/* Ends the connection, and frees everything. */
void part(struct stranger *stranger);
void say(struct stranger *stranger, enum control type, const uint8_t *body, size_t length);
/*
 * Receives the next message, which must have this type. Stores its body and returns the length. Skips a DOWN of an
 * earlier connection.
 */
size_t hear(struct stranger *stranger, enum control type, uint8_t body[BODY_MAX]);
/* Checks that the server neither answers, except by a DOWN of an earlier connection, nor ends the control channel. */
void expect_silence(struct stranger *stranger);
/* Checks that the server ends the control channel. */
void expect_end(struct stranger *stranger);

/* Makes a queue pair that can receive, and drops it. */
void make_queue_pair(struct stranger *stranger);
void drop_queue_pair(struct stranger *stranger);
/* Sends a CONNECT for rail 0 of this many rails, all to one port of the server. */
void ask(struct stranger *stranger, uint16_t generation, unsigned rails, uint8_t far_port);
void say_down(struct stranger *stranger, uint16_t generation);
/* Connects a new queue pair. */
void open_link(struct stranger *stranger, uint16_t generation);
void close_link(struct stranger *stranger);
void post_receive(struct stranger *stranger, uint64_t number);
struct ibv_wc completion(struct ibv_cq *cq);

#endif
