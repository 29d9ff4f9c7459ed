/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two connected contexts, "near" and "far", over any fabric.  They live in one process, so with
 * manual progress whoever waits for one must drive both: await() and collect() do.
 */
#ifndef TEST_ENVIRONMENT_H
#define TEST_ENVIRONMENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/buffer.h"
#include "support/process.h"

/* How the two contexts are set up. */
struct setting {
	const char *name;
	const char *fabric;
	const char *host; /* numeric, in brackets if it is IPv6 */
	enum pl_progress progress;
	unsigned streams;
	bool key;
	bool encrypted;
	bool one_sided; /* reads, writes and atomics need no progress at the target, which keeps its pages locked */
	bool slow;      /* an emulated processor: fewer rounds, more time */
};

#define ENVIRONMENT_CONTEXTS 8

/* How much later than at its time something may happen, and how long what has no time of its own may take. */
#define SLACK (slowness() * SECOND)
#define AMPLE_TIME (5 * slowness() * SECOND)

/* Of all contexts: grants are reached by memory windows, where the device has them. */
extern bool narrow_grants;

struct scenario_environment {
	const struct setting *setting;
	struct pl_context *near, *far;
	struct pl_listener *listener;                    /* far's */
	char address[96];                                /* the listener's */
	struct pl_peer *near_peer;                       /* far, as near sees it */
	struct pl_peer *far_peer;                        /* near, as far sees it */
	struct pl_context *driven[ENVIRONMENT_CONTEXTS]; /* contexts that waiting drives */
};

extern const char test_key[32];

void environment_open(struct scenario_environment *environment, const struct setting *setting);
void environment_close(struct scenario_environment *environment);
bool environment_manual(const struct scenario_environment *environment);

/* Whether atomic operations need no progress at the target: the local fabric does them itself where it can map. */
bool atomics_one_sided(const struct scenario_environment *environment);

/* The options of a setting, and further contexts and connections with them. */
struct pl_options setting_options(const struct setting *setting);
struct pl_context *context_open(const struct setting *setting);
struct pl_context *context_open_with(const struct pl_options *options);
struct pl_listener *listener_open(const struct setting *setting, struct pl_context *context, char address[96]);
void connect_pair(struct scenario_environment *environment, struct pl_context *from, struct pl_listener *to,
		  struct pl_peer **from_peer, struct pl_peer **to_peer);

/* Adds a context to those that waiting drives, or takes it off. */
void drive(struct scenario_environment *environment, struct pl_context *context);
void drive_no_more(struct scenario_environment *environment, struct pl_context *context);
void progress(struct scenario_environment *environment);
/* Progress, or sleep, for that time. */
void settle(struct scenario_environment *environment, unsigned milliseconds);

#define progress_until(environment, condition) \
	do { \
		while (!(condition)) \
			progress(environment); \
	} while (0)

/* Waits for an operation and returns its status. */
int await(struct scenario_environment *environment, struct pl_operation *operation, struct pl_receipt *receipt,
	  struct pl_error *error);
/* Waits for an operation that must succeed. */
#define complete(environment, operation, receipt) complete_at(__FILE__, __LINE__, environment, operation, receipt)
void complete_at(const char *file, int line, struct scenario_environment *environment, struct pl_operation *operation,
		 struct pl_receipt *receipt);
/* Waits for an operation that must fail with this status, and be described. */
#define fail_with(environment, operation, status) fail_with_at(__FILE__, __LINE__, environment, operation, status)
void fail_with_at(const char *file, int line, struct scenario_environment *environment, struct pl_operation *operation,
		  int status);
/* Collects exactly n completions of a context. */
void collect(struct scenario_environment *environment, struct pl_context *context, struct pl_completion *completions,
	     int n);

/* A thread that drives contexts while others use blocking calls; none is needed without manual progress. */
struct pump {
	struct pl_context *context;
	pthread_t thread;
	atomic_bool stop;
	bool running;
};

void pump_start(struct scenario_environment *environment, struct pump *pump, struct pl_context *context);
void pump_stop(struct pump *pump);

/* Shares a region with options (NULL: all of it) and imports it at the other end. */
struct pl_remote *share(struct scenario_environment *environment, struct pl_region *region, struct pl_peer *importer,
			const struct pl_grant_options *options);
struct pl_remote *import_token(struct scenario_environment *environment, struct pl_peer *importer, const void *token,
			       size_t length);
int import_status(struct scenario_environment *environment, struct pl_peer *importer, const void *token, size_t length);

/* Checks all of a successful receipt of an operation of near (or far) that moved `bytes`. */
#define receipt_check(environment, receipt, kind, bytes) \
	receipt_check_at(__FILE__, __LINE__, environment, receipt, kind, bytes)
void receipt_check_at(const char *file, int line, const struct scenario_environment *environment,
		      const struct pl_receipt *receipt, enum pl_kind kind, uint64_t bytes);

#endif
