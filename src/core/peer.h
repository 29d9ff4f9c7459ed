/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peer: the other end of a connection.
 *
 * A peer belongs to one engine, its home. The home engine's lock protects the peer and the life of its operations from
 * submission to completion. A fabric may spread the bytes of one operation over other engines: each chunk counts
 * `pending` down, and the last one makes the home engine finish the operation.
 */
#ifndef PL_CORE_PEER_H
#define PL_CORE_PEER_H

#include <sys/socket.h>

#include "base/bucket.h"
#include "control/channel.h"
#include "core/event_log.h"
#include "core/grant.h"
#include "core/operation.h"
#include "staging/staging.h"

/* Lists of the large sends that a peer has not read. */
#define PL_RENDEZVOUS_LISTS 16u
/* Time in which the close of a peer, or of all peers of a context, sends the messages that were posted before. */
#define PL_CLOSE_TIME (500 * PL_NS_PER_MS)

struct pl_admission;
struct pl_endpoint;
struct pl_held_hello;
struct pl_listener;

/* Reason that the local fabric, or RDMA cards, cannot reach a peer. Sent in hellos; see fabric_select.c. */
enum pl_refusal {
	PL_REFUSAL_NONE,
	PL_REFUSAL_USER,
	PL_REFUSAL_NAMESPACE,
	PL_REFUSAL_SOCKET,
	PL_REFUSAL_CARDS = 5, /* value 4 belonged to an earlier release */
	PL_REFUSAL_RATE,      /* an end limits the rate, which only tcp can do */
	PL_REFUSAL_DESCRIPTOR,
	PL_REFUSAL_END,
};

/*
 * Life cycle of a peer. Only the home engine changes `state` and `dead`; `claimed` changes under context->lock.
 *
 *   state                changed by                 when
 *   opening              pl_peer_new()              pl_connect(), or a listener accepts a control connection
 *   opening -> up        pl_peer_up()               the endpoint can carry data
 *   opening -> dead      pl_peer_open_failed()      the opening failed, timed out or was cancelled
 *   up -> dead           pl_peer_up()               the listener of an accepted peer was closed meanwhile
 *   up -> lost           pl_peer_lose()             the connection broke, or the peer violated the protocol
 *   up -> lost -> freed  pl_peer_destroy()          pl_peer_close(), pl_close(), or pl_listener_close() before accept
 *   dead -> freed        pl_peer_open_failed()      queues a task: waits for pins and for other engines, then frees
 *
 * A dead peer still has the state PL_PEER_OPENING: `dead` marks it. pl_close() may also free an opening or dead peer:
 * `claimed` selects the thread that does so. The program keeps a lost peer until it calls pl_peer_close().
 */
enum pl_peer_state { PL_PEER_OPENING, PL_PEER_UP, PL_PEER_LOST };

/* Operations of a peer by user_data; see core/operation_index.h. */
struct pl_operation_index {
	struct pl_list *lists; /* NULL: none yet */
	size_t size;           /* number of the lists, a power of two */
	size_t added;          /* operations in them, and those that were in them and left; 0: all are empty */
};

struct pl_peer {
	/* Members that each operation reads, side by side. */
	struct pl_context *context;
	struct pl_engine *home;
	const struct pl_fabric_ops *ops;
	struct pl_endpoint *endpoint;
	atomic_int state;       /* enum pl_peer_state; written at home */
	atomic_uint fences;     /* operations with PL_FENCE that are not complete */
	atomic_uint sync_count; /* synchronous operations; the sockets are polled once in a number of them */
	struct pl_count *counts; /* its home's, of its fabric, by kind; written at home */
	unsigned fabric;         /* index of `ops` in context->fabrics */
	struct pl_bucket bucket; /* bytes of both directions; rate 0: no limit */
	/* Seldom used. Stands here so that no cache line has members that all threads read and others that home writes. */
	struct pl_list link, home_link; /* of context->peers, and of home_peers; context->lock */
	size_t peer_index;              /* index in context->peer_table */
	/* of both ends, for proofs of sockets; written before the peer is joinable, or by the initiator at home */
	uint8_t *secret;                 /* PL_SECRET bytes of context->tls's pool; NULL: not derived yet */
	uint8_t hello_digest[PL_SECRET]; /* initiator: of the hello that it sent */
	/* Members that home writes for each operation. */
	struct pl_list operations; /* operations that began and are not complete, without those in operation_index */
	struct pl_list fenced;     /* operations that wait for earlier ones */
	unsigned running;          /* operations that began, are not fenced and not complete */
	bool releasing;            /* pl_peer_fence_release() is running */
	uint64_t next_deadline;    /* time of the timer `deadline` */
	struct pl_timer deadline;  /* set for the operation with the earliest deadline, which may be complete by now */

