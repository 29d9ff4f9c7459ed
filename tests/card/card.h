/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stand-in card: libibverbs.so.1 in user space, for tests without a card or kernel module.
 * One process has all queue pairs, unless STANDIN_CABLE joins processes (wire.h). One lock guards all state: a call that posts or polls orders memory, as a real
 * card does. A thread of the card does everything that takes time.
 */
#ifndef CARD_H
#define CARD_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Macros that would replace the definitions. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define CARD_MICROSECOND 1000ull
#define CARD_MILLISECOND 1000000ull
/* Time after which a requester gives up a responder that does not answer. A card needs about 0.5 s. */
#define CARD_RETRY_TIME (30 * CARD_MILLISECOND)
#define CARD_PIECES 32
#define CARD_INLINE 1024
#define CARD_LID 7
#define CARD_DEVICES 8
/* Ports of a device, with numbers from 1. */
#define CARD_PORTS 2

/* Free keys that new regions get: none, the one that was freed last, or the one with the lowest number. */
enum card_keys { CARD_KEYS_NEW, CARD_KEYS_LAST, CARD_KEYS_LOWEST };

/* Limits and abilities of a card, one row for each. */
struct card_character {
	const char *name, *device;
	enum ibv_transport_type transport;
	uint8_t link_layer;
	bool grh;      /* the port requires a global route header */
	bool rc;       /* reliable connections */
	bool srq;      /* shared receive queues */
	bool atomics;  /* the provider posts atomics */
	bool immediate;
	bool windows;  /* memory windows of type 2 */
	uint64_t window_max; /* bytes of the longest one; 0: no limit. STANDIN_WINDOW_MAX is another one */
	enum card_keys keys; /* free keys that new regions get */
	bool dmabuf;   /* registers dma-bufs */
	bool data_direct; /* has a Data Direct function */
	bool relaxed;  /* relaxed ordering */
	uint32_t ece;  /* options of queue pairs, as ibv_query_ece(3) tells them; 0: none */
	bool early;    /* a post refused at its first request leaves bad_wr as it was */
	bool oldest;   /* an error completion names the oldest request without a completion; all others are flushed */
	/* Requests without pieces that use the first one in any case: reads, if there is one reads and writes. */
	bool first_of_reads, first_if_given;
	bool inline_ignored; /* grants inline bytes, and takes the pieces' memory all the same */
	bool exact;          /* a completion queue has as many entries as the program wishes */
	int refusal;   /* errno of a refused post; negative where the provider returns it so */
	int max_recv_sge; /* if it is below max_sge; the kernel reports the lesser one */
	int max_sge, max_inline, max_reads, max_cqe, max_qp_wr, max_srq_wr;
	uint32_t max_message;
	enum ibv_mtu mtu;
	uint8_t width, speed; /* of the port, in the encodings of ibv_query_port(3); 0: unknown */
	const char *gids;     /* a letter for each entry of the GID table; see gid.c */
};

