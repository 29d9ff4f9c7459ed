/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane bench workflow` and `peerlane bench proxy`: frames come from a remote host, a device computes on each, and
 * the result is looked at in host memory, or served to a third.  Each way of doing that is an arm; all are measured in
 * turns.  The process that measures leads its servers, a source and, for a proxy, a sink, by messages.
 */
#ifndef PL_CLI_WORKFLOW_H
#define PL_CLI_WORKFLOW_H

#include "bench/common/result_head.h"
#include "cmd/common/cli.h"
#include "cmd/common/spawn.h"
#include "cmd/common/stats.h"
#include "memory/compute.h"

#define FLOW_SIZE_MIN 4096ull
#define FLOW_SIZE_MAX (512ull << 20)
#define FLOW_SIZES_MAX 32u
#define FLOW_ARMS_MAX 8u
#define FLOW_ROUNDS_MAX 101u
#define FLOW_DEPTH_MIN 2u
#define FLOW_DEPTH_MAX 64u
#define FLOW_SAMPLE 4096u /* bytes of which an inspection looks at one word */

/* -- arms (workflow_arms.c) ----------------------------------------------------------------------- */

struct flow_arm {
	const char *name, *title;
	bool direct;     /* frames are received into the device's memory */
	bool pinned;     /* host memory is locked for the device's copies */
	bool overlapped; /* several frames at once */
	bool push;       /* the source writes; else they are read */
	bool proxy;      /* results are served; else inspected */
};

/* Those of a measurement, `count` of them. */
const struct flow_arm *flow_arms(bool proxy, unsigned *count);
/* Steps on the device. */
unsigned flow_arm_steps(const struct flow_arm *arm);

/* -- frames (workflow_frame.c) --------------------------------------------------------------------- */

extern const struct pl_compute_kernel flow_kernel;

enum flow_fault {
	FLOW_FAULT_NONE,
	FLOW_FAULT_SOURCE,  /* a bit of a frame is flipped at its source */
	FLOW_FAULT_COMPUTE, /* one frame is not computed */
	FLOW_FAULT_RESULT,  /* a bit of a result is flipped */
};

/* Frame `number` of a run has the content of its source's slot, of which there is one more than a ring has here. */
static inline uint32_t flow_content(uint64_t number, uint32_t depth)
{
	return (uint32_t)(number % (depth + 1));
}

/* The place of a word that is wrong, and what it is; for an error that names it. */
struct flow_difference {
	uint64_t frame, word;
	uint32_t found, wanted;
};

void flow_frame_fill(uint32_t *words, uint64_t size, uint64_t seed, uint32_t slot);
/* Flips one bit, where an inspection does not look. */
void flow_frame_damage(uint32_t *words, uint64_t size, uint64_t seed);
/* Whether the words are what the kernel makes of that frame: all of them, or the first, the last and samples. */
bool flow_result_equal(const uint32_t *words, uint64_t size, uint64_t seed, uint32_t slot, bool all,
		       struct flow_difference *difference);

/* -- messages (workflow_wire.c) -------------------------------------------------------------------- */

#define FLOW_VERSION 2
#define FLOW_MESSAGE_MAX 1024
#define FLOW_MESSAGE_TAG 3ull
#define FLOW_POLL_MS 100

enum flow_type {
	FLOW_SETUP = 1, /* client: role, size, depth; source: the token of its frames */
	FLOW_RUN, /* client: seed, fault, slots and token of where frames are pushed to, or results are; server: ready */
	FLOW_CHECK,  /* client: frames so far; server: its tally and, the sink, whether all was right */
	FLOW_BYE,    /* client: no more; server: the same */
	FLOW_FAILED, /* either: the error, and no more */
};

/* How bytes went. */
struct flow_tally {
	enum pl_route route;
	uint64_t direct, staged;
	char fabric[16], reason[192];
};

struct flow_message {
	enum flow_type type;
	bool sink, verify;
	uint64_t size, seed, frames, checked;
	uint32_t depth;
	enum flow_fault fault;
	uint8_t token[PL_TOKEN_MAX];
	uint16_t token_length;
	struct machine machine; /* setup: the server's */
	struct flow_tally tally;
	bool right;
	struct flow_difference difference;
	struct pl_error error;
};

/* Bytes written; the buffer has FLOW_MESSAGE_MAX. */
size_t flow_encode(const struct flow_message *message, uint8_t *buffer);
/* 0; -EPROTO if it is none; -EPROTONOSUPPORT if it is of another version. */
int flow_decode(const uint8_t *buffer, size_t length, struct flow_message *message);

bool flow_size_valid(uint64_t size);
static inline uint64_t flow_stride(uint64_t size)
{
	return (size + 4095) & ~4095ull;
}
/* Adds what a receipt says. */
void flow_tally_add(struct flow_tally *tally, const struct pl_receipt *receipt);

/* -- the other ends (workflow_server.c, workflow_serve.c) ------------------------------------------------------------ */

struct flow_options {
	struct cli_options common;
	const char *address, *sink; /* NULL: a process started here */
	const char *device;         /* "auto", "simulated", "cuda", "cuda:N" */
	bool proxy, server, once;
	uint64_t sizes[FLOW_SIZES_MAX];
	uint32_t size_count;
	bool arms[FLOW_ARMS_MAX]; /* wanted */
	bool arms_given;
	uint32_t rounds, depth;
	uint64_t frames, duration; /* of each arm in each round; the first if not 0 */
	enum flow_fault fault;
	int announce; /* descriptor to which the server's address is written, or -1 */
	int argc;     /* the command, for who reads the results */
	char **argv;
};

/* Serves clients, one after the other. (workflow_serve.c) */
int flow_serve(const struct flow_options *options);

/* A source or a sink, with a client. */
struct flow_server {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *control, *ring; /* messages arrive here; frames */
	struct pl_remote *remote;         /* the client's ring */
	struct flow_message setup, run;
	struct flow_tally tally;
	struct flow_difference difference;
	uint64_t begun, allowed, ended; /* frames: written or read so far, the client's word, completed */
	bool wrong, leaving, gone;
	int fd;
	struct pl_error error;
};

/* Until it has gone: 0, or a negative errno with the reason in server->error. (workflow_server.c) */
int flow_server_run(struct flow_server *server);
bool flow_interrupted(void);

/* -- a connection with one of them (workflow_link.c) ------------------------------------------------ */

struct flow_link {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *control; /* messages arrive here */
	struct cli_child child;
	uint64_t timeout;
};

/* Connects, to a server that it starts unless there is an address. */
int flow_link_open(struct flow_link *link, struct flow_options *options, const char *address, struct pl_error *error);
void flow_link_close(struct flow_link *link);
/* Sends, and waits for the answer of the same type, into *message. */
int flow_ask(struct flow_link *link, struct flow_message *message, struct pl_error *error);

/* -- buffers (workflow_memory.c) ------------------------------------------------------------------- */

/* A ring of frames, in any memory. */
struct flow_ring {
	struct pl_region *region;
	uint8_t *bytes; /* as its owner sees it: the device's memory is not for the processor */
	uint64_t stride;
	bool pinned;
};

static inline void *flow_slot(const struct flow_ring *ring, uint32_t slot)
{
	return ring->bytes + slot * ring->stride;
}

/* For one size: what the arms need of it. */
struct flow_memory {
	uint64_t size, stride;
	uint32_t depth;
	struct flow_ring host_in, host_out;     /* one frame each, not locked */
	struct flow_ring pinned_in, pinned_out; /* locked for the device */
	struct flow_ring device_in, device_out;
	void *poison;
};

int flow_memory_open(struct flow_memory *memory, const struct flow_options *options, struct pl_context *source,
		     struct pl_context *sink, struct pl_compute *compute, uint64_t size, struct pl_error *error);
void flow_memory_close(struct flow_memory *memory, struct pl_compute *compute);
/* Where an arm receives, and where its results are looked at or served from. */
struct flow_ring *flow_memory_in(struct flow_memory *memory, const struct flow_arm *arm);
struct flow_ring *flow_memory_out(struct flow_memory *memory, const struct flow_arm *arm);
/* Overwrites all that an arm uses, so that nothing of before can be taken for its work. */
int flow_memory_poison(struct flow_memory *memory, const struct flow_arm *arm, struct pl_error *error);

/* -- one run of an arm (workflow_step.c, workflow_serial.c, workflow_overlap.c) ------------------------------------------------------------- */

enum flow_phase {
	FLOW_RECEIVE,
	FLOW_TO_DEVICE,
	FLOW_COMPUTE,
	FLOW_TO_HOST,
	FLOW_INSPECT,
	FLOW_SERVE,
	FLOW_OTHER, /* what is left of the whole: waiting, and the program itself */
	FLOW_WHOLE,
	FLOW_PHASES,
};

const char *flow_phase_name(enum flow_phase phase);

/* Times of one frame. */
struct flow_frame {
	uint64_t begun;
	uint64_t phases[FLOW_PHASES];
	struct pl_operation *read;
};

/* What came by notification: from the source a frame that it wrote, from the sink one that it has taken. */
struct flow_arrivals {
	uint64_t seen[FLOW_DEPTH_MAX]; /* by slot: the frame's number plus 1 */
};

struct flow_run {
	const struct flow_options *options;
	const struct flow_arm *arm;
	struct pl_compute *compute;
	struct flow_memory *memory;
	struct flow_link *source, *sink;
	struct pl_remote *remote; /* the source's frames */
	uint64_t seed;
	uint32_t depth;       /* slots that this arm uses */
	uint64_t next;        /* frames begun since the run began */
	uint64_t first;       /* of what is measured, which is at least one frame */
	uint64_t limit;       /* UINT64_MAX until the last one is known */
	uint64_t deadline;    /* no frame is begun after it; 0: none */
	bool verify;          /* compare every word; nothing is measured */
	bool damage;          /* the fault that is asked for is still to be made */
	struct stats *phases; /* FLOW_PHASES of them */
	struct flow_tally tally;
	struct flow_difference difference;
	struct flow_frame frames[FLOW_DEPTH_MAX];
	struct flow_arrivals pushed, taken;
	uint64_t ended; /* when the last frame was done */
};

/* Frames one after the other, or `depth` at a time; from run->next up to run->limit, or the deadline. */
int flow_run_serial(struct flow_run *run, struct pl_error *error);
int flow_run_overlapped(struct flow_run *run, struct pl_error *error);

/* Steps of one frame. */
int flow_receive_begin(struct flow_run *run, uint64_t number, struct pl_error *error);
/* Tells a source that pushes: so many frames have room. */
int flow_receive_allow(struct flow_run *run, uint64_t frames, struct pl_error *error);
int flow_receive_end(struct flow_run *run, uint64_t number, struct pl_error *error);
int flow_device_begin(struct flow_run *run, uint64_t number, unsigned steps, struct pl_error *error);
int flow_device_end(struct flow_run *run, uint64_t number, struct pl_error *error);
int flow_inspect(struct flow_run *run, uint64_t number, struct pl_error *error);
int flow_serve_begin(struct flow_run *run, uint64_t number, struct pl_error *error);
int flow_serve_end(struct flow_run *run, uint64_t number, struct pl_error *error);
void flow_frame_done(struct flow_run *run, uint64_t number);
/* Whether there is to be one more. */
bool flow_run_more(struct flow_run *run);
int flow_fail_content(const struct flow_run *run, struct pl_error *error);

/* -- all runs (workflow_measure.c), and what is shown (workflow_render.c, workflow_explain.c) ------- */

struct flow_result {
	const struct flow_arm *arm;
	uint64_t size, frames, elapsed, cpu;
	uint32_t depth, rounds;
	double runs[FLOW_ROUNDS_MAX]; /* frames per second */
	double median, low, high;
	struct flow_tally tally;
	struct stats *phases;
	bool verified;
	bool left_out; /* the source, or the sink, does not reach that memory */
	struct pl_error reason;
};

struct flow_report {
	struct pl_compute *compute;
	struct pl_peer_info source, sink;
	struct machine source_machine, sink_machine;
	struct flow_result *results;
	uint32_t count;
	bool failed;
	struct pl_error error;
};

int flow_measure(struct flow_options *options);

/* By rounds: how many times as fast one arm was as another. */
struct flow_ratio {
	double ratio, low, high;
};

const struct flow_result *flow_result_of(const struct flow_report *report, const char *arm, uint64_t size);
struct flow_ratio flow_ratio_of(const struct flow_result *result, const struct flow_result *over);
double flow_phase_us(const struct flow_result *result, enum flow_phase phase);

void flow_render_text(const struct flow_options *options, const struct flow_report *report);
void flow_render_json(const struct flow_options *options, const struct flow_report *report);
/* What the figures of one size come from, in sentences. */
void flow_explain(const struct flow_report *report, uint64_t size);

/* The device that frames are computed on: a GPU, or a stand-in of threads and host memory (workflow_simulated.c). */
int flow_simulated_open(unsigned lanes, const struct pl_compute_kernel *kernel, struct pl_compute **compute,
			struct pl_error *error);

int bench_workflow(int argc, char **argv);
int bench_proxy(int argc, char **argv);

#endif