	atomic_uint pins;                /* sockets that are joining it, and other users that found it */
	bool joinable;                   /* its endpoint accepts sockets; context->lock */
	bool initiator;
	unsigned closed_before; /* peers of the context that had been closed when it was made */
	_Atomic uint64_t user_data;
	bool dead;    /* true if the opening failed; the peer is freed soon */
	bool claimed; /* true if a thread has claimed the right to free the peer; context->lock */

	struct pl_source dialing; /* pending connect(2) */
	struct pl_channel channel;
	struct pl_task task;          /* opening and freeing run outside their callers */
	struct pl_timer timer;        /* deadline of the handshake; grace time after a loss */
	struct pl_operation *opening; /* initiator: the connect operation */
	bool opening_begun; /* its submission has run; before it, the connecting thread uses `opening`. Home */
	struct pl_listener *listener; /* acceptor: listener that delivers it */
	struct pl_list backlog_link;
	bool unaccepted; /* acceptor: no accept has delivered the peer, which the program does not know; queue_lock */
	struct pl_list held_events;       /* its events meanwhile; queue_lock */
	struct pl_list turn_link;         /* initiator: of dial_turns, while it has a turn or waits for one; home */
	struct pl_callback_wait judging;  /* for the turn of the callbacks; home */
	uint64_t turn_end;                /* time at which its turn is over; 0: it has none */
	struct pl_list remotes;           /* remote regions of the program; context->lock */
	struct sockaddr_storage *targets; /* initiator: addresses to try */
	unsigned target_count, target_next;
	struct pl_stream incoming; /* acceptor: handed over to the home engine */
	uint8_t incoming_prefix[4];
	char *server_name; /* initiator: "[host]:port" as the program gave it; NULL: no identities are judged */
	struct pl_admission *admission; /* NULL: the context judges nobody; written at home */
	struct pl_held_hello *held_hello; /* acceptor: it could not be answered at once; NULL: none */
	uint64_t hello_until;             /* no fabric can hold the answer back any longer; 0: none did */
	struct pl_timer hello_timer;      /* tries again; home */
	/* initiator: exchange of proofs of the key */
	enum { PL_PROOF_NONE, PL_PROOF_SEND, PL_PROOF_READ, PL_PROOF_REFUSED, PL_PROOF_DONE } proving;
	uint8_t proof[PL_KEY_PROOF];
	size_t proof_have;

	struct sockaddr_storage address, local_address;
	char software[32], program[32];
	uint8_t context_id[16];
	bool same_host;
	bool encrypt;                    /* the data sockets are encrypted */
	bool encrypt_demanded;           /* an end demands that the data are encrypted */
	bool asks;                       /* PL_CAPABILITY_ASKS */
	bool flushes;                    /* PL_CAPABILITY_VISIBLE */
	bool headerless;                 /* PL_CAPABILITY_HEADERLESS */
	bool packs;                      /* PL_CAPABILITY_PACKED */
	bool notify_data;                /* PL_CAPABILITY_NOTIFY_DATA */
	bool bound_messages;             /* PL_CAPABILITY_BOUND_MESSAGES */
	bool notify_rails;               /* PL_CAPABILITY_NOTIFY_RAILS */
	bool notify_lanes;               /* PL_CAPABILITY_NOTIFY_LANES */
	bool streams;                    /* PL_CAPABILITY_STREAMS */
	bool frames_in_place;            /* PL_CAPABILITY_FRAMES_IN_PLACE */
	bool quiet_frames;               /* PL_CAPABILITY_QUIET_FRAMES */
	bool many_gates;                 /* PL_CAPABILITY_MANY_GATES */
	bool pushed_frames;              /* PL_CAPABILITY_PUSHED_FRAMES */
	bool confirms_lanes;             /* PL_CAPABILITY_CONFIRMS_LANES */
	bool owner_copies;               /* PL_CAPABILITY_OWNER_COPIES */
	bool stream_tokens;              /* PL_CAPABILITY_STREAM_TOKENS */
	bool stream_limits;              /* PL_CAPABILITY_STREAM_LIMITS */
	bool prepared_frames;            /* PL_CAPABILITY_PREPARED_FRAMES */
	bool trailing_words;             /* PL_CAPABILITY_TRAILING_WORDS */
	bool ece;                        /* PL_CAPABILITY_ECE */
	bool finish_lanes;               /* PL_CAPABILITY_FINISH_LANES */
	bool asked_reports;              /* PL_CAPABILITY_ASKED_REPORTS */
	struct pl_operation *loss_event; /* PL_KIND_LOST, allocated with the peer; NULL: delivered */
	uint32_t window, eager_max;
	unsigned lanes;