/* Faults that a mood injects; each has its own chance. */
enum card_fault {
	CARD_ORDER,        /* bytes of a write placed from the end, or in random lines */
	CARD_READ_ORDER,   /* bytes of a read in the requester's GPU memory placed so, after its completion */
	CARD_RNR,          /* receiver not ready although it is */
	CARD_LATE,         /* late completions */
	CARD_CHANNEL,      /* the completion channel reports late */
	CARD_SLOW,         /* slow registration */
	CARD_ROUTE_LATE,   /* the other end's address is found late */
	CARD_ROUTE_LOST,   /* the other end's address is not found */
	CARD_PATH_LOST,    /* a connection whose packets are lost */
	CARD_LOST,         /* lost completions */
	CARD_DOUBLED,      /* doubled completions */
	CARD_STALE,        /* completions that name earlier work, or an earlier receive */
	CARD_WRONG_NUMBER, /* completions of an unknown queue pair */
	CARD_STATUS,       /* requests that fail with any status */
	CARD_REFUSE,       /* refused posts */
	CARD_EVENTS,       /* asynchronous events */
	CARD_NO_SRQ,       /* a shared receive queue that cannot be made: ENOMEM */
	CARD_BAD_READS,    /* reads that fail with a local error of the queue pair */
	CARD_TAKEN,        /* a queue pair that fails has taken a shared receive, for a message that did not end */
	CARD_NO_LAST,      /* and does not return it, nor tells that it has returned all */
	CARD_UNDELIVERED,  /* requests that do not arrive: the requester gives up */
	CARD_POLL,         /* polls of a queue with completions that fail */
	CARD_POLL_BEHIND,  /* polls that fail behind the completions that they filled and took */
	CARD_DEREG,        /* a region that cannot be deregistered: EIO */
	CARD_DESTROY,      /* a queue pair that cannot be destroyed: EIO */
	CARD_DEALLOC,      /* a window that cannot be deallocated: EIO */
	CARD_CGROUP,       /* a region or window that the limit of a cgroup forbids: EAGAIN */
	CARD_UNANSWERED,   /* a request and all behind it are done, but no acknowledgement comes back */
	CARD_FAULTS
};

#define CARD_OPCODES (IBV_WR_BIND_MW + 1)

/* What the card did; tests read it. */
struct card_counts {
	unsigned contexts, pds, mrs, mws, cqs, channels, srqs, qps; /* live objects */
	unsigned bound;    /* bound windows */
	unsigned connects; /* pairs of connected queue pairs, made so far */
	unsigned posts, refused, completions, made_qps, made_srqs, made_mrs, made_mws;
	unsigned requests[CARD_OPCODES];  /* posts of each enum ibv_wr_opcode */
	uint64_t immediate_bytes;         /* bytes of the writes with immediate data among them */
	unsigned completion_events;
	unsigned queried_qps;    /* calls of ibv_query_qp(3) */
	unsigned receiver_waits; /* requests that found no receive, once for each attempt */
	uint64_t locked;         /* bytes of live regions, without dma-bufs */
	uint64_t shown;          /* bytes of live regions of dma-bufs */
	unsigned data_direct;    /* regions registered by Data Direct so far */
	unsigned relaxed;        /* live regions with relaxed ordering */
	unsigned vectors; /* completion vectors in use at some time, a bit for each */
	unsigned faults[CARD_FAULTS];
	/* bytes that writes, reads and atomics moved between two devices, by the requester's and the other one */
	uint64_t moved[CARD_DEVICES][CARD_DEVICES];
	unsigned device_mrs[CARD_DEVICES]; /* regions registered so far */
	/* Attributes of the queue pairs that were connected last: an initiator's, and its acceptor's before. */
	struct card_attributes {
		uint16_t pkey_index;
		uint8_t port, service_level, traffic_class, gid_index, rnr_timer, ack_timeout, retries;
		uint32_t ece; /* options of the connection */
	} initiator, acceptor, loopback; /* and of the last one that was connected to itself */
	unsigned loopbacks;              /* queue pairs connected to themselves so far */
};

struct card_context {
	struct verbs_context verbs;
	struct card_context *next;
	int events; /* write end of the pipe of asynchronous events */
};

struct card_mr {
	struct ibv_mr base;
	uint64_t iova;
	unsigned access;
	uint8_t *bytes; /* address at which the card accesses the first byte */
	void *map;      /* mapping of a dma-buf, or NULL */
	size_t map_length;
	bool relaxed;   /* registered with relaxed ordering */
	bool direct;    /* registered by Data Direct */
	bool dead;      /* dma-buf that the card cannot access, although it registered it */
	unsigned windows;
};

struct card_mw {
	struct ibv_mw base;
	struct card_mr *mr; /* NULL: not bound */
	uint32_t qp_num;
	uint64_t address, length;
	unsigned access;
};

struct card_cqe {
	struct ibv_wc wc;
	uint64_t retired; /* requests of the queue pair that are done with this completion; 0: a receive */
	uint64_t at;      /* time at which it can be polled */
};

