/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of raw_verbs: the control channel and a queue pair. */
#ifndef RAW_LINK_H
#define RAW_LINK_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <openssl/ssl.h>
#include <rdma/rdma_cma.h>

#include "raw_plan.h"

#define RECEIVES 16
#define FRAME_HEADER 32
#define FRAME_MAX (FRAME_HEADER + 8192)
#define WHO 8    /* peer index */
#define TAG 16
#define PLACE 19 /* offered address: IP version, address, port */
#define RAIL 12   /* end of a connection request: rail number, rail count, eight addresses, renewals */
#define BODY_MAX 4096

enum control { HELLO = 1, IMPORT = 3, IMPORTED = 4, BYE = 7 };

struct stranger {
	int control;
	SSL_CTX *tls;
	SSL *ssl; /* over that socket */
	uint8_t secret[32];
	uint8_t answer[2 + TAG]; /* private data of the server's last answer */
	struct sockaddr_in server; /* with the port from the server's hello */
	uint8_t who[WHO];
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *receive_cq;
	struct ibv_mr *mr; /* memory region of this structure */
	uint8_t receives[RECEIVES][FRAME_MAX];
	uint8_t frame[FRAME_MAX];
	uint8_t scratch[PLAN_LENGTH];
	uint32_t received; /* sequence number of the last frame */
};

/* Functions here end the program on failure. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void check(int good, const char *what);

/* Write and read little-endian numbers.  put() returns the address after the number. */
uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes);
uint64_t get(const uint8_t *at, unsigned bytes);

/* Connects, offers the verbs fabric, and takes the server's port and the peer index from the answer. */
void greet(struct stranger *stranger, const char *address, const char *port);
void say(struct stranger *stranger, enum control type, const uint8_t *body, size_t length);
/* Receives the next message, which must have this type.  Stores its body and returns the length. */
size_t hear(struct stranger *stranger, enum control type, uint8_t body[BODY_MAX]);

/* Requests a connection with a queue pair, which must end in this event. */
void open_link(struct stranger *stranger, uint16_t generation, enum rdma_cm_event_type wanted);
void close_link(struct stranger *stranger);
void post_receive(struct stranger *stranger, uint64_t number);
struct ibv_wc completion(struct ibv_cq *cq);

#endif
