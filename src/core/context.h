/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A context: its engines, tables of peers and grants, locks, and queue of completions.
 *
 * Order of locks: an engine, then context->lock, then one of the small ones (grant_lock, queue_lock,
 * the latches of engines' operations), which never nest.
 */
#ifndef PL_CORE_CONTEXT_H
#define PL_CORE_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"
#include "base/index_table.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/random_words.h"
#include "core/callback_turns.h"
#include "core/counters.h"
#include "core/dial_turns.h"
#include "core/error_log.h"
#include "engine/engine.h"
#include "profile/profile.h"
#include "staging/staging.h"
#include "wire/wire.h"

struct pl_fabric_ops;
struct pl_topology;
struct pl_sysroot;
struct pl_grant;
struct pl_peer;

/* Array of a pl_poll() call that receives completions while that call makes progress. */
struct pl_sink {
	struct pl_completion *completions;
	int count, most;
};

/* Threads with a state of their own. All further ones share the context's. */
#define PL_THREADS_MAX 64u
/* Places for threads that send bulk data themselves: bulk_sender.h. */
#define PL_BULK_SENDERS 64u
/* A thread looks at its place, and may write it, in each post: no other place is in the same cache line. */
struct pl_bulk_sender {
	atomic_ulong thread;
	uint8_t apart[PL_CACHE_LINE - sizeof(atomic_ulong)];
};

struct pl_context {
	struct pl_allocator allocator;
	struct pl_options options; /* with defaults; pointers in it are not valid */
	char *devices;             /* options.devices; NULL: all */
	char program[32];          /* options.program; "": none */
	pid_t process;             /* that opened the context */
	atomic_bool closing;       /* pl_close() has begun */
	atomic_bool given_up;      /* its end did not wait any longer for a driver, whose objects stay */
	const uint8_t *fork_mark;  /* 1 in that process, 0 in a child of fork(2), which gets the page empty; NULL: none */
	struct pl_profile routes;  /* grant_lock, except in pl_routes_open() */
	bool routes_known;
	struct pl_topology *_Atomic machine; /* NULL: not needed so far, or not to be used. Does not change any more */
	struct pl_topology *machine_named;   /* of the file that the program named, until pl_machine_load() */
	bool machine_known;                  /* pl_machine_load() has nothing more to do */
	uint8_t id[16], boot_id[16];
	struct pl_trust *trust;       /* NULL: no options about identities */
	atomic_uint trust_generation; /* number of reloads */
	pthread_mutex_t reload_lock;  /* held during pl_context_reload() */
	struct pl_tls *tls; /* NULL: there is no key, and the context has neither listened nor connected */
	struct pl_engine *engines[PL_ENGINES_MAX];
	struct pl_dial_turns dial_turns[PL_ENGINES_MAX]; /* of each engine */
	struct pl_callback_turns callback_turns;         /* of options.authorize and options.refused */
	/* created on demand for an engine; protected by that engine's lock */
	struct pl_copier *copiers[PL_ENGINES_MAX];
	unsigned engine_count;
	unsigned processors;    /* of the thread that opened the context */
	bool lanes_by_default;  /* true if the program did not set options.lanes */
	bool polls_by_default;  /* likewise of options.poll_time; polling then rests while threads wait for cores */
	atomic_uint wide_peers; /* peers with more lanes than the others; of the tcp fabric, which limits them */
	atomic_uint bulk_lane_count; /* lanes of all peers that are up, but the first of each; of the tcp fabric */
	atomic_uint next_engine;
	atomic_uint greetings[PL_ENGINES_MAX]; /* connections of each engine that have not identified themselves */
	atomic_uint next_greeting; /* index of the engine at which the search for that of the next one begins */
	struct pl_slots slot_pool; /* locked memory, for bytes that sockets and cards cannot reach */
	const struct pl_fabric_ops *fabrics[PL_FABRICS_MAX]; /* candidates, best first */
	unsigned fabric_count;
	pthread_mutex_t fabric_lock;         /* protects creation of `tls` and fabric_states */
	void *fabric_states[PL_FABRICS_MAX]; /* state of each fabric for this context, in the order of `fabrics` */

	pthread_mutex_t lock; /* the lists, and peer_table */
	struct pl_list peers, listeners, regions, remotes, vectors, publishers, subscribers;
	uint64_t listener_numbers;                 /* listeners opened so far */
	struct pl_list home_peers[PL_ENGINES_MAX]; /* the peers again, by the index of their home */
	atomic_uint accepted;             /* peers that connected to this context, until they are freed */
	struct pl_index_table peer_table; /* struct pl_peer, for sockets that join a peer */
	atomic_uint closed_peers;         /* number of peers that were closed */

	pthread_mutex_t grant_lock;   /* grants, and the keys of all peers */
	struct pl_random_words random; /* for the numbers of keys; grant_lock */
	struct pl_index_table grants; /* struct pl_grant */
	size_t grants_looked_at;      /* number of grants after the last look for expired ones; grant_lock */
	unsigned outdated_registrations; /* released while a thread makes them; grant_lock */
	pthread_cond_t registration_ended;
	struct pl_task expiry_task;   /* of grants; runs on the first engine */
	struct pl_timer expiry_timer;

	struct pl_counters counters;
	struct pl_error_log errors; /* for pl_completion_error() */
	struct pl_lock queue_lock;  /* completions for pl_poll() */
	struct pl_list completed;
	atomic_bool any_completed; /* true if `completed` is not empty; read without the lock */
	struct pl_list held_notifications; /* arrived while pl_poll() delivers none; queue_lock */
	bool holds_notifications;          /* queue_lock */
	/* pl_poll() call that takes completions; NULL: use the list. Manual contexts only; the engine's lock */
	struct pl_sink *sink;
	int event_fd; /* readable while `completed` is not empty, at the end of a batch at the latest; -1 until pl_fd() */
	bool announced; /* event_fd is readable; queue_lock */
	bool collects;  /* the program has collected all completions of `completed` once; queue_lock */
	struct pl_batch_end announcement;
	int poll_fd;  /* descriptor that pl_fd() returned; -1 until then */

	/* States outlive their threads: a later thread with the same number goes on with them. */
	struct pl_thread_state *_Atomic threads[PL_THREADS_MAX];
	struct pl_bulk_sender bulk_senders[PL_BULK_SENDERS]; /* bulk_sender.h */
};

static inline bool pl_context_manual(const struct pl_context *context)
{
	return context->options.progress == PL_PROGRESS_MANUAL;
}

/*
 * True in a child of fork(2). The child has copies of the objects, but it shares the sockets and epoll sets with its parent,
 * and has none of the threads.
 */
static inline bool pl_context_forked(const struct pl_context *context)
{
	return context->fork_mark ? !*context->fork_mark : context->process != getpid();
}

/* fork_mark.c: notes the process that opens the context, and frees the note. */
void pl_context_mark_process(struct pl_context *context);
void pl_context_unmark_process(struct pl_context *context);
/* Returns 0, or fails in a child of fork(2). */
int pl_context_check_process(const struct pl_context *context, const char *call, struct pl_error *error);

/* Drives all engines once; for contexts without threads. Returns true if anything happened. */
bool pl_context_progress(struct pl_context *context);
/* Looks whether copies by GPUs have ended, on this thread, beside the engines' threads, which may sleep until woken. */
void pl_context_poll_copies(struct pl_context *context);

/* Returns the index of one of the context's engines. */
unsigned pl_context_engine_index(const struct pl_context *context, const struct pl_engine *engine);
/*
 * Returns the copier of an engine of the context, and creates it on first use. NULL: no memory. The engine's lock is
 * held.
 */
struct pl_copier *pl_context_copier(struct pl_context *context, struct pl_engine *engine);

/* Waits until every engine, and every copy of one, has finished all work that began before the call. */
void pl_context_barrier(struct pl_context *context);

/*
 * Engine that is the home of a context's peer by its number. Lane i of a peer belongs to the i-th engine after the home, so that
 * peers in succession have engines of their own as far as there are any. As many peers as engines have different homes.
 */
unsigned pl_context_home_of(unsigned number, unsigned lanes, unsigned engines);
struct pl_engine *pl_context_pick_engine(struct pl_context *context);

/* Prepares `tls` for the first connection of a context without a key: OpenSSL takes some milliseconds to start. */
int pl_context_use_tls(struct pl_context *context, struct pl_error *error);

/* profile_file.c: the profile that says how to reach GPU memory. A profile without a name is read on first use. */
int pl_routes_open(struct pl_context *context, const char *file, struct pl_error *error);
/* Returns NULL if there is no profile. The caller holds grant_lock. */
const struct pl_profile *pl_routes_get(struct pl_context *context);
void pl_routes_close(struct pl_context *context);

/* machine.c: reads the topology that the program named. NULL: pl_machine_load() reads that of the kernel. */
int pl_machine_open(struct pl_context *context, const char *file, struct pl_error *error);
/*
 * Fills context->machine on first use, which takes some milliseconds. `complete` adds what no file tells, before others
 * see the topology. One thread at a time.
 */
void pl_machine_load(struct pl_context *context,
		     void (*complete)(struct pl_topology *machine, struct pl_sysroot *root, void *user), void *user);
void pl_machine_close(struct pl_context *context);

#endif