struct card_cq {
	struct ibv_cq base;
	struct card_cqe *ring;
	_Atomic unsigned head; /* read without the lock */
	unsigned tail, size, most;
	bool armed, overrun;
	_Atomic bool stalled; /* card_hold_requests() */
	unsigned unacknowledged;
	uint64_t last; /* time of the last entry */
};

struct card_receive {
	uint64_t wr_id, address;
	uint32_t length, lkey;
	bool empty; /* without a buffer */
};

struct card_receives {
	struct card_receive *ring;
	unsigned head, tail, size;
};

struct card_srq {
	struct ibv_srq base;
	struct card_receives receives;
	unsigned users;
};

/* A posted request. */
struct card_request {
	struct ibv_send_wr wr;
	struct ibv_sge pieces[CARD_PIECES];
	uint8_t copy[CARD_INLINE];
	uint8_t *
		bytes; /* of all pieces: inline bytes, or those of another process's request; NULL: in the pieces' memory */
	uint32_t length;
	uint64_t since;  /* time of the first attempt; 0: none yet */
	uint64_t silent; /* time of the first one without an answer; 0: none yet */
	bool signaled;
};

/* Receives that a stale completion may name. */
#define CARD_RECEIVED 40u

struct card_qp {
	struct ibv_qp base;
	struct card_qp *next;
	uint32_t peer; /* number of the connected queue pair; 0: none */
	struct card_request **ring;
	uint64_t head, tail, retired;
	uint64_t reported; /* requests up to this number have a completion, or a later one has */
	uint64_t executed; /* unanswered: requests up to this number are done */
	bool unanswered;   /* no acknowledgement comes back */
	unsigned size, max_sge, max_inline;
	struct card_receives receives;
	uint32_t send_psn, receive_psn;
	bool sq_sig_all, pumping, loopback;
	bool mute; /* its packets are lost */
	uint64_t wake; /* time until which it waits; 0: it does not; UINT64_MAX: for an answer */
	/* The first request is at another process: its number there, and then its answer. */
	uint64_t asked;
	bool answered;
	int answer;
	unsigned answer_timer;
	uint8_t rnr_timer;
	uint8_t port;
	uint16_t pkey_index;
	uint32_t ece; /* options that it supports, or has after ibv_set_ece(3) */
	bool ece_set;
	unsigned access;
	uint64_t last_wr_id;
	uint64_t received[CARD_RECEIVED]; /* wr_id of the last receives */
	unsigned received_count;
	uint64_t taken;           /* wr_id of a shared receive that its message did not end; 0: none */
	unsigned unacknowledged;  /* events that were read */
};

extern pthread_mutex_t card_lock;
extern struct card_counts card_counts;
/* counts.c: for programs that use the card */
struct card_counts card_counts_now(void);
/* A function of the card, for tests only. */
void *card_function(const char *name);
/* Makes a fault happen at the next chance, once, or at the next `count` chances. */
void card_fault_next(enum card_fault fault);
void card_faults_next(enum card_fault fault, unsigned count);
/*
 * Holds completions of receives that come to the queue from now on, and those behind them, until the next call; NULL: holds
 * none.
 */
void card_hold_received(struct ibv_cq *cq);
/*
 * Holds requests that are posted from now on to the queue pairs of a completion queue. They are done when it is polled next, before the
 * poll looks.
 */
void card_hold_requests(struct ibv_cq *cq);
/*
 * From now on each poll of the queue finds completions of another queue pair, as if other peers filled it faster than it is
 * served: `before` of them before its own, the others behind. NULL: none.
 */
