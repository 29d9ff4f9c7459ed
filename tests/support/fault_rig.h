/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peer with two rails that are up, for tests of failures: the calls of their device are replaced. Soft-RoCE brings about
 * only some failures (tests/vm).
 */
#ifndef TEST_FAULT_RIG_H
#define TEST_FAULT_RIG_H

#ifdef PL_HAVE_VERBS

#include "fabric/verbs/verbs.h"

/* The device of the running test. */
struct fault_card {
	struct ibv_wc completion; /* to be polled next */
	bool completed;           /* true if there is one */
	enum ibv_event_type event;
	bool happened; /* true if there is such an event */
	struct ibv_qp *pair;     /* that has it, or whose queue has it */
	enum ibv_qp_state state; /* of all queue pairs */
	unsigned failed, destroyed; /* queue pairs, of which `failed` were moved into the error state */
	pthread_mutex_t *unheld;    /* nobody may hold it while a port is queried; NULL: anybody may */
	unsigned queried;           /* queries of ports meanwhile */
	unsigned queried_pairs;
};

extern struct fault_card fault_card;

struct fault_rig {
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct verbs_device device;
	struct ibv_context verbs;
	struct ibv_cq cq;
	struct ibv_srq srq;
	struct verbs_cq queue;
	struct pl_peer peer;
	bool handling; /* the channel keeps what is sent */
	struct verbs_endpoint endpoint;
	struct verbs_port ports[2];
	struct ibv_qp pairs[2];
	struct pl_operation operation;
	struct verbs_work *work; /* write that the first rail has posted */
};

/* Exits with 77 without libibverbs. The engine's lock is held. */
struct fault_rig *fault_rig_new(void);
void fault_rig_free(struct fault_rig *rig);
/* Returns the number of DOWNs that were sent, which are the only messages. */
size_t fault_rig_downs(const struct fault_rig *rig);
void fault_rig_expect_links(const struct fault_rig *rig, enum verbs_link first, enum verbs_link second);

#endif
#endif
