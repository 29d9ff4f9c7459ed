/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoint of the verbs fabric: its rails, and work that waits for them. */
#ifndef PL_FABRIC_VERBS_ENDPOINT_H
#define PL_FABRIC_VERBS_ENDPOINT_H

#include "fabric/verbs/rail.h"

/* Combinations of near ports for which an endpoint remembers rails. */
#define VERBS_CHOICES 32

/* Rails for transfers between memory near some ports of this end and memory near some ports of the other end. */
struct verbs_choice {
	unsigned near; /* mask of places; 0: all ports are alike */
	uint16_t far;  /* mask of the other end's ports, by number; 0: all ports are alike */
	uint8_t rails;
	bool known; /* acceptor: the initiator has answered */
};

struct verbs_far_port {
	uint8_t link_layer;
	union ibv_gid gid;
};

struct verbs_endpoint {
	struct pl_endpoint base;
	struct verbs_state *state;
	struct verbs_rail rails[VERBS_RAILS];
	unsigned rail_count;       /* 0: unknown yet */
	struct verbs_rail *framer; /* rail of the numbered frames; NULL: none so far */
	struct verbs_rail *latest; /* rail of the last request */
	bool opened;               /* a rail was up */
	atomic_uint lanes;         /* verbs_rails_up(), for threads other than the home engine's */
	bool closing;              /* no more connections */
	bool flushing;
	bool listing;             /* PL_MORE: waiting work belongs to a list whose last operation is to come */
	struct pl_timer patience; /* timeout of that */
	bool windowed;            /* the peer got a window at least once */
	unsigned questions;       /* unanswered questions of the peer for keys, and imports whose windows are not bound */
	struct pl_list targets;   /* state->lock */
	uint64_t down_since;      /* time since no rail is up; 0: one is, or none was so far */

	/* This end's ports; an acceptor advertises them with their addresses. An initiator knows the acceptor's ports. */
	struct verbs_port *ports[VERBS_PORTS_MAX];
	union ibv_gid gids[VERBS_PORTS_MAX];
	unsigned port_count;
	struct verbs_far_port far_ports[VERBS_PORTS_MAX];
	unsigned far_port_count;
	unsigned rails_most;                          /* initiator: limit of both ends */
	struct verbs_choice choices[VERBS_CHOICES]; /* the first one is for memory to which all ports are alike */
	unsigned choice_count;
	struct pl_list parked; /* transfers that wait for the first connection of their rails, or for the initiator's answer */
	struct pl_timer parking;
	struct pl_task *abandoned; /* to be posted when no connector uses the rails any more */

	struct pl_list waiting; /* waiting work */
	unsigned waiting_count; /* waiting work added since the last flush */
	struct pl_list again;   /* returned unfinished: to be posted first */
	struct pl_list registering; /* waits until memory is registered */
	struct pl_list copying; /* staged: its bytes are being copied */
	struct pl_list waiter_link; /* among the engine's endpoints that wait for registrations */
	struct pl_pool spare;   /* unused work objects */
	struct pl_list settling; /* operations that wait for answers to FLUSH, or for reads of this end */
	struct pl_list flushes;  /* flushes for the peer, and for those operations */
	unsigned flush_count;
	unsigned asked;    /* fences and flushes that the peer asked for since its unsent answers were counted */
	unsigned suspects; /* requests of which one failed; while there are some, each request is signaled */
	uint32_t next_cookie;
	struct pl_list early; /* frames that came early */
	unsigned early_count;
	struct {
		struct pl_timer timer; /* looks for the frame that those wait for */
		uint32_t received;     /* number of the last frame when the looks began */
		unsigned looks;
	} gap;
	uint32_t sent, received; /* numbers of the last frames */
	uint32_t notified;       /* number of the last notification that went with a write */
};

static inline struct verbs_endpoint *verbs_endpoint_of(struct pl_endpoint *endpoint)
{
	return pl_container_of(endpoint, struct verbs_endpoint, base);
}

static inline const struct verbs_library *verbs_library_of(const struct verbs_rail *rail)
{
	return rail->endpoint->state->library;
}

static inline bool verbs_is_lost(const struct verbs_endpoint *endpoint)
{
	return atomic_load(&endpoint->base.peer->state) == PL_PEER_LOST;
}

/* True if nothing more must be connected. */
static inline bool verbs_finished(const struct verbs_endpoint *endpoint)
{
	return endpoint->closing || endpoint->base.peer->leaving || verbs_is_lost(endpoint);
}

static inline unsigned verbs_rails_up(const struct verbs_endpoint *endpoint)
{
	unsigned count = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		count += endpoint->rails[i].link == VERBS_UP;
	return count;
}