void card_crowd(struct ibv_cq *cq, unsigned before);
/* Holds registrations of this many bytes and more until the next call; 0: none. Returns those that are held now. */
void card_hold(size_t least);
/* Holds those of some devices, a bit for each. */
void card_hold_on(unsigned devices, size_t least);
unsigned card_held(void);
/* Lets registrations of this many bytes and more fail at some devices, a bit for each, as without memory. */
void card_refuse(unsigned devices, size_t least);
/* Lets looks for devices wait, as during a reset, or go on. */
void card_hold_looks(bool held);
unsigned card_looks_held(void);
/* Lets calls that open these devices wait, a bit for each. */
void card_hold_opens(unsigned devices);
/* Lets all calls of a function wait, by its name; NULL: none. Calls that wait go on. */
void card_hold_calls(const char *function);
/* Lets all calls of a function fail, by its name; NULL: none. */
void card_fail_calls(const char *function);
/* Renames a device to "renamed" and its number. The next looks find a new object of the library. */
void card_rename(unsigned number);
/* Takes a port down, or up again; by its number among all ports, the first ports of all devices before the second ones. */
void card_port(unsigned number, bool up);
/* Moves the second entry of all P_Key tables to the end, and back at the next call. The devices report the change. */
void card_move_pkey(void);
/* The device reports that it is gone. The next look finds it again. */
void card_remove(void);
/* The next looks find so many devices, of those that STANDIN_CARDS makes. STANDIN_SHOWN has the number before. */
void card_show(unsigned count);
/* All devices are gone, and no look finds one again. */
void card_hide(void);

/* look.c: waits while a test holds looks for devices. */
void card_await_look(void);
/* Waits while a test holds the opening of the device. */
void card_await_open(unsigned device);
/* Waits while a test holds the calls of the function. */
void card_await_call(const char *function);
/* True if a test lets the calls of the function fail. */
bool card_call_fails(const char *function);

/* characters.c, mood.c */
const struct card_character *card_character(void);
/* Returns the most entries of a completion queue. STANDIN_CQE replaces the character's. */
int card_cqe_most(void);
/* True if the fault happens now, and counts it. */
bool card_happens(enum card_fault fault);
uint32_t card_random(uint32_t below);

/* clock.c: calls a function under the lock later, and forgets such calls. */
uint64_t card_now(void);
void card_start(void);
void card_after(uint64_t delay, void (*call)(void *argument), void *argument);
void card_forget(const void *argument);

/* device.c */
/* Reports an event to the context of its object, or to all contexts. */
void card_event(struct ibv_async_event event);
/* Forgets the events of a queue pair that goes, and waits until those that were read are acknowledged. */
void card_forget_events(struct card_qp *qp);

/* Returns the number of a device, from 0. STANDIN_CARDS is the number of devices, 1 by default. */
unsigned card_number(const struct ibv_context *of);

/* True if the device has atomic operations. STANDIN_NO_ATOMICS names devices without, a bit for each. */
bool card_has_atomics(const struct ibv_context *of);
/*
 * True if the device has a driver that registers memory with its address in the process only. STANDIN_FOREIGN names such
 * devices, a bit for each.
 */
bool card_is_foreign(const struct ibv_context *of);

/* ece.c: returns the options that queue pairs of the device support. */
uint32_t card_ece(const struct ibv_context *of);

/* True if the device has a port of that number. STANDIN_PORTS is the number of ports, 1 by default. */
bool card_has_port(unsigned number);
/* Returns the number of a device's port among all ports; from 0, the first ports of all devices before the second ones. */
unsigned card_place_of(unsigned device, unsigned port);

/* gid.c: GIDs of a port, by its number among all ports */
unsigned card_gid_count(void);
/* Returns 0, or -ENODATA for an empty entry. */
int card_gid(unsigned place, unsigned index, union ibv_gid *gid, enum ibv_gid_type *type, bool *usable);

/* Returns the number of a device's subnet. STANDIN_NETWORKS=routed: each has its own, and routers join them. */
unsigned card_subnet(unsigned device);

/* pkey.c */
void card_pkeys_turn(void);
unsigned card_pkey_count(void);
uint16_t card_pkey(unsigned index);
/* Returns true if queue pairs with these entries take packets of each other. */
bool card_pkeys_match(unsigned first, unsigned second);

