/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * End of a connection over verbs, for tests of its rails: a real endpoint with a replaced device. The test is the other
 * end: it reads the control channel, delivers messages, and lets timers expire. It holds the engine's lock.
 */
#ifndef TEST_VERBS_RIG_H
#define TEST_VERBS_RIG_H

#ifdef PL_HAVE_VERBS

#include "fabric/verbs/verbs.h"

#define VERBS_RIG_PAIRS 32
#define VERBS_RIG_ROOM 100

/* The device, and its queue pairs. */
struct verbs_rig_card {
	struct ibv_qp pairs[VERBS_RIG_PAIRS];
	enum ibv_qp_state states[VERBS_RIG_PAIRS];
	bool present[VERBS_RIG_PAIRS];
	unsigned made, destroyed; /* queue pairs */
	unsigned moves, failed;   /* calls that move one, and those that move one into the error state */
	struct ibv_qp_init_attr asked;           /* of the last queue pair that was asked for */
	struct ibv_qp_attr begin, receive, send; /* of the last moves to INIT, RTR and RTS */
	uint32_t inline_granted;                 /* inline bytes that queue pairs get */
	struct ibv_wc completions[8];     /* to be polled */
	unsigned completion_count;
	unsigned posted;
	struct ibv_send_wr request; /* posted last */
	enum ibv_port_state port_state;
	enum ibv_mtu mtu;            /* of all ports */
	unsigned port_flags;         /* IBV_QPF_* */
	struct ibv_ece ece, ece_set; /* options of queue pairs, and those that were set last */
	/* Of all ports; a look at the ports reads it if the device has ports by its attributes, which are 0 at first. */
	struct ibv_gid_entry table[4];
	unsigned table_count;
	unsigned looks; /* calls that list the devices */
	/* errno values; 0: the call succeeds */
	int no_pair, no_init, no_receive, no_send, no_post, no_ece, no_ece_set, no_destroy;
	/* True if moves to RTR wait. */
	atomic_bool holds;
	atomic_uint held;   /* moves to RTR that began */
	atomic_bool misused; /* a queue pair was used that is gone, or destroyed while a job used it */
};

struct verbs_rig {
	struct verbs_rig_card card;
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct verbs_device device;
	struct ibv_device listed, *devices[2]; /* list of devices */
	struct verbs_port ports[4];
	struct ibv_context verbs;
	struct ibv_cq cq;
	struct ibv_srq srq;
	struct verbs_cq queue;
	struct verbs_buffer buffers[8]; /* receives */
	unsigned arrived;
	struct pl_peer peer;
	struct verbs_endpoint *endpoint; /* NULL: the test closed it */
	int far;                         /* other end of the control channel */
	uint64_t acted;                  /* time before the last call that may set a timer */
};

/* Bounds of the time for which a timer was set: the machine may stand still between two calls. Nanoseconds. */
struct verbs_rig_time {
	uint64_t least, most;
};

/* The peer is up, and its endpoint was never. An initiator has sent its first requests. */
struct verbs_rig *verbs_rig_new(bool initiator, bool ethernet, unsigned rails);
/* Checks that the endpoint leaves nothing behind. */
void verbs_rig_free(struct verbs_rig *rig);

/* verbs_rig_card.c: fills the library, with calls of the rig's card. */
void verbs_rig_open_card(struct verbs_rig *rig);

/* Runs the engine's tasks. */
void verbs_rig_settle(struct verbs_rig *rig);
/* Runs a timer that is set, as the engine does. */
void verbs_rig_expire(struct verbs_rig *rig, struct pl_timer *timer);
/* Runs the checks of a rail's attempt until it ends. Returns the time that it had. */
struct verbs_rig_time verbs_rig_expire_attempt(struct verbs_rig *rig, unsigned index);
/* Returns the time of a timer, which must be set. */
struct verbs_rig_time verbs_rig_until(const struct verbs_rig *rig, const struct pl_timer *timer);

/* Returns the next message that was sent, which must be of this kind. */
struct pl_rail_message verbs_rig_expect(struct verbs_rig *rig, enum pl_rail_step step, unsigned index,
					uint16_t generation);
/* Checks the next message that was sent, a question for rails or an answer. */
void verbs_rig_expect_rails(struct verbs_rig *rig, uint16_t acceptor, uint16_t initiator, uint8_t rails);
/* Checks that no message was sent. */
void verbs_rig_expect_silence(struct verbs_rig *rig);

/* Returns a good message of the other end. */
struct pl_rail_message verbs_rig_message(enum pl_rail_step step, unsigned index, uint16_t generation);
/* Delivers a message, and returns the endpoint's result. */
int verbs_rig_deliver(struct verbs_rig *rig, const struct pl_rail_message *message);
/* Delivers such a message, which must be taken. */
void verbs_rig_send(struct verbs_rig *rig, enum pl_rail_step step, unsigned index, uint16_t generation);

/* The device completes the proof of a rail's queue pair, or takes the other end's. Nothing is polled yet. */
void verbs_rig_complete(struct verbs_rig *rig, unsigned rail, enum ibv_wc_status status);
void verbs_rig_arrive(struct verbs_rig *rig, unsigned rail);
/* Polls, and runs tasks. */
void verbs_rig_poll(struct verbs_rig *rig);

/* Brings a rail's first connection up, of this generation at an acceptor. */
void verbs_rig_bring_up(struct verbs_rig *rig, unsigned rail, uint16_t generation);
/* Brings the rail into this state, with messages of generation 1. READYING needs an Ethernet port. */
void verbs_rig_bring_to(struct verbs_rig *rig, enum verbs_link link);
/* Waits until a job is in the device's call, and until no job is left. */
void verbs_rig_wait_held(struct verbs_rig *rig);
void verbs_rig_release(struct verbs_rig *rig);

/* Checks the state of a rail, and the queue pairs that exist. */
void verbs_rig_expect_link(const struct verbs_rig *rig, unsigned rail, enum verbs_link link, unsigned pairs);

#endif
#endif