/* True if this end closes a connection that still works. The rails of a peer that is lost fail first. */
static inline bool verbs_is_leaving(const struct verbs_endpoint *endpoint)
{
	return verbs_is_lost(endpoint) && verbs_rails_up(endpoint);
}

/* path_memory.c: pairs of ports that did not reach each other. Called by initiators. */
/* Another fabric replaces this one, which was never up: remembers the pairs whose packets did not arrive. */
void verbs_paths_remember(struct pl_endpoint *endpoint);
/* Returns true if the pairs of all rails are remembered. */
bool verbs_paths_are_lost(const struct verbs_endpoint *endpoint);
/* The rail's pair works. */
void verbs_path_found(const struct verbs_rail *rail);
/* A device reported a change: forgets all pairs. The caller does not hold the lock. */
void verbs_paths_forget(struct verbs_state *state);

/* rail_choice.c: rails by the cards near the memory at both ends */
/* Sets the rails of the first choice. */
void verbs_choices_open(struct verbs_endpoint *endpoint);
/* Returns the number of the choice for a transfer; `near` is a mask of places. Makes rails if they are missing. */
uint8_t verbs_choose(struct verbs_endpoint *endpoint, unsigned near, uint16_t far);
/*
 * Returns the rails that carry such transfers now, without those over which the owner refuses a key of the target; 0:
 * they must wait.
 */
uint8_t verbs_live_rails(const struct verbs_endpoint *endpoint, uint8_t choice, const struct verbs_remote_key *target);
/* Returns the rails whose cards have atomic operations. */
uint8_t verbs_rails_with_atomics(const struct verbs_endpoint *endpoint);
/* Returns those of them that carry atomic operations now; 0: they must wait. */
uint8_t verbs_live_atomic_rails(const struct verbs_endpoint *endpoint, uint8_t choice,
				const struct verbs_remote_key *target);
