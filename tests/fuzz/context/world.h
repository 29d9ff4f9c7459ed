/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The context under test (victim) with its memory, and an honest peer that must not notice the intruder. One thread
 * drives everything.
 */
#ifndef FUZZ_CONTEXT_WORLD_H
#define FUZZ_CONTEXT_WORLD_H

#include <peerlane/stream.h>

#include "core/peer.h"
#include "fuzz.h"

#define BLOCK 4096u /* the shared part of a region has one block before and one behind it */
#define SHARED (2 * BLOCK)
#define REGION (SHARED + 2 * BLOCK)
#define TRANSFER_MAX (8 * BLOCK) /* most bytes of a transfer of the victim */
#define TOKENS 16u
#define REMOTES 8u
#define PEERS 16u
#define LOANS 2u
/* Operations of the victim's program have user data from 1 on, its pl_connect_start() the last number. */
#define FUZZ_USERS 9u

enum { REGION_READABLE, REGION_WRITABLE, REGION_HONEST, REGION_SOURCE, REGION_TARGET, REGION_CHANGING, REGIONS };

struct memory {
	uint8_t *bytes;
	size_t length;
	struct pl_region *region;
};

struct token {
	uint8_t bytes[PL_TOKEN_MAX];
	size_t length;
	unsigned rights; /* 0: unused */
};

/* Memory that the victim has allocated. */
struct usage {
	uint64_t bytes, blocks;
};

struct world {
	bool keyed;
	struct usage usage;
	struct pl_context *victim, *good;
	struct pl_listener *listener;
	char address[96];
	struct pl_peer *served, *good_peer; /* the honest connection, at its two ends */
	struct pl_remote *good_remote;
	struct token good_token;
	struct memory good_buffer;
	uint8_t good_fill; /* last bytes that the honest peer wrote */
	struct memory memory[REGIONS];

	/* The intruder's connection, at the victim. */
	struct pl_peer *peer;
	struct pl_peer *more[PEERS]; /* further peers that were accepted */
	unsigned more_count;
	struct pl_remote *remotes[REMOTES];
	unsigned remote_count;
	struct token tokens[TOKENS]; /* the first two: readable, writable; then those of the changing region */
	struct pl_publisher *publisher;
	struct token stream_token;            /* length 0: the stream needs none */
	struct pl_stream_frame *loans[LOANS]; /* the oldest first */
	unsigned loan_count;
	uint64_t claimed;            /* by the program */
	const uint8_t *slot;         /* lent last; NULL: none so far */
	bool accepting;              /* an accept is posted */
	unsigned outstanding;        /* operations posted without completion */
	uint64_t digest;             /* of the changing region, while no token allows to write */
	unsigned descriptors;        /* that the contexts have between two inputs */
	uint64_t idle_bytes;         /* memory of the victim between two inputs */
	unsigned inputs;
};

extern const char fuzz_key[32];

/* clock.c */
void fuzz_advance(struct world *world, uint64_t time);
void fuzz_random_restart(uint64_t seed);
/* Returns the processor time, which passes while this thread waits: it never sleeps.  The machine may be busy. */
uint64_t fuzz_cpu_time(void);

/* world.c */
void world_open(struct world *world, bool keyed);
/* Checks that nothing stays allocated or open. */
void world_close(struct world *world);
/* Lets the victim work until it has nothing to do. Returns true if anything happened. */
bool world_progress(struct world *world);
/* Checks the length of queues that the intruder can fill. */
void world_check_limits(const struct world *world);
/* Sets the memory and the tokens for the next input. */
void world_begin(struct world *world);
/* Closes the intruder's peers at the victim, then checks the memory and the honest peer. */
void world_end(struct world *world);

/* memory.c */
void memory_open(struct memory *memory, struct pl_context *context, size_t length, unsigned access);
void memory_close(struct memory *memory);
/* Fills bytes that no peer may see. */
void secret_fill(uint8_t *bytes, size_t length);
bool secret_intact(const uint8_t *bytes, size_t length);
/* Returns true if the bytes contain a part of the secret. */
bool secret_inside(const uint8_t *bytes, size_t length);
uint64_t memory_digest(const uint8_t *bytes, size_t length);
void world_fill(struct world *world);
void world_check_memory(const struct world *world);
/* Tokens of the changing region. */
void changing_share(struct world *world, unsigned rights, uint64_t lifetime);
void changing_revoke(struct world *world, unsigned index);
void changing_deregister(struct world *world);

/* streams.c */
void publisher_open(struct world *world);
void publisher_close(struct world *world);
/* Checks that the stream is as the program left it. */
void publisher_check(const struct world *world);

#endif
