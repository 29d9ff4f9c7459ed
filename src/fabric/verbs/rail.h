/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails: the connections of an endpoint. */
#ifndef PL_FABRIC_VERBS_RAIL_H
#define PL_FABRIC_VERBS_RAIL_H

#include "fabric/verbs/work.h"

/* Without end: the receiver may be busy, and every operation has its own timeout. */
#define VERBS_RECEIVER_RETRIES 7

/*
 * DOWN: no queue pair. ASKING: an initiator's queue pair waits for the acceptor's. READYING: the device gets the other
 * end's address. PROVING: the initiator sends an empty message, and both ends are UP when it has arrived. DRAINING: the
 * queue pair is being flushed.
 */
enum verbs_link { VERBS_DOWN, VERBS_ASKING, VERBS_READYING, VERBS_PROVING, VERBS_UP, VERBS_DRAINING };

/* wr_id of that empty message: no request has so high a number. */
#define VERBS_PROOF (1ull << 62)

/* Mark in wr_id of an unsignaled request, whose completion tells of a failure. */
#define VERBS_UNSIGNALED (1ull << 63)

/* Limit of a rail's bytes under way; pace.c. */
#define VERBS_UNLIMITED UINT32_MAX

struct verbs_pace {
	uint32_t limit, packet; /* bytes */
	uint64_t began, bytes;  /* current measurement: start, and bytes done since */
	uint32_t base;          /* highest good limit, at least a packet */
	uint64_t rate;          /* rate at `base`, bytes per second; 0: unknown */
	uint8_t spells, patience;
};

/* One connection of an endpoint, made again whenever it breaks. */
struct verbs_rail {
	struct verbs_endpoint *endpoint;
	struct verbs_device *device;    /* NULL: not in use */
	uint16_t renewals;              /* devices that this end had before */
	uint16_t far_renewals;          /* the same of the other end, as known */
	uint16_t far_told;              /* and as it announced for the next connection */
	struct verbs_cq *queue;         /* of the current queue pair; NULL: none */
	struct pl_list queue_link, starved_link;
	struct verbs_port *port;
	struct ibv_qp *qp; /* NULL: none */
	union ibv_gid gid, far_gid; /* far_gid: initiator; of the acceptor's port */
	union ibv_gid chosen_gid;   /* used whenever the port has it: an address may be removed and return */
	uint8_t near_port, far_port; /* numbers of both ports, each in the list of its end */
	uint64_t wait_until;         /* work for this rail waits so long for a connection, before others take it */
	struct {
		uint32_t psn;
		uint16_t lid;
		uint16_t pkey_index;
		uint8_t gid_index, mtu;
		uint8_t traffic_class, service_level; /* acceptor: as the initiator wants */
		bool global;
		bool extended; /* true if the queue pair has the other end's options (ECE) */
	} own; /* of the current queue pair */
	struct verbs_ready_job ready;
	struct {
		int code;
		const char *call;
	} given_up; /* the attempt failed, but `ready` is busy, or the queue pair drains; code 0: it did not */
	bool proof_posted;
	enum verbs_link link;
	uint16_t generation; /* number of the queue pair */
	uint8_t index;
	struct pl_task drained_task, fail_task;
	struct pl_rail_message joined; /* acceptor: request to accept once the old queue pair is gone; step 0: none */
	struct pl_timer retry, drain, watch;
	unsigned attempts; /* attempts to connect since the rail was up */
	unsigned attempt_looks; /* checks whether the present attempt succeeded */

