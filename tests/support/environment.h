/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Environment of a scenario: two connected contexts, "near" and "far", over any fabric.
 * Both contexts live in one process.  With manual progress a waiter must therefore drive both: await() and collect()
 * do.
 */
#ifndef TEST_ENVIRONMENT_H
#define TEST_ENVIRONMENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/buffer.h"
#include "support/process.h"

/* Setting: options with which a scenario opens both contexts. */
struct setting {
	const char *name;
	const char *fabric;
	const char *host; /* numeric, in brackets if it is IPv6 */
	enum pl_progress progress;
	unsigned lanes;
	bool key;
	bool encrypted;
	bool one_sided; /* one-sided operations need no progress at the target, whose pages stay locked */
	bool slow;      /* emulated processor: fewer rounds, longer time limits */
};

#define ENVIRONMENT_CONTEXTS 8

/* True if all contexts reach grants by memory windows, where the device has them. */
extern bool narrow_grants;
/* poll_time of all contexts; 0: the machine's default. */
extern uint64_t poll_time;
/* Value of pl_options.connect_timeout; 0: AMPLE_TIME. */
extern uint64_t connect_time;
/* Most rails of each peer; 0: the library's default. */
extern unsigned rail_limit;

struct scenario_environment {
	const struct setting *setting;
	struct pl_context *near, *far;
	struct pl_listener *listener;                    /* listener of `far` */
	char address[96];                                /* address of the listener */
	struct pl_peer *near_peer;                       /* peer object of `near` for `far` */
	struct pl_peer *far_peer;                        /* peer object of `far` for `near` */
	struct pl_context *driven[ENVIRONMENT_CONTEXTS]; /* contexts that waiting functions drive */
};

extern const char test_key[32];

void environment_open(struct scenario_environment *environment, const struct setting *setting);
/* Opens both contexts and the listener, without a connection. */
void environment_listen(struct scenario_environment *environment, const struct setting *setting);
void environment_close(struct scenario_environment *environment);
bool environment_manual(const struct scenario_environment *environment);

/*
 * Returns true if atomics need no progress at the target.  The local fabric executes atomics at the initiator where it
 * can map the memory.
 */
bool atomics_one_sided(const struct scenario_environment *environment);

/* Return a setting's options, and open further contexts, listeners and connections with them. */
struct pl_options setting_options(const struct setting *setting);
struct pl_context *context_open(const struct setting *setting);
struct pl_context *context_open_with(const struct pl_options *options);
struct pl_listener *listener_open(const struct setting *setting, struct pl_context *context, char address[96]);
void connect_pair(struct scenario_environment *environment, struct pl_context *from, struct pl_listener *to,
		  struct pl_peer **from_peer, struct pl_peer **to_peer);
struct pl_peer_info peer_information_of(struct pl_peer *peer);

/* Add a context to `driven`, or remove it. */
void drive(struct scenario_environment *environment, struct pl_context *context);
void drive_no_more(struct scenario_environment *environment, struct pl_context *context);
void progress(struct scenario_environment *environment);
/* Makes progress, or sleeps, for the given time. */
void settle(struct scenario_environment *environment, unsigned milliseconds);

#define progress_until(environment, condition) \
	do { \
		while (!(condition)) \
			progress(environment); \
	} while (0)

/* Waits until both ends have so many lanes, or rails. */
void await_lanes(struct scenario_environment *environment, unsigned lanes);
/* Waits for an operation and returns its status. */
int await(struct scenario_environment *environment, struct pl_operation *operation, struct pl_completion *receipt,
	  struct pl_error *error);
/* Waits for an operation, which must succeed. */
#define complete(environment, operation, receipt) complete_at(__FILE__, __LINE__, environment, operation, receipt)
void complete_at(const char *file, int line, struct scenario_environment *environment, struct pl_operation *operation,
		 struct pl_completion *receipt);
/* Waits for an operation, which must fail with this status and a matching description. */
#define fail_with(environment, operation, status) fail_with_at(__FILE__, __LINE__, environment, operation, status)
void fail_with_at(const char *file, int line, struct scenario_environment *environment, struct pl_operation *operation,
		  int status);
/* Collects exactly n completions of a context. */
void collect(struct scenario_environment *environment, struct pl_context *context, struct pl_completion *completions,
	     int n);

/* Pump: thread that drives a context with manual progress while other threads use blocking calls. */
struct pump {
	struct pl_context *context;
	pthread_t thread;
	atomic_bool stop;
	bool running;
};

void pump_start(struct scenario_environment *environment, struct pump *pump, struct pl_context *context);
void pump_stop(struct pump *pump);

/* Share a region with options (NULL: the whole region) and import it at the other end. */
struct pl_remote *share(struct scenario_environment *environment, struct pl_region *region, struct pl_peer *importer,
			const struct pl_grant_options *options);
struct pl_remote *import_token(struct scenario_environment *environment, struct pl_peer *importer, const void *token,
			       size_t length);
int import_status(struct scenario_environment *environment, struct pl_peer *importer, const void *token, size_t length);

/* Checks all members of the receipt of a successful operation, of either end, that moved `bytes` bytes. */
#define receipt_check(environment, receipt, kind, bytes) \
	receipt_check_at(__FILE__, __LINE__, environment, receipt, kind, bytes)
void receipt_check_at(const char *file, int line, const struct scenario_environment *environment,
		      const struct pl_completion *receipt, enum pl_kind kind, uint64_t bytes);

#endif