/* memory.c */
struct card_access {
	uint64_t address;
	uint32_t key, length;
	unsigned rights;
};
/* Return where the card accesses the bytes, or NULL. A window needs its own queue pair. */
uint8_t *card_local(const struct card_qp *qp, const struct card_access *access);
uint8_t *card_remote(const struct card_qp *qp, const struct card_access *access);
struct ibv_mw *card_alloc_window(struct ibv_pd *pd, enum ibv_mw_type type);
int card_dealloc_window(struct ibv_mw *mw);
/* True if the window is longer than the provider takes. */
bool card_window_is_too_long(const struct ibv_send_wr *wr);
/* Returns the status of a bind request; the lkey is that of its region. */
enum ibv_wc_status card_bind(const struct card_qp *qp, const struct ibv_send_wr *wr, uint32_t lkey);
/* Returns the status of an invalidation. */
enum ibv_wc_status card_invalidate(const struct card_qp *qp, uint32_t rkey);
/* Unbinds the windows of a queue pair that goes. */
void card_unbind(const struct card_qp *qp);
void card_copy(uint8_t *to, const uint8_t *from, size_t length);
/*
 * Copies memory that its owner may write meanwhile, as the rings of streams are. ThreadSanitizer does not see that the
 * card reads it: a suppression would need the stack of the store, which it forgets after some thousand other events.
 */
void card_copy_shared(uint8_t *to, const uint8_t *from, uint32_t length);

struct card_place {
	uint8_t *to;
	const uint8_t *from;
	uint32_t length;
	const struct card_mr *mr;
};
/* ibv_reg_dmabuf_mr(3); `direct`: by Data Direct, which also reaches a mapping over PCI Express. */
struct ibv_mr *card_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
			       bool direct);
/* Returns the region of a remote key that card_remote() found. */
const struct card_mr *card_region_of(uint32_t key);
/* An asynchronous event by chance. */
void card_event_by_chance(struct card_qp *qp);

/* cq.c */
void card_complete(struct ibv_cq *cq, const struct ibv_wc *wc, uint64_t retired);
void card_purge(struct ibv_cq *cq, uint32_t qp_num);
int card_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int card_arm(struct ibv_cq *cq, int solicited_only);

/* qp.c */
struct card_qp *card_qp_find(uint32_t number);
/* Returns the queue pair after this one, the first one after NULL, and NULL after the last one. */
struct card_qp *card_qp_next(const struct card_qp *qp);
/* Moves the queue pair into the error state: all its work is returned. */
void card_qp_fail(struct card_qp *qp);
int card_receives_open(struct card_receives *receives, unsigned count);
int card_post_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int card_post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* post.c */
int card_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* execute.c: runs requests until one must wait. */
void card_pump(struct card_qp *qp);
/* Results that are no status: try again at qp->wake; the other queue pair does not answer; it has no receive. */
#define CARD_WAIT 1000
#define CARD_SILENT 1001
#define CARD_NOT_READY 1002
/* Does a request at a queue pair of this process that answers the requester. Returns a status, or CARD_WAIT: no receive. */
int card_execute_at(struct card_qp *qp, struct card_qp *peer, struct card_request *request);
/* True if the queue pair is connected to this one: packets of another connection do not fit its numbers. */
bool card_answers(const struct card_qp *peer, const struct card_qp *qp);
/* Returns the bytes of a piece, which `before` bytes precede, or NULL. */
uint8_t *card_piece(const struct card_qp *qp, struct card_request *request, int piece, uint32_t before, bool write);
bool card_pieces_are_good(const struct card_qp *qp, struct card_request *request, bool write);

/* place.c */
/* Places the bytes of a write: now, or later in the mood "order". */
void card_place(const struct card_place *place);
/* Holds them back in any case. */
void card_place_later(const struct card_place *place);
/* Places bytes that were held back: all, or those for host memory, as completions do. */
void card_place_held(bool gpu);
/* Places those that this card wrote, as its reads push them. */
void card_place_pushed(const struct ibv_context *context);

#endif
