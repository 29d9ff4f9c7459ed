/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane bench`: how fast, how soon, at what cost.  Two processes, the client, which is asked to
 * measure, and the server.  For each size they set up memory, then run once or several times; the
 * client leads by messages, and the end that posts operations is called active, the other passive.
 */
#ifndef PL_CLI_BENCH_H
#define PL_CLI_BENCH_H

#include <sys/types.h>

#include "cmd/common/cli.h"
#include "cmd/common/spawn.h"
#include "bench/perf/samples.h"
#include "bench/common/result_head.h"
#include "cmd/common/stats.h"

int pl_cli_bench(int argc, char **argv);
/* `peerlane bench NAME`, one each; argv[0] is "peerlane bench NAME".  (bench_compare.c) */
int bench_compare(int argc, char **argv);

/* -- what to measure ----------------------------------------------------------------------------- */

#define BENCH_SIZE_MIN 1ull
#define BENCH_SIZE_MARKED 8ull /* of messages in turns, which have a marker */
#define BENCH_SIZE_MAX (1ull << 30)
#define BENCH_DEPTH_MAX 16384u
#define BENCH_DEPTH_DEFAULT 128u
#define BENCH_SIZES_MAX 64u
#define BENCH_PEERS_MAX 64u
#define BENCH_REPEAT_MAX 1000u
#define BENCH_KIND 24 /* bytes for a kind of memory */

enum bench_op {
	BENCH_WRITE = 1,
	BENCH_READ,
	BENCH_SEND,
	BENCH_FETCH_ADD,
	BENCH_COMPARE_SWAP,
	BENCH_REGISTER, /* memory, and a write from it */
	BENCH_CONNECT,
};

const char *bench_op_name(enum bench_op op);

/* What one size is measured with; both ends have it. */
struct bench_plan {
	enum bench_op op;
	bool latency, both_ways, validate, touch;
	uint64_t size;
	uint32_t depth, vector;
	uint32_t post_list; /* posts when so many can be, so many at once */
	uint32_t peers;     /* connections to one server */
};

/* How long one run takes. */
struct bench_length {
	uint64_t iterations; /* 0: as many as fit into `duration` */
	uint64_t duration;   /* nanoseconds */
	uint64_t warmup;     /* operations before, which are not measured */
	uint64_t seed;       /* of the content */
	uint64_t rate;       /* operations in 1,000 s; 0: as many as possible */
};

/* Follows from the plan: an operation uses the next of `slots` messages of `stride` bytes each. */
struct bench_layout {
	uint64_t stride, slots, window;
	uint32_t receives; /* posted by the passive end of sends */
};

/* (bench_plan.c) */
bool bench_plan_valid(const struct bench_plan *plan);
bool bench_plan_atomic(const struct bench_plan *plan);
/* Operations that are done one after the other, and that only the client times. */
bool bench_plan_single(const struct bench_plan *plan);
/* Whether operations can take turns on several connections. */
bool bench_plan_spreads(const struct bench_plan *plan);
/* The smallest size there can be. */
uint64_t bench_plan_least(const struct bench_plan *plan);
/* Both ends write into each other's memory, or send, in turns. */
bool bench_plan_pingpong(const struct bench_plan *plan);
/*
 * The depth for that: messages that an end has, to take in turns.  With a few, completions are collected
 * many at a time, not between a message and its answer.
 */
uint32_t bench_plan_turns(uint64_t size);
void bench_plan_layout(const struct bench_plan *plan, struct bench_layout *layout);

/* -- messages between the ends (bench_wire.c) ----------------------------------------------------- */

#define BENCH_VERSION 3
#define BENCH_MESSAGE_MAX 1024

enum bench_type {
	BENCH_SETUP = 1, /* client: plan, token of its memory; server: its token */
	BENCH_PREPARE,   /* client: length; server: nothing, its memory is ready and its receives are posted */
	BENCH_GO,        /* client: the measured part begins */
	BENCH_FINISH,    /* client: it has ended; server: so it has here; both: the result */
	BENCH_BYE,       /* client: no more; server: the same */
	BENCH_FAILED,    /* either: the error, and no more */
	BENCH_HELLO,     /* client: the memory that it wants; server: its machine, and the memory that it takes */
};

/* What one end measured. */
struct bench_result {
	uint64_t operations, elapsed; /* of the measured part; elapsed from first post to last completion */
	uint64_t cpu, wall;           /* processor time used meanwhile, and the time that passed */
	uint64_t covered;             /* messages' places in the window that this end's operations used */
	bool verified;                /* all content that this end checked was as it should be */
	double cached, operation;     /* registration, at the client: see struct bench_row */
};

struct bench_message {
	enum bench_type type;
	struct bench_plan plan;
	struct bench_length length;
	struct bench_result result;
	struct machine machine;
	char memory[BENCH_KIND];
	uint8_t token[PL_TOKEN_MAX];
	uint16_t token_length;
	struct pl_error error;
};

/* Bytes written; the buffer has BENCH_MESSAGE_MAX. */
size_t bench_encode(const struct bench_message *message, uint8_t *buffer);
/* 0; -EPROTO if it is none; -EPROTONOSUPPORT if it is of another version. */
int bench_decode(const uint8_t *buffer, size_t length, struct bench_message *message);

/* -- content (bench_pattern.c) -------------------------------------------------------------------- */

/* Markers, of which a receiver sees that a message is there, end each block and the message. */
#define BENCH_BLOCK 4096u

/* Where a pattern goes: `slots` messages of `size` bytes. */
struct bench_pattern {
	uint64_t size, stride, slots, seed;
	bool same;    /* all messages alike, as it is not known which comes to which place */
	bool markers; /* leave out the words that bench_mark() writes */
};

void bench_pattern_fill(const struct bench_pattern *pattern, void *memory);
bool bench_pattern_equal(const struct bench_pattern *pattern, const void *memory);

/* Markers are where the message's size puts them, on any address. */
typedef uint64_t __attribute__((aligned(1), may_alias)) bench_word;

static inline volatile bench_word *bench_end_marker(const void *message, uint64_t size)
{
	return (volatile bench_word *)((uintptr_t)message + size - sizeof(bench_word));
}

static inline void bench_mark(void *message, uint64_t size, uint64_t value)
{
	for (uint64_t end = BENCH_BLOCK; end < size; end += BENCH_BLOCK)
		*bench_end_marker(message, end) = value;
	*bench_end_marker(message, size) = value;
}
/* The marker at the end of a message, and whether all others are the same. */
static inline uint64_t bench_marker(const void *message, uint64_t size)
{
	return *bench_end_marker(message, size);
}
bool bench_marked(const void *message, uint64_t size, uint64_t value);

/* -- one end of the connection (bench_end.c) ------------------------------------------------------ */

#define BENCH_BATCH 64
#define BENCH_POSTED_CONTROLS 4

/* Where an operation has its bytes, and who takes them. */
struct bench_place {
	uint64_t remote, own; /* offsets at either end */
	uint32_t nth;         /* of its connection's numbers */
	uint16_t line, far;
};

/* What posts operations (bench_flow.c). */
struct bench_flow {
	uint64_t target, duration; /* ends after so many operations, or nanoseconds */
	uint64_t begun;            /* with a rate: the first posting */
	uint64_t posted, completed;
	uint64_t first, last;       /* posting of the first, completion of the last */
	uint64_t measured;          /* operations of the last run */
	uint32_t *numbers;          /* of operations: memory for the lines' */
	struct bench_place *places; /* by number */
	struct bench_line {         /* by connection */
		uint32_t *free;     /* those that are not under way, the next at the end */
		uint32_t free_count;
		uint32_t used; /* so many of its numbers were, the first ones */
	} lines[BENCH_PEERS_MAX];
	uint64_t *expected; /* atomics: by number, the value that its word has */
	struct pl_transfer *transfers;
	struct pl_attributes attributes;
	bool atomic;         /* as the plan says */
	bool ended;          /* posts no more */
	bool special;        /* completions are to be looked at for more than times */
	bool sampled;        /* and counted by when they were */
	bool wrong;          /* an atomic operation answered what it should not */
	struct stats *stats; /* NULL while warming up */
	bool alone;          /* one at a time: the next is posted when the one before completed */
	bool in_turns;       /* messages to and fro, */
	uint64_t turn;       /* and when the last one that completed was posted; 0: none did */
};

/* A region, and its bytes as the processor sees them (bench_memory.c). */
struct bench_buffer {
	struct pl_region *region;
	uint8_t *bytes;
	size_t length;
	bool apart;  /* the bytes are a copy of the region's */
	void *pages; /* huge ones, which are this program's; NULL: the library's */
	size_t pages_length;
	bool mapped; /* by mmap(2) */
};

/* What processor time and energy a run takes, as far as this system tells (bench_cost.c). */
#define BENCH_PACKAGES_MAX 16
struct bench_cost {
	int cycles; /* descriptor of the counter, or -1 */
	bool user_only;
	char no_cycles[120], no_joules[120]; /* why not */
	unsigned packages;
	struct bench_energy {
		char path[112];
		uint64_t range, begin;
	} energy[BENCH_PACKAGES_MAX];
	double begin; /* cycles */
};

struct bench_spent {
	bool has_cycles, has_joules;
	double cycles, joules;
};

struct bench_options;

struct bench_link {
	struct pl_peer *peer;
	struct pl_remote *remote; /* the other end's `exposed` */
	bool further;             /* not the one that messages go by */
};

/* Who is at the other end: of a server one client, of a client one server or several. */
struct bench_far {
	struct pl_peer *peer;
	char address[300]; /* client: the server's */
	struct bench_message inbox;
	bool arrived; /* inbox is to be taken */
	bool lost;    /* the end of the connection has come */
	struct bench_result result;
	/* What this end's operations came to, if there are several. */
	uint64_t completed, first, last;
	struct stats *stats; /* NULL: the only one */
	uint64_t received;   /* messages with data */
};

struct bench_end {
	struct pl_context *context;
	struct bench_far *fars, *far; /* far: who is spoken with */
	uint32_t far_count;
	struct pl_region *control;                /* control messages arrive here */
	char memory[BENCH_KIND];                  /* the kind of what follows */
	bool huge;                                /* in huge pages, if it is the host's */
	const char *pages;                        /* which there were: "hugetlb", "transparent", NULL */
	struct bench_buffer own;                  /* where this end's operations take or put their bytes */
	struct bench_buffer exposed;              /* what the other end reaches */
	struct bench_link links[BENCH_PEERS_MAX]; /* by `fars`, each with plan.peers */
	struct bench_plan plan;
	struct bench_layout layout;
	struct bench_length length;
	struct bench_flow flow;
	struct stats stats;
	struct pl_receipt sample; /* of one operation, for its route */
	bool manual, server;
	bool busy;        /* within a run: no sleeping without threads, as it would stop the bytes */
	bool one_sided;   /* the fabric writes memory without the program's help */
	bool passive;     /* but here nothing is to be done meanwhile: a card does it */
	int fd;           /* with threads: tells of completions */
	uint64_t timeout; /* how long the other end may be silent where it must answer */
	uint64_t turn;    /* ping-pong: messages so far, in one direction */
	uint64_t tag;     /* of messages from here on, and of the latest that came */
	uint64_t tag_arrived;

	bool go, finished; /* server: told so by the client */
	bool leaving;      /* the end of the connection is expected */
	uint32_t receives; /* posted for data */
	uint32_t renewed;  /* number of a receive that is to be posted again, and whether there is one */
	bool renewing;
	uint64_t received; /* messages with data, from all of them */
	struct bench_samples samples;
	struct bench_cost cost;
	struct bench_spent spent;     /* of the last run */
	struct pl_listener *listener; /* server */
	uint64_t due;                 /* with a rate: when there is something to be posted; 0: now */
	uint64_t touched;             /* what touching found: it must not be left out */
	uint64_t cpu_start, wall_start;

	uint32_t rounds;                          /* without any completion */
	uint64_t events, events_seen, last_event; /* to notice that nothing happens any more */
	bool interrupted;
	struct pl_error error; /* of whatever failed first */
	/* From the start of a cache line on, as in benchmarks/raw_loop.c: elsewhere a turn takes up to 1.5 % longer, or less. */
	_Alignas(64) struct pl_completion completions[BENCH_BATCH];
};

/* Memory for one, aligned as its members are; to be freed.  NULL: there is none. */
struct bench_end *bench_end_new(void);
/* Opens a context, for so many others; signals that end the process are looked for from here on. */
int bench_end_open(struct bench_end *end, const struct bench_options *options, uint32_t fars, struct pl_error *error);
/* Begins with end->far.  0 or a negative errno, as below, with the reason in end->error. */
int bench_end_begin(struct bench_end *end);
/* Closes the peers and gives everything back that belongs to this connection. */
void bench_end_reset(struct bench_end *end);
void bench_end_close(struct bench_end *end);

/* Allocates the regions for end->plan. */
int bench_end_memory(struct bench_end *end);
/* Makes a token of what end->far is to reach: of several, each has a window of its own, from that offset on. */
int bench_end_share(struct bench_end *end, struct bench_message *message);
uint64_t bench_exposed_offset(const struct bench_end *end, const struct bench_far *far);
/* What end->far exposes. */
int bench_end_import(struct bench_end *end, const struct bench_message *message);
void bench_end_free_memory(struct bench_end *end);

/* 0 or a negative errno, as above. */
int bench_buffer_open(struct bench_end *end, struct bench_buffer *buffer, size_t length, unsigned access);
void bench_buffer_close(struct bench_buffer *buffer);
/* Reads it all, as who uses it would; a GPU's goes to the host for that. */
int bench_buffer_touch(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length);
/* Has the region be as the bytes, and the bytes as the region. */
int bench_buffer_copy_in(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length);
static inline int bench_buffer_bring(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length)
{
	return buffer->apart ? bench_buffer_copy_in(end, buffer, offset, length) : 0;
}
int bench_buffer_fetch(struct bench_end *end, struct bench_buffer *buffer, size_t offset, size_t length);
/* The latter for the beginning of one apart, again and again: leaves the GPU time for others' copies. */
int bench_buffer_look(struct bench_end *end, struct bench_buffer *buffer, size_t length);

/* Connections with end->far (bench_links.c): at the client, at the server; as many as there are more than so far. */
int bench_links_connect(struct bench_end *end, uint32_t count);
int bench_links_accept(struct bench_end *end, uint32_t count);
int bench_links_import(struct bench_end *end, const void *token, size_t length);
void bench_links_release(struct bench_end *end);
void bench_links_close(struct bench_end *end);

/* Whether this end posts operations, and whether the other does. */
bool bench_active(const struct bench_end *end);
bool bench_passive(const struct bench_end *end);

/* Messages are to and from end->far. */
int bench_send(struct bench_end *end, const struct bench_message *message);
int bench_send_type(struct bench_end *end, enum bench_type type);
/* Until one of end's members that messages set is; waits as long as `patience` (0: for ever). */
int bench_await(struct bench_end *end, const bool *told, uint64_t patience);
/* Takes the next message into end->far->inbox, waiting as long as `patience` (0: for ever). */
int bench_next(struct bench_end *end, uint64_t patience);
/* The same; it must be of this type. */
int bench_expect(struct bench_end *end, enum bench_type type, uint64_t patience);
/* Tells the other ends why this one gives up, if it can still be told. */
void bench_send_failure(struct bench_end *end);
/* Waits a little for the other end to close the connection, so that it has read what was sent. */
void bench_linger(struct bench_end *end);

/* Makes progress, takes completions.  Their number, or a negative errno once anything failed. */
int bench_pump(struct bench_end *end);
/* One completion; end->error tells if it was a bad one. */
void bench_take(struct bench_end *end, const struct pl_completion *completion);
/*
 * For rounds that brought nothing.  A negative errno if a signal asked to end, or if no completion
 * came for `patience` nanoseconds (0: no limit) since bench_patience().
 */
int bench_idle(struct bench_end *end, uint64_t patience);
/* The same for who looks at memory, so does not sleep. */
int bench_spin(struct bench_end *end, uint64_t patience);
void bench_patience(struct bench_end *end);
bool bench_interrupted(struct bench_end *end);
/* 1, or -EINTR if a signal asked to end. */
int bench_signals(struct bench_end *end);

/* Records an error unless there is one; returns the code of the first. */
int bench_fail(struct bench_end *end, int code, const char *id, const char *object, const char *hint,
	       const char *format, ...) __attribute__((format(printf, 6, 7)));
int bench_fail_as(struct bench_end *end, const struct pl_error *error);

/* -- operations (bench_flow.c) -------------------------------------------------------------------- */

/* What an operation's user_data begins with; the rest is its number. */
enum bench_tag {
	BENCH_TAG_DATA = 1,
	BENCH_TAG_RECEIVE,
	BENCH_TAG_CONTROL,
	BENCH_TAG_OTHER,
};
#define BENCH_TAG_SHIFT 56
#define BENCH_USER_DATA(tag, number) ((uint64_t)(tag) << BENCH_TAG_SHIFT | (number))

/*
 * Tags of messages.  Data's is one of two, and, in turns, above that a part of the message's number: tags of 16 bits go
 * without a header, over verbs.
 */
#define BENCH_MESSAGE_CONTROL 1ull
#define BENCH_MESSAGE_DATA 2ull
#define BENCH_MESSAGE_LAST 3ull /* of a run in turns */
#define BENCH_MESSAGE_SHIFT 8
#define BENCH_MESSAGE_TURN(turn) ((turn) << BENCH_MESSAGE_SHIFT & 0xff00ull)
#define BENCH_MESSAGE_KINDS 0xfeull /* of these two, and not of the first */

/* Memory for a plan's operations. */
int bench_flow_allocate(struct bench_end *end);
void bench_flow_free(struct bench_flow *flow);
/* Keeps operations under way, `iterations` (0: for `duration`), recording into stats unless NULL. */
int bench_flow_run(struct bench_end *end, uint64_t iterations, uint64_t duration, struct stats *stats);
/*
 * Part of it, once all places are taken and if nothing special is asked for: until no more is to be posted
 * (bench_steady.c).
 */
bool bench_steady_fits(const struct bench_end *end);
int bench_steady_run(struct bench_end *end);

int bench_receives_post(struct bench_end *end);
/* In turns: the receive that brought a message is posted again once that was answered. */
int bench_receives_renew(struct bench_end *end);
int bench_received(struct bench_end *end, uint32_t number, const struct pl_receipt *receipt);
/* Asks the other end's receives back, with messages that have no bytes. */
int bench_receives_release(struct bench_end *end);

/* -- in turns (bench_pingpong.c) ------------------------------------------------------------------ */

/* The client measures; as bench_flow_run().  With stats it is the last of the run. */
int bench_pingpong_lead(struct bench_end *end, uint64_t iterations, uint64_t duration, struct stats *stats);
/* The server answers, until the client's last. */
int bench_pingpong_follow(struct bench_end *end);

/* -- one run (bench_run.c) ------------------------------------------------------------------------ */

/* Fills and poisons memory and posts receives, for end->length. */
int bench_prepare(struct bench_end *end);
/* The active part: warm-up, `started`, and what is measured, into *result and end->stats. */
int bench_run(struct bench_end *end, int (*started)(struct bench_end *end), struct bench_result *result);
/* Messages' places in the window that operations with `far` used, from the first one on. */
uint64_t bench_covered(const struct bench_end *end, const struct bench_far *far);
void bench_usage_begin(struct bench_end *end);
void bench_usage_end(struct bench_end *end, struct bench_result *result);
/* (bench_cost.c) Before the library's threads are made, so that they are counted. */
void bench_cost_open(struct bench_cost *cost, const char *sysfs);
void bench_cost_close(struct bench_cost *cost);
void bench_cost_begin(struct bench_cost *cost);
void bench_cost_end(struct bench_cost *cost, struct bench_spent *spent);
/* Waits for the end of the others' messages, then tells if all content is right; far->result is there. */
int bench_check(struct bench_end *end, bool *verified);

/* -- the server (bench_server.c), and one of the client's own (bench_child.c) ---------------------- */

struct bench_options {
	struct cli_options common;
	const char *addresses[BENCH_PEERS_MAX];
	uint32_t address_count;
	const char *memory, *peer_memory; /* peer_memory: NULL: the server's choice */
	const char *cpus, *peer_cpus;     /* NULL: any */
	int node;                         /* NUMA; -1: any */
	bool huge, csv, perftest, gbits, all, with_machine;
	uint64_t sample_interval, rate_bytes;
	int argc;
	char **argv;
	struct bench_plan plan;
	struct bench_length length;
	uint64_t sizes[BENCH_SIZES_MAX];
	uint32_t size_count, repeat, step;
	const char *size_text;
	bool depth_given, warmup_given, duration_given, manual, server, once;
	int announce; /* descriptor to which the server's address is written, or -1 */
};

/* The command line (bench.c, bench_how.c, bench_sizes.c).  The functions end the process where it is wrong. */
extern const struct argp bench_how_argp;
void bench_finish_how(struct bench_options *options, struct argp_state *state);
void bench_finish_sizes(struct bench_options *options, struct argp_state *state);
uint32_t bench_parse_number(const char *name, const char *text, unsigned min, unsigned max, struct argp_state *state);

int bench_serve(const struct bench_options *options);

/* Where this process runs, and has its memory (bench_place.c).  Before the library's threads are made. */
int bench_place(const struct bench_options *options, struct pl_error *error);
/* Whether it is a list of cores, such as 0-3,8. */
bool bench_cpus_valid(const char *text);

/* Operations that are done one at a time (bench_single.c): the client's part, and the server's. */
int bench_single_lead(struct bench_end *end, struct bench_result *result);
int bench_single_follow(struct bench_end *end);

struct bench_child {
	struct cli_child process;
	int key; /* descriptor of a file in memory with the key, or -1 */
	char key_path[32];
};

/* Starts it on a free port of loopback; makes a key where one is needed and none was given. */
int bench_child_start(struct bench_child *child, struct bench_options *options, struct pl_error *error);
/* Waits for its end, which the end of the connection causes; kills it if that does not come. */
void bench_child_stop(struct bench_child *child);

/* -- the client (bench_client.c), which shows what it measured (bench_report.h) ------------------------ */

int bench_measure(struct bench_options *options);

/* "8", "64K", "1M", "1000". */
const char *bench_size_text(char *buffer, size_t size, uint64_t bytes);

#endif