	const char *reason; /* reason of the route, for completions */
	/* found by the local fabric at this end, or reported by the other end */
	enum pl_refusal refusal;
	const struct pl_fabric_ops *failed; /* initiator: fabric that failed before; `loss` has the error */

	struct pl_operation_index operation_index;
	unsigned stopping;         /* functions that are stopping many operations */
	bool sweep_due;            /* the fabric has operations that they stopped */
	struct pl_task sweep_task; /* sweeps for operations that the program cancelled one by one */
	struct pl_list after_stream; /* running operations that wait for streams, or for messages before them that do */
	struct pl_watch stream_watch;
	struct pl_list receives;   /* posted receives without a message */
	struct pl_list unexpected; /* messages without a receive: struct pl_arrival */
	struct pl_list landing;    /* operations whose message arrived and is being copied, and those behind them */
	/* messages that wait for the peer's window, for their bytes or for the control channel, and those behind them */
	struct pl_list unsent;
	struct pl_list rendezvous[PL_RENDEZVOUS_LISTS]; /* large sends that the peer has not read, by their cookies */
	struct pl_list imports;        /* imports that wait for an answer */
	/* imports that wait for room in the control channel, for releases before them, or for answers to earlier ones */
	struct pl_list unsent_imports;
	unsigned imports_under_way; /* sent imports without an answer, cancelled ones included */
	struct pl_list
		unsent_answers; /* answers to imports of the other end that wait for that room: struct unsent_answer */
	unsigned unsent_answer_count;
	struct pl_list unsent_releases; /* remote regions whose release waits for that room, or for memory */
	struct pl_timer release_timer;  /* sends them again; home */
	struct pl_list held_imports;   /* imports of the other end that wait for registrations: struct held_import */
	unsigned held_import_count;
	bool sent_by_control;          /* a message went over the control channel */
	uint64_t sent, consumed_there; /* message counters; the difference is limited by the window */
	_Atomic uint64_t consumed;
	uint64_t arrived;
	_Atomic uint64_t consumed_told;
	struct pl_task credit_task; /* sends the peer a credit */
	uint32_t next_cookie;
	uint64_t next_request;
	struct pl_index_table keys; /* struct pl_key; grant_lock */
	unsigned imported;          /* keys of grants among them; grant_lock */
	struct pl_list ending_keys; /* keys that have ended while their memory was in use; grant_lock */
	struct pl_timer key_timer;  /* looks at them again; home */
	_Atomic(struct pl_source_keys *) source_keys; /* NULL: no large send has used them; written at home */

	/* Streams: the other end's subscriptions here, this end's subscribers there, and requests for lists. Home. */
	struct pl_list subscriptions, subscribers, listings;
	unsigned subscription_count;
	uint64_t subscribes_until; /* time until which the other end's SUBSCRIBEs are used up, less those that it may save */
	uint32_t next_stream; /* number of the last subscription or request of this end */
	uint64_t wrong_tokens; /* pl_now() from which on all wrong tokens of the other end are forgotten. Home */
	uint64_t close_end;    /* time until which the close of the peer may send messages. Home */
	uint64_t leave_end;   /* limit of the wait for the end of pushed writes; 0: none is awaited. Home */

	bool leaving;               /* the peer sent BYE */
	atomic_bool ending;         /* a connection of the peer has ended; read by all engines */
	struct pl_error loss;       /* reason of the loss */
	struct pl_event_log events; /* for pl_peer_events(); has a lock of its own */
};

