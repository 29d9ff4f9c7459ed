/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane bench workflow` and `peerlane bench proxy`.  Frames arrive from a remote host, and a device computes on each
 * one.  The result is inspected in host memory, or served to a third host.  Several methods are measured in turn.
 * The measuring process controls its servers, a source and, for a proxy, a sink, by messages.
 */
#ifndef PL_BENCH_WORKFLOW_WORKFLOW_H
#define PL_BENCH_WORKFLOW_WORKFLOW_H

#include <pthread.h>
#include <stdatomic.h>

#include <peerlane/counters.h>
#include <peerlane/stream.h>

#include "bench/common/result_head.h"
#include "compute/compute.h"
#include "cmd/common/cli.h"
#include "cmd/common/spawn.h"
#include "cmd/common/stats.h"

#define WORKFLOW_SIZE_MIN 4096ull
#define WORKFLOW_SIZE_MAX (512ull << 20)
#define WORKFLOW_SIZES_MAX 32u
#define WORKFLOW_METHODS_MAX 8u
#define WORKFLOW_ROUNDS_MAX 101u
#define WORKFLOW_DEPTH_MIN 2u
#define WORKFLOW_DEPTH_MAX 64u
#define WORKFLOW_SAMPLE 4096u /* bytes of which an inspection checks one word */

struct workflow_method {
	const char *name, *title;
	bool direct;     /* frames are received into device memory */
	bool pinned;     /* host memory is pinned for the device's copies */
	bool overlapped; /* several frames in flight */
	bool push;       /* the source writes frames; else the client reads them */
	bool stream;     /* the source publishes frames, and the client's subscriber reads them */
	bool proxy;      /* results are served to a sink; else inspected */
};

/* Returns the methods of a command, and their count. */
const struct workflow_method *workflow_methods(bool proxy, unsigned *count);
/* Returns the device's steps, as bits 1u << enum pl_compute_step. */
unsigned workflow_method_steps(const struct workflow_method *method);

/* -- frames ---------------------------------------------------------------------------------------------- */

enum workflow_fault {
	WORKFLOW_FAULT_NONE,
	WORKFLOW_FAULT_SOURCE,  /* a bit of a frame is flipped at its source */
	WORKFLOW_FAULT_COMPUTE, /* one frame is not computed */
	WORKFLOW_FAULT_RESULT,  /* a bit of one result is flipped */
};

/* Returns the source's slot with the content of frame `number`.  A source has one slot more than the ring here. */
static inline uint32_t workflow_content_slot(uint64_t number, uint32_t depth)
{
	return (uint32_t)(number % (depth + 1));
}

/* First wrong word, for an error message. */
struct workflow_difference {
	uint64_t frame, word;
	uint32_t found, wanted;
};

void workflow_frame_fill(uint32_t *words, uint64_t size, uint64_t seed, uint32_t slot);
/* Flips one bit that an inspection does not check. */
void workflow_frame_damage(uint32_t *words, uint64_t size, uint64_t seed);
/* True if the words are the kernel's result: all words, or the first, the last and samples. */
bool workflow_result_equal(const uint32_t *words, uint64_t size, uint64_t seed, uint32_t slot, bool all,
			   struct workflow_difference *difference);

/* -- messages -------------------------------------------------------------------------------------------- */

#define WORKFLOW_VERSION 3
#define WORKFLOW_MESSAGE_MAX 1024
#define WORKFLOW_MESSAGE_TAG 3ull
#define WORKFLOW_POLL_MS 100

enum workflow_type {
	WORKFLOW_SETUP = 1, /* client: role, size, depth; source: token of its frames */
	/* client: seed, fault, depth, stream or not, token of a ring for pushed frames or of results; server: ready */
	WORKFLOW_RUN,
	WORKFLOW_CHECK,  /* client: count of frames so far; server: route totals and, from the sink, the verdict */
	WORKFLOW_BYE,    /* client: no more requests; server: the same */
	WORKFLOW_FAILED, /* either: an error ends the session */
};

/* Routes of transferred bytes. */
struct workflow_totals {
	enum pl_route route;
	uint64_t direct, staged;
	char fabric[16], reason[192];
};

struct workflow_message {
	enum workflow_type type;
	bool sink, verify, stream;
	uint64_t size, seed, frames, checked;
	uint32_t depth;
	enum workflow_fault fault;
	uint8_t token[PL_TOKEN_MAX];
	uint16_t token_length;
	struct machine machine; /* in WORKFLOW_SETUP: the server's */
	struct workflow_totals totals;
	bool right;
	struct workflow_difference difference;
	struct pl_error error;
};

/* Returns the number of bytes written; the buffer has WORKFLOW_MESSAGE_MAX. */
size_t workflow_encode(const struct workflow_message *message, uint8_t *buffer);
/* Returns 0, -EPROTO if the bytes are not a message, or -EPROTONOSUPPORT if they are of another version. */
int workflow_decode(const uint8_t *buffer, size_t length, struct workflow_message *message);

bool workflow_size_valid(uint64_t size);
static inline uint64_t workflow_stride(uint64_t size)
{
	return (size + 4095) & ~4095ull;
}
/* Adds the bytes and the route of a receipt. */
void workflow_totals_add(struct workflow_totals *totals, const struct pl_completion *receipt);

/* -- servers --------------------------------------------------------------------------------------------- */

struct workflow_options {
	struct cli_options common;
	const char *address, *sink; /* NULL: a process started here */
	const char *device;         /* "auto", "simulated", "cuda", "cuda:N" */
	bool proxy, server, once;
	uint64_t sizes[WORKFLOW_SIZES_MAX];
	uint32_t size_count;
	bool methods[WORKFLOW_METHODS_MAX]; /* selected ones */
	bool methods_given;
	uint32_t rounds, depth;
	uint64_t frames, duration; /* limits of a method in each round; frames is used if not 0 */
	enum workflow_fault fault;
	int announce; /* descriptor to which the server's address is written, or -1 */
	int argc;     /* command line, for the results */
	char **argv;
};

/* Serves clients, one after the other.  Returns an exit status. */
int workflow_serve(const struct workflow_options *options);

/* Stream of frames that a source publishes. */
struct workflow_stream {
	struct pl_publisher *publisher; /* NULL: none */
	pthread_t thread;
	bool started;
	atomic_bool stop;
	int rc; /* of the thread; the reason is in `error` */
	struct pl_error error;
};

/* Source or sink, with its client. */
struct workflow_server {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *control, *ring; /* receives messages; frames */
	struct pl_remote *remote;         /* the client's ring */
	struct workflow_message setup, run;
	struct workflow_stream stream;
	struct workflow_totals totals;
	struct workflow_difference difference;
	uint64_t begun, allowed, ended; /* frames: started, allowed by the client, completed */
	bool wrong, leaving, gone;
	int fd;
	struct pl_error error;
};

/* Serves a client until it is gone.  Returns 0, or a negative errno with the reason in server->error. */
int workflow_server_run(struct workflow_server *server);

/* Opens the stream of a run. Its frames are those of the source's ring. */
int workflow_stream_open(struct workflow_server *server);
/* Begins to publish: the client has subscribed. */
int workflow_stream_start(struct workflow_server *server);
/* Ends the stream, if there is one. Returns the status of its thread, with the reason in server->error. */
int workflow_stream_close(struct workflow_server *server);

struct workflow_connection {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *control; /* receives messages */
	struct cli_child child;
	uint64_t timeout;
};

/* Connects to a server, which it starts if there is no address. */
int workflow_connection_open(struct workflow_connection *connection, struct workflow_options *options,
			     const char *address, struct pl_error *error);
void workflow_connection_close(struct workflow_connection *connection);
/* Sends a request and waits for an answer of the same type, which replaces *message. */
int workflow_request(struct workflow_connection *connection, struct workflow_message *message, struct pl_error *error);

/* -- rings ----------------------------------------------------------------------------------------------- */

/* Ring of frames in one kind of memory. */
struct workflow_ring {
	struct pl_region *region;
	uint8_t *bytes; /* address in its memory; the processor must not access device memory */
	uint64_t stride;
	bool pinned;
};

static inline void *workflow_slot(const struct workflow_ring *ring, uint32_t slot)
{
	return ring->bytes + slot * ring->stride;
}

/* Rings for one size; methods use some of them. */
struct workflow_memory {
	uint64_t size, stride;
	uint32_t depth;
	struct workflow_ring host_in, host_out;     /* one frame each, not pinned */
	struct workflow_ring pinned_in, pinned_out; /* pinned for the device */
	struct workflow_ring device_in, device_out;
	void *poison;
};

int workflow_memory_open(struct workflow_memory *memory, const struct workflow_options *options,
			 struct pl_context *source, struct pl_context *sink, struct pl_compute *compute, uint64_t size,
			 struct pl_error *error);
void workflow_memory_close(struct workflow_memory *memory, struct pl_compute *compute);
/* Return the ring that a method receives into, and the ring of its results. */
struct workflow_ring *workflow_memory_in(struct workflow_memory *memory, const struct workflow_method *method);
struct workflow_ring *workflow_memory_out(struct workflow_memory *memory, const struct workflow_method *method);
/* Overwrites all memory that a method uses, so that results of earlier runs cannot pass the checks. */
int workflow_memory_poison(struct workflow_memory *memory, const struct workflow_method *method,
			   struct pl_error *error);

/* -- one run of a method --------------------------------------------------------------------------------- */

enum workflow_phase {
	WORKFLOW_RECEIVE,
	WORKFLOW_TO_DEVICE,
	WORKFLOW_COMPUTE,
	WORKFLOW_TO_HOST,
	WORKFLOW_INSPECT,
	WORKFLOW_SERVE,
	WORKFLOW_OTHER, /* rest of the whole: waiting, and this program's own work */
	WORKFLOW_WHOLE,
	WORKFLOW_PHASES,
};

const char *workflow_phase_name(enum workflow_phase phase);

/* Times of one frame. */
struct workflow_frame {
	uint64_t begun;
	uint64_t phases[WORKFLOW_PHASES];
	struct pl_operation *read;
	struct pl_stream_frame *frame; /* of a stream */
};

/* Notifications: frames that the source has written, or results that the sink has read. */
struct workflow_arrivals {
	uint64_t seen[WORKFLOW_DEPTH_MAX]; /* by slot: the frame's number plus 1 */
};

struct workflow_run {
	const struct workflow_options *options;
	const struct workflow_method *method;
	struct pl_compute *compute;
	struct workflow_memory *memory;
	struct workflow_connection *source, *sink;
	struct pl_remote *remote; /* the source's frames */
	struct pl_subscriber *subscriber; /* of the source's stream; NULL: none */
	struct pl_traffic traffic;        /* reads before the subscription */
	uint64_t seed;
	uint32_t depth;       /* slots that this method uses */
	uint64_t next;        /* number of the next frame */
	uint64_t first;       /* first measured frame; at least one frame is measured */
	uint64_t limit;       /* frame at which the run ends; UINT64_MAX while unknown */
	uint64_t deadline;    /* no frame starts after it; 0: none */
	bool verify;          /* compare every word, measure nothing */
	bool inject;          /* the fault of --inject is not made yet */
	struct stats *phases; /* array of WORKFLOW_PHASES */
	struct workflow_totals totals;
	struct workflow_difference difference;
	struct workflow_frame frames[WORKFLOW_DEPTH_MAX];
	struct workflow_arrivals pushed, taken;
	uint64_t ended; /* time of the last frame's end */
};

/* Run frames from run->next to run->limit or the deadline: one after the other, or `depth` at a time. */
int workflow_run_serial(struct workflow_run *run, struct pl_error *error);
int workflow_run_overlapped(struct workflow_run *run, struct pl_error *error);

/* Subscribe to the source's stream, with frames in device memory, and leave it; leaving adds the totals. */
int workflow_subscribe(struct workflow_run *run, struct pl_error *error);
void workflow_unsubscribe(struct workflow_run *run);
/* Takes the next frame, which must have this number; returns its address; gives it back, if there is one. */
int workflow_stream_take(struct workflow_run *run, uint64_t number, struct pl_error *error);
void *workflow_stream_data(const struct workflow_frame *frame);
void workflow_stream_release(struct workflow_frame *frame);

/* Steps of one frame. */
int workflow_receive_begin(struct workflow_run *run, uint64_t number, struct pl_error *error);
/* Tells a source that pushes how many frames it may write. */
int workflow_receive_allow(struct workflow_run *run, uint64_t frames, struct pl_error *error);
int workflow_receive_end(struct workflow_run *run, uint64_t number, struct pl_error *error);
int workflow_device_begin(struct workflow_run *run, uint64_t number, unsigned steps, struct pl_error *error);
int workflow_device_end(struct workflow_run *run, uint64_t number, struct pl_error *error);
int workflow_inspect(struct workflow_run *run, uint64_t number, struct pl_error *error);
int workflow_serve_begin(struct workflow_run *run, uint64_t number, struct pl_error *error);
int workflow_serve_end(struct workflow_run *run, uint64_t number, struct pl_error *error);
void workflow_frame_done(struct workflow_run *run, uint64_t number);
/* True if another frame is to be started. */
bool workflow_run_more(struct workflow_run *run);
int workflow_fail_content(const struct workflow_run *run, struct pl_error *error);

/* -- all runs -------------------------------------------------------------------------------------------- */

struct workflow_result {
	const struct workflow_method *method;
	uint64_t size, frames, elapsed, cpu;
	uint32_t depth, rounds;
	double runs[WORKFLOW_ROUNDS_MAX]; /* frames per second */
	double median, low, high;
	struct workflow_totals totals;
	struct stats *phases;
	bool verified;
	bool skipped; /* the source or the sink cannot access the memory of this method */
	struct pl_error reason;
};

struct workflow_report {
	struct pl_compute *compute;
	struct pl_peer_info source, sink;
	struct machine source_machine, sink_machine;
	struct workflow_result *results;
	uint32_t count;
	bool failed;
	struct pl_error error;
};

int workflow_measure(struct workflow_options *options);

/* Ratio of two methods' rates over the rounds: median, minimum and maximum. */
struct workflow_ratio {
	double ratio, low, high;
};

const struct workflow_result *workflow_result_of(const struct workflow_report *report, const char *method,
						 uint64_t size);
struct workflow_ratio workflow_ratio_of(const struct workflow_result *result, const struct workflow_result *over);
double workflow_phase_us(const struct workflow_result *result, enum workflow_phase phase);

void workflow_render_text(const struct workflow_options *options, const struct workflow_report *report);
void workflow_render_json(const struct workflow_options *options, const struct workflow_report *report);
/* Explains the results of one size in sentences. */
void workflow_explain(const struct workflow_report *report, uint64_t size);

/* Opens a stand-in for a GPU, of threads and host memory. */
int workflow_simulated_open(unsigned lanes, const struct pl_compute_kernel *kernel, struct pl_compute **compute,
			    struct pl_error *error);

int bench_workflow(int argc, char **argv);
int bench_proxy(int argc, char **argv);

#endif
