/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of a rendezvous: messages (rendezvous_message.c), rank 0 (coordinator.c), other ranks (member.c). */
#ifndef PL_BENCH_MATRIX_RENDEZVOUS_INTERNAL_H
#define PL_BENCH_MATRIX_RENDEZVOUS_INTERNAL_H

#include "bench/matrix/rendezvous.h"

#define RENDEZVOUS_FORMAT 2
#define RENDEZVOUS_HINT "use the same version of Peerlane and the same options for all ranks"
#define RENDEZVOUS_MESSAGE_MAX (64u << 20) /* bytes; 1024 ranks send all rows of a matrix in less */
#define RENDEZVOUS_LOSSES \
	((size_t)WORLD_RANKS_MAX / 8) /* bytes before each answer: one bit for each rank that is gone */

enum rendezvous_type {
	RENDEZVOUS_HELLO = 1, /* of a rank that joins */
	RENDEZVOUS_PART,      /* a rank's part of a message of all */
	RENDEZVOUS_ANSWER,    /* rank 0's answer to HELLO, and to the parts of all */
	RENDEZVOUS_LOSS,      /* a rank that is lost, before the next answer tells it: 4 bytes */
	RENDEZVOUS_NO,        /* the error for which rank 0 goes on without this rank */
};

/* Message that arrives in several notifications. */
struct inbox {
	uint8_t *bytes;
	size_t length, got;
	uint32_t sequence;
	uint8_t type; /* enum rendezvous_type; 0: no message has begun */
	bool ready;   /* the whole message is here */
};

/* Data of HELLO. */
struct hello {
	int rank, size;
	char run[MEMBERSHIP_RUN], host[64], terms[RENDEZVOUS_TERMS];
	uint64_t process; /* random number of the process, the same when it joins again */
};

/* Connection of another rank at rank 0. */
struct seat {
	struct pl_peer *peer; /* NULL: the seat is free */
	int rank;             /* -1: it has not joined */
	uint64_t process;     /* of HELLO */
	bool refused;
	uint64_t until; /* time at which it is closed if it has not joined */
	struct inbox inbox;
};

struct rendezvous {
	struct world world;
	const struct rendezvous_options *options;
	struct pl_context *context;
	uint32_t sequence; /* of the next message of all */
	uint64_t process;  /* random number of this process */
	/* ranks other than 0 */
	struct pl_peer *peer; /* rank 0 */
	bool lost;
	struct inbox inbox;
	/* rank 0 */
	struct pl_listener *listener; /* NULL: closed */
	struct seat *seats;
	size_t seat_count;
	struct seat **by_rank; /* NULL: not here */
	bool begun;            /* nobody joins any more */
	bool closing;          /* nor is a connection that ends a loss */
	char address[80];      /* of this host towards another one; "": none is known */
};

/* -- messages -------------------------------------------------------------------------------------- */

/* Sends a message as notifications.  Does not wait. */
int rendezvous_send(struct pl_peer *peer, enum rendezvous_type type, uint32_t sequence, const void *bytes,
		    size_t length, struct pl_error *error);
/*
 * Adds a notification to a message of at most `most` bytes.  Returns -EPROTO for one that does not continue it, or for a
 * longer message; -ENOMEM.
 */
int inbox_add(struct inbox *inbox, const struct pl_completion *completion, size_t most);
void inbox_clear(struct inbox *inbox);

/* Writes HELLO; returns its length, less than PL_NOTIFY_DATA_MAX. */
size_t hello_encode(const struct hello *hello, uint8_t bytes[PL_NOTIFY_DATA_MAX]);
/* Returns -EPROTO for other bytes, -EPROTONOSUPPORT for another format. */
int hello_decode(const uint8_t *bytes, size_t length, struct hello *hello);

/*
 * Sleeps until the context has something for pl_poll(), at most until `deadline`, a time of cli_now().  Returns false
 * when that is over.
 */
bool rendezvous_sleep(const struct rendezvous *rendezvous, uint64_t deadline);

/* True for HOST:PORT on the loopback interface. */
bool rendezvous_is_loopback(const char *address);

/* -- ranks ----------------------------------------------------------------------------------------- */

int coordinator_open(struct rendezvous *rendezvous, struct pl_error *error);
/*
 * Waits for the parts of all ranks, `each` bytes, into `all`; then answers `reply` to all.  The reply may be part of
 * `all`.
 */
int coordinator_exchange(struct rendezvous *rendezvous, const void *own, size_t each, void *all, const void *reply,
			 size_t length, struct pl_error *error);
void coordinator_leave_out(struct rendezvous *rendezvous, int rank, const char *reason);
/* Handles events without waiting. */
void coordinator_notice(struct rendezvous *rendezvous);
void coordinator_close(struct rendezvous *rendezvous);

void member_notice(struct rendezvous *rendezvous);
int member_open(struct rendezvous *rendezvous, struct pl_error *error);
/* Sends the own part, and waits for the answer of `length` bytes. */
int member_exchange(struct rendezvous *rendezvous, const void *own, size_t each, void *answer, size_t length,
		    struct pl_error *error);

#endif