	struct verbs_buffer_pool receives; /* empty with a shared receive queue */
	struct pl_list spent;              /* receive buffers to be posted again */
	unsigned spent_count;
	bool own_receives;        /* the queue pair's receives count in its queue */
	unsigned receives_posted; /* of these, receives that the queue pair has not returned */
	atomic_bool pair_event;   /* the device reported an error of the queue pair, not looked at yet */
	atomic_bool last_reached; /* shared receive queue: the failed queue pair has returned all receives */
	bool awaits_last;         /* the drain timer waits for the last receive only */
	struct pl_list windows; /* struct verbs_mw: unbound windows, for messages */
	unsigned window_count;
	uint64_t serial;       /* number of the last request; completions name these, which are never used again */
	struct pl_list posted; /* in the order of their numbers */
	struct pl_list held;      /* returned unfinished; must not be posted again yet */
	uint16_t held_generation; /* generation under which the held work was posted */
	unsigned posted_count, inline_max;
	unsigned unsignaled; /* last posted requests that no signaled one follows; signal.h: */
	unsigned peak;       /* most posted requests at a completion of this burst */
	unsigned usual;      /* `peak` of the last burst; 0: unknown */
	unsigned frames; /* frames and notifications with a number among posted and held work */
	uint64_t posted_bytes;
	struct {
		enum ibv_wc_status status; /* status that ended the last connection; IBV_WC_SUCCESS: none */
		uint32_t vendor_error;
		uint8_t port;
		bool here; /* this end could not send; the state of its port may not be known yet */
	} broke;
	const struct verbs_remote_key
		*denied;          /* the queue pair failed because the peer's device refused access to it */
	bool was_up;              /* was up at least once */
	uint64_t ended;           /* time at which the last connection that was up ended; 0: none did */
	bool untold; /* acceptor: the other end does not know of the end of `generation`, as the port was down */
	bool unreached;           /* initiator: the last attempt failed because no packet reached the other end */
	bool cut;                 /* the peer asks when `generation` takes nothing any more */
	uint16_t fail_generation; /* generation that fail_task fails */
	/* bytes of a request; reduced while connections break before a request is done */
	uint32_t chunk;
	unsigned done; /* completions since the connection was made or the chunk grew */
	struct verbs_pace pace;
	struct {
		struct ibv_send_wr request, *bad;
		struct ibv_sge pieces[VERBS_PIECES];
	} single; /* request that is posted alone, filled before its call of ibv_post_send(3); post_single.c */
	unsigned completed;   /* completions in total; stall_watch.c: */
	unsigned watch_done;  /* completions when the watch began, */
	unsigned watch_looks; /* and checks since then */
};

/* Bit of a rail in masks of rails. */
static inline uint8_t verbs_bit_of(const struct verbs_rail *rail)
{
	return (uint8_t)(1u << rail->index);
}

/* Numbers a request that will be posted next. The low bits of wr_id mark other requests. */
static inline uint64_t verbs_number_request(struct verbs_rail *rail, struct verbs_work *work)
{
	work->serial = ++rail->serial;
	return work->serial << 2;
}

static inline uint64_t verbs_serial_of(uint64_t wr_id)
{
	/* Without VERBS_UNSIGNALED, the highest bit, and the two lowest. */
	return wr_id << 1 >> 3;
}

/* Numbered frame that overtook another one on another rail. */
struct verbs_early {
	struct pl_list link;
	struct pl_frame frame;
	uint8_t payload[];
};

/* qp.c */
/* Returns 0, or a negative errno with the failed call. */
int verbs_qp_make(struct verbs_rail *rail, const char **call);
/* Fills the parts of a message that describe the new queue pair. */
void verbs_qp_describe(const struct verbs_rail *rail, struct pl_rail_message *message);
/* Fills the attributes that connect the queue pair to the other end's, and gives it that end's options. */
void verbs_qp_route(struct verbs_rail *rail, const struct pl_rail_message *far);
void verbs_qp_drop(struct verbs_rail *rail);
/* Destroys the queue pair, if there is one. */
void verbs_qp_destroy(struct verbs_rail *rail);
/* Returns the nanoseconds after which a card gives up at the earliest; InfiniBand allows four times as many. */
uint64_t verbs_retry_time(const struct pl_options *options);
/* Returns the reads that a queue pair may have under way. */
uint8_t verbs_qp_reads(const struct verbs_device *device);
/*
 * Takes frames that arrived before the end, which the sender counts as delivered. Also frames that arrived before this
 * end was established.
 */
void verbs_take_rest(struct verbs_rail *rail);
/* True if the port is down. A device may drop all requests then. */
bool verbs_port_is_down(const struct verbs_rail *rail);

/* rail_handshake.c: messages of both ends before a rail is up */
/* Handles a message of the other end. Returns 0 or -EPROTO. */
int verbs_rail_message(struct pl_endpoint *endpoint, const struct pl_rail_message *message);
/* Initiator: begins a connection attempt. */
void verbs_dial(struct verbs_rail *rail);
/* Checks an attempt, and gives it up at the last check. */
void verbs_attempt_look(struct verbs_rail *rail);
/* The rail is down, and a request waits for it. */
void verbs_accept_joined(struct verbs_rail *rail);
/* The device has the other end's address, or the attempt failed. */
void verbs_ready_ended(struct pl_task *task);
/* Initiator: the empty message arrived, or could not be sent. */
void verbs_proof_done(struct verbs_rail *rail, const struct ibv_wc *completion);
/* Tells the other end that this one does not use the connection, unless the network is down here. */
void verbs_tell_down(struct verbs_rail *rail);
/* Pause between two checks of a port that is down. */
#define VERBS_PORT_PAUSE (50 * PL_NS_PER_MS)
/* Acceptor: tells what verbs_tell_down() did not, once the port is up again. */
void verbs_tell_down_later(struct verbs_rail *rail);

