/* SPDX-License-Identifier: BSD-2-Clause */
/* raw_verbs's connection: the control channel, and a queue pair. */
#ifndef RAW_LINK_H
#define RAW_LINK_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "raw_plan.h"

#define RECEIVES 16
#define FRAME_HEADER 32
#define FRAME_MAX (FRAME_HEADER + 8192)
#define WHO 24   /* ticket and secret */
#define PLACE 19 /* a place that is offered: IP version, address, port */
#define RAIL 10  /* of a connection request: number, count, the places of eight */
#define BODY_MAX 4096

enum control { HELLO = 1, IMPORT = 3, IMPORTED = 4, BYE = 7 };

struct stranger {
	int control;
	struct sockaddr_in server; /* with the port that the hello named */
	uint8_t who[WHO];
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *sent, *came;
	struct ibv_mr *mr; /* of all of this */
	uint8_t receives[RECEIVES][FRAME_MAX];
	uint8_t frame[FRAME_MAX];
	uint8_t scratch[PLAN_LENGTH];
	uint32_t received; /* number of the last frame */
};

/* Everything here ends the program if it fails. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void check(int good, const char *what);

/* Little-endian numbers; put() returns what comes after. */
uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes);
uint64_t get(const uint8_t *at, unsigned bytes);

/* Connects, offers the verbs fabric, and learns from the answer where it is and what to say there. */
void greet(struct stranger *stranger, const char *address, const char *port);
void say(struct stranger *stranger, enum control type, const uint8_t *body, size_t length);
/* The body of the next message, which must be of that type; returns its length. */
size_t hear(struct stranger *stranger, enum control type, uint8_t body[BODY_MAX]);

/* Asks for a connection with a queue pair, which must end in this event. */
void open_link(struct stranger *stranger, uint16_t generation, enum rdma_cm_event_type wanted);
void close_link(struct stranger *stranger);
void post_receive(struct stranger *stranger, uint64_t number);
struct ibv_wc completion(struct ibv_cq *cq);

#endif