/* Returns the device by which to register local memory for such transfers. */
struct verbs_device *verbs_device_of(const struct verbs_endpoint *endpoint, uint8_t choice);
/* Makes work wait until rails come up or fail. */
void verbs_park(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* Moves parked work in front of the waiting work, because something has changed. The caller flushes. */
void verbs_unpark(struct verbs_endpoint *endpoint);
void verbs_parking_ended(struct pl_timer *timer);
/* Handles a question for rails, or the answer. Returns 0 or -EPROTO. */
int verbs_rails_message(struct pl_endpoint *endpoint, const struct pl_rails_message *message);
/* Returns the numbers of this end's ports that are in a mask of places. */
uint16_t verbs_port_numbers(const struct verbs_endpoint *endpoint, unsigned places);

/* early_frame.c: numbered frames that overtook others */
/* Keeps a frame until those before it come. Returns 0, -ENOMEM, or -EBADMSG if none can come any more. */
int verbs_early_keep(struct verbs_endpoint *endpoint, const struct pl_frame *frame, const uint8_t *payload);
/* Returns a kept frame that is next now, or that came twice, for the caller to free; NULL: none. */
struct verbs_early *verbs_early_take(struct verbs_endpoint *endpoint);
void verbs_early_forget(struct verbs_endpoint *endpoint);
void verbs_gap_look(struct pl_timer *timer);
/* Loses the peer: the next frame cannot come any more. */
void verbs_frame_lost(struct verbs_endpoint *endpoint);

/* pack.c */
/* True if waiting work can be packed with a frame, which was taken from the list. */
bool verbs_packs(struct verbs_endpoint *endpoint, const struct verbs_work *work);
/* Packs waiting frames with it, as many as fit. */
void verbs_pack(struct verbs_rail *rail, struct verbs_work *work);
/* Moves the chains of returned work into its list. */
void verbs_unpack(struct pl_list *list);

/* unsent_answers.c: counts a question. Returns false if the peer asks, and takes no answers. */
bool verbs_takes_question(struct verbs_endpoint *endpoint);

/* post.c */
/* Posts waiting work while there is room. */
void verbs_flush(struct verbs_endpoint *endpoint);
/* Returns the rail of the numbered frames if it has room, else NULL. */
struct verbs_rail *verbs_frame_rail(struct verbs_endpoint *endpoint);
/* True if the rail has room, and both ends' devices reach the memory of a transfer. */
bool verbs_rail_takes(const struct verbs_rail *rail, const struct verbs_work *work);

/* True if no other work must be posted before. */
static inline bool verbs_may_post_now(const struct verbs_endpoint *endpoint)
{
	return !endpoint->flushing && pl_list_empty(&endpoint->waiting) && pl_list_empty(&endpoint->again);
}

/* post_single.c: posts work of one request that can go now; work.c does the rest */
void verbs_post(struct pl_endpoint *endpoint, struct pl_operation *operation);
int verbs_message(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
		  struct pl_operation *operation);

/* mw.c: work on windows ends, done or not: a bind request, an invalidation, a message whose windows are bound. */
void verbs_mw_work_over(struct verbs_endpoint *endpoint, struct verbs_work *work);

/* Clears the members that are clear in unused work. */
static inline void verbs_work_clear(struct verbs_work *work)
{
	pl_vectors_clear(&work->staged, VERBS_WORK_SPECIAL);
}

/* Keeps the memory of work that has nothing else, and whose members are clear. */
static inline void verbs_work_keep(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (!pl_pool_keep(&endpoint->spare, work))
		pl_free(&endpoint->state->context->allocator, work);
}

static inline void verbs_work_free(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (work->buffer)
		verbs_buffer_put(work->buffer);
	endpoint->suspects -= work->suspect;
	if (work->kind >= VERBS_BIND || work->answer)
		verbs_mw_work_over(endpoint, work);
	verbs_work_clear(work);
	verbs_work_keep(endpoint, work);
}

/* behind.c: work behind the data of a write, which goes without waiting for that data's completions */
enum verbs_behind { VERBS_BEHIND_GOES, VERBS_BEHIND_WAITS, VERBS_BEHIND_CHANGED };
/* Lets the last request of a write notify, or an empty one behind it. Called when the write is posted. 0 or -ENOMEM. */
int verbs_notify_behind(struct verbs_endpoint *endpoint, struct pl_operation *operation);
/*
 * Several rails: decides about the first waiting work, which notifies or reads back. GOES: its rail may be chosen.
 * WAITS: a completion must come before. CHANGED: the list has other work now.
 */
enum verbs_behind verbs_behind_first(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* True if every rail that carried bytes of the operation can read back now what it wrote. */
bool verbs_reads_back(const struct verbs_endpoint *endpoint, const struct pl_operation *operation);

/* work.c */
/* Allocates unused work. NULL: no memory. */
struct verbs_work *verbs_work_allocate(const struct verbs_endpoint *endpoint);
/* Takes work, and a pending count of its operation. NULL: no memory. */
struct verbs_work *verbs_work_new(struct verbs_endpoint *endpoint, enum verbs_work_kind kind,
				  struct pl_operation *operation);
void verbs_post_parts(struct verbs_endpoint *endpoint, struct pl_operation *operation);
/* work.c: posts waiting work, unless the rail is busy and more work should share its list. */
void verbs_flush_soon(struct verbs_endpoint *endpoint);
/*
 * Takes a message, and a pending count of its operation, whose bytes the device reads from memory that the processor
 * cannot reach. gathers: true if so. gather_not: the bytes are copied after all, where another rail's device cannot
 * reach them.
 */
bool verbs_gathers(struct pl_endpoint *endpoint, struct pl_operation *operation);
void verbs_gather(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation);
int verbs_gather_not(struct verbs_work *work);
/* Queues a frame that cannot be posted now. */
void verbs_message_wait(struct verbs_endpoint *endpoint, struct verbs_work *work, struct pl_operation *operation);
/* Creates work of the fabric itself that only the present connection of the rail can carry. */
struct verbs_work *verbs_work_only(struct verbs_rail *rail, enum verbs_work_kind kind);
/* Reads back the last written bytes of a segment. Returns 0 or -ENOMEM. */
int verbs_post_back(struct verbs_endpoint *endpoint, struct pl_operation *operation, const struct pl_segment *segment);
/* Sends a frame of the fabric itself before all others. */
void verbs_message_first(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/*
 * Ends the operation of a work request that is not done. Returns true for a notification: the work now tells the peer
 * that it does not come, and must be posted.
 */
bool verbs_work_skip(struct verbs_work *work);
/* True for a message that is still sent although the close of the peer has ended its operation. */
bool verbs_work_outlives(const struct verbs_endpoint *endpoint, const struct verbs_work *work);
/*
 * True if another chunk failed the operation, or the operation was stopped: the work must not be posted. A peer that refused one
 * chunk refuses all, and each refusal costs a connection.
 */
static inline bool verbs_operation_failed(const struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	return work->operation && atomic_load(&work->operation->status) && !verbs_work_outlives(endpoint, work);
}
/* Drops listed work whose operation has ended, or all work of a connection that is closed (`last`). Home. */
void verbs_work_drop(struct verbs_endpoint *endpoint, struct verbs_work *work, bool last);
/* Shortens a write or read to this many bytes; the rest follows it in the list. */
void verbs_work_cut(struct verbs_endpoint *endpoint, struct verbs_work *work, uint32_t length);
/* Turns the next chunks of an operation into work in front of `rest`, which stands for those that are left. */
void verbs_work_expand(struct verbs_endpoint *endpoint, struct verbs_work *rest);

#endif