/* registering.c: tries the peer's waiting requests again, because a thread has registered memory. Home. */
void pl_peer_registered(struct pl_peer *peer);
/* sweep.c: has the fabric drop operations that were stopped. Home. */
void pl_peer_sweep(struct pl_peer *peer);
/*
 * Enclose calls of pl_operation_stop() for many operations: the fabric then looks once through its work, not once for
 * each of them. Home.
 */
void pl_peer_begin_stopping(struct pl_peer *peer);
void pl_peer_end_stopping(struct pl_peer *peer);
/* The same for one operation of several that the program may cancel: the fabric looks later, for all of them. Home. */
void pl_peer_end_stopping_one(struct pl_peer *peer);
void pl_peer_sweep_run(struct pl_task *task);
/*
 * Does what the program has requested of a peer before the end of that: posts its operations, whose messages may still be sent, and
 * sweeps cancelled ones, whose messages must not. Home.
 */
void pl_peer_sweep_before_end(struct pl_peer *peer);

/* last_messages.c: sends the messages of an open peer that its program closes, at most until then. Without an engine's lock. */
void pl_peer_send_last(struct pl_peer *peer, uint64_t until);
/* True if a message of the program is not sent yet, or a transfer that ends with one is not done. */
bool pl_operation_sends_message(const struct pl_operation *operation);
/* Sets the reason of the end of such an operation that waited until the close of its peer. */
void pl_peer_explain_unsent(struct pl_error *error);
/*
 * Hold the ends of all messages back while the peer is closed, so that they end in the order of posting, wherever they waited. Home,
 * before the peer's operations are stopped, and after its endpoint is closed.
 */
void pl_peer_hold_messages(struct pl_peer *peer);
void pl_peer_release_messages(struct pl_peer *peer);

/*
 * Steps through a peer's operations while they end or begin others: moves the first one of `rest` back into the peer's
 * list. Returns NULL at the end.
 */
static inline struct pl_operation *pl_peer_operation_next(struct pl_peer *peer, struct pl_list *rest)
{
	struct pl_operation *operation;

	if (pl_list_empty(rest))
		return NULL;
	operation = pl_list_first(rest, struct pl_operation, peer_link);
	pl_list_remove(&operation->peer_link);
	pl_list_append(&peer->operations, &operation->peer_link);
	return operation;
}

/* Creates a peer with this home. */
struct pl_peer *pl_peer_new(struct pl_context *context, struct pl_engine *home, bool initiator, struct pl_error *error);
/*
 * Closes and frees a peer. Called without an engine's lock, by the owner or the claimer of the peer. Sends its messages before, until
 * the time `until` of pl_now().
 */
void pl_peer_destroy(struct pl_peer *peer, uint64_t until, int status, const struct pl_error *error);
/* Returns the time until which a close that begins now may send messages. */
static inline uint64_t pl_close_end(void)
{
	return pl_now() + PL_CLOSE_TIME;
}
/* Finds a peer that accepts sockets by its index, and pins it. Returns NULL if there is none. */
struct pl_peer *pl_peer_by_index(struct pl_context *context, uint64_t peer_index);
void pl_peer_unpin(struct pl_peer *peer);
/* Handles control messages of an opening and of a running peer. */
void pl_peer_control(struct pl_channel *channel, const struct pl_control *message);
void pl_peer_channel_closed(struct pl_channel *channel, enum pl_channel_end end);
/* The control channel has room again: sends what waits for it. */
void pl_peer_channel_drained(struct pl_channel *channel);
/* Opening failed: reports that to the waiting operation, and frees the peer later. Home. */
void pl_peer_open_failed(struct pl_peer *peer, const struct pl_error *error);
/* Initiator: returns true if another fabric is tried after the peer's failed to connect. */
bool pl_peer_is_replaceable(const struct pl_peer *peer);
/*
 * Initiator: limits the time of a fabric that may fail to connect, and replaces the peer by one without that fabric
 * after the failure. Returns false if no other fabric is left.
 */
void pl_peer_limit_attempt(struct pl_peer *peer);
bool pl_peer_replace(struct pl_peer *peer, const struct pl_error *error);
/*
 * prove.c, initiator: judges the acceptor; errors of pl_trust_judge(). Then exchanges proofs of the key if the ends use
 * certificates: returns 0, also if the acceptor refuses, -EAGAIN, or the error of the other end or the stream.
 */