/* rail_link.c: a rail between two connections */
/* Both ends can use the connection. If its attempt was given up meanwhile, the endpoint opens alone. */
void verbs_established(struct verbs_rail *rail);
/* The connection attempt failed: starts another one, or loses the peer. */
void verbs_connect_failed(struct verbs_rail *rail, int code, const char *call);
/* Destroys the drained queue pair, at the end. */
void verbs_link_drop(struct verbs_rail *rail);
/*
 * Moves the queue pair into the error state: it is useless, or must stop using a buffer. `why` goes to the peer's log;
 * static storage.
 */
void verbs_fail(struct verbs_rail *rail, const char *why);
/* Fails the rail later: called while completions are taken, or from other engines. */
void verbs_fail_soon(struct verbs_rail *rail);
void verbs_fail_run(struct pl_task *task);
/* Notes that a queue pair returned one of its own receives; drops a failed queue pair after the last one. */
void verbs_receive_returned(struct verbs_rail *rail);
/* Ends the wait for a failed queue pair of an endpoint that closes. The home engine is held. */
void verbs_await_last_receive(struct verbs_rail *rail);
/* The endpoint closes without that wait. */
void verbs_forgo_last_receive(struct verbs_rail *rail);
/* All posted work has come back: destroys the queue pair, so that the next one can be made. */
void verbs_drained_run(struct pl_task *task);
/* Posted work did not come back in time. */
void verbs_drain_expired(struct pl_timer *timer);

/* rail_event.c: add an event to the peer's log. */
void verbs_note_rail_up(struct verbs_rail *rail);
/* The rail has still its device. */
void verbs_note_rail_lost(struct verbs_rail *rail, const char *why);

/* rail_fence.c */
/* This end takes no byte of the rail's generation any more: tells the peer if it asked, and asks the same. */
void verbs_fence_quiet(struct verbs_rail *rail);
/* Held work of the rail may be posted again. */
void verbs_fence_release(struct verbs_rail *rail);
/* Handles a frame of the fence; -EPROTO. */
int verbs_fence_arrived(struct verbs_endpoint *endpoint, const struct pl_frame *frame);
/* A rail is up: asks the peer about the others. */
void verbs_fence_ask(struct verbs_endpoint *endpoint);

/* The connection uses another device than the last one, which is gone. */
void verbs_rail_renew(struct verbs_rail *rail);

/* wc_error.c */
/*
 * True if the driver may let an error completion name the oldest request without a completion, whichever failed, and
 * return all others as flushed, as libbnxt_re (bnxt_re_poll_err_scqe()), libirdma (irdma_uk_cq_poll_cmpl()) and libocrdma
 * (ocrdma_update_err_scqe()) do. A driver that is not known may.
 */
bool verbs_names_oldest(const struct ibv_device_attr *attributes);
/*
 * A request failed: its operation ends, or the request is posted again. The rail fails. `oldest`: it was the first posted
 * request.
 */
void verbs_work_failed(struct verbs_rail *rail, struct verbs_work *work, const struct ibv_wc *completion, bool oldest);
/*
 * The driver refuses work that no list has. Ends the operation, or the peer whose message cannot be sent, and returns
 * true. Returns false if the work should be posted again on another connection.
 */
bool verbs_work_refused(struct verbs_rail *rail, struct verbs_work *work, int code);
/* Takes back all posted work as if the queue pair had been flushed. */
void verbs_take_back(struct verbs_rail *rail);

/* pace.c */
void verbs_pace_open(struct verbs_pace *pace);
/* A connection will be made. */
void verbs_pace_connect(struct verbs_pace *pace, enum ibv_mtu mtu);
/* The device gave up the connection. */
void verbs_pace_broke(struct verbs_pace *pace, uint64_t now);
/* While there is a limit: counts bytes done. idle: no more work waits. */
void verbs_pace_done(struct verbs_pace *pace, uint64_t bytes, bool idle, uint64_t now);

/* stall_watch.c: starts to watch the progress of posted work */
void verbs_watch_begin(struct verbs_rail *rail);
void verbs_watch_look(struct pl_timer *timer);

#endif