int pl_peer_judge(struct pl_peer *peer, struct pl_error *error);
int pl_peer_prove(struct pl_peer *peer, struct pl_error *error);
/*
 * connect.c: takes the turn of the callbacks if the program decides about the other end. Returns false if `judging` waits for it.
 */
bool pl_peer_begin_judging(struct pl_peer *peer, void (*run)(struct pl_callback_wait *));
void pl_peer_end_judging(struct pl_peer *peer);
/*
 * reload.c, acceptor: true if the files were reloaded since the other end was judged; judges it again. Before its channel is
 * open.
 */
bool pl_peer_judgement_outdated(const struct pl_peer *peer);
int pl_peer_judge_again(struct pl_peer *peer, struct pl_error *error);
/*
 * rate.c: sets the rate of a new peer by its admission and the options, before the first hello of this end. Only fabrics
 * that can limit the rate are used then. Home.
 */
void pl_peer_set_rate(struct pl_peer *peer);
/* True if the fabric can limit the rate of the peer, or need not. */
bool pl_peer_fabric_limits(const struct pl_peer *peer, const struct pl_fabric_ops *fabric);
/*
 * Changes the rate of a running peer to that of its new rights. Returns false if only a new connection can have that
 * rate. Home.
 */
bool pl_peer_change_rate(struct pl_peer *peer, const struct pl_admission *admission);
/* connect.c: pl_connect() that looks `server` up in known hosts ("[host]:port"), not the address; NULL: the address. */
int pl_connect_named(struct pl_context *context, const char *address, const char *server, uint64_t timeout,
		     struct pl_peer **peer, struct pl_error *error);
/* Initiator: sends the hello. */
int pl_peer_send_hello(struct pl_peer *peer, struct pl_error *error);

/* Runs an operation that began, or queues it behind a fence. Home. */
void pl_peer_start(struct pl_peer *peer, struct pl_operation *operation);
/* A running operation is complete: starts operations that waited for it. */
void pl_peer_fence_release(struct pl_peer *peer);

/* after_stream.c: carries a running operation once its stream has reached its mark. Home. */
void pl_after_stream(struct pl_peer *peer, struct pl_operation *operation);
void pl_after_stream_init(struct pl_peer *peer);

/* Called by fabrics. Home. */
void pl_peer_up(struct pl_peer *peer);                                 /* the endpoint can carry data */
void pl_peer_lose(struct pl_peer *peer, const struct pl_error *error); /* the endpoint cannot carry data any longer */
/* A connection ended; bytes that arrived before are still being read. Loses the peer now or soon. */
void pl_peer_ending(struct pl_peer *peer);

/* peer_event.c: add an event to the peer's log. Any thread, any locks. The text has static storage. */
void pl_peer_note(struct pl_peer *peer, enum pl_event event, const char *text);
void pl_peer_note_lane(struct pl_peer *peer, enum pl_event event, unsigned lane, int status, const char *text);
void pl_peer_note_key(struct pl_peer *peer, enum pl_event event, uint64_t key, int status, const char *text);
/* Copies the text. */
void pl_peer_note_rail(struct pl_peer *peer, enum pl_event event, unsigned rail, const char *text);
/* Copies the message of the error. */
void pl_peer_note_error(struct pl_peer *peer, enum pl_event event, uint64_t key, const struct pl_error *error);
/* The connection is up: adds its fabric and its encryption. Home. */
void pl_peer_note_connected(struct pl_peer *peer);
/* The connection ended: adds the loss, or the close of the other end. Home. */
void pl_peer_note_loss(struct pl_peer *peer);
/* The peer's request, for memory or an import, is refused. `right`: enum pl_access of the request, 0 for an import. */
void pl_peer_note_refusal(struct pl_peer *peer, uint64_t key, unsigned right, enum pl_wire_status status);
/* The other end, or its device, refused the grant of a failed operation. */
void pl_peer_note_refused_operation(const struct pl_operation *operation);

/* peer_query.c: formats the address of the other end, or the one that is being dialed. Home. */
void pl_peer_format_address(const struct pl_peer *peer, char *text, size_t size);

/* connect.c: connects to the first address that answers. Home. */
void pl_peer_dial(struct pl_peer *peer);
/* Takes over a control connection that sent its magic, its admission, and its count in context->accepted. */
void pl_peer_accept_stream(struct pl_listener *listener, struct pl_stream *stream, const uint8_t magic[4],
			   struct pl_admission *admission);

#endif
