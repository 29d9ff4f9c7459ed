/* SPDX-License-Identifier: BSD-2-Clause */
/* Demonstration: transfers of real files between two processes of this machine, with every byte compared. */
#ifndef PL_CMD_DEMO_DEMO_H
#define PL_CMD_DEMO_DEMO_H

#include <sys/types.h>

#include "cmd/transfer/pipeline.h"

#define DEMO_MEMORY "frames"
#define DEMO_FRAME (8ull << 20)
#define DEMO_SLOTS 8u /* frames that the server's memory holds */
#define DEMO_FRAMES_AT_ONCE 4
#define DEMO_WORDS 10000u
#define DEMO_GPU_MEMORY "gpu-frames"
#define DEMO_GPU_SLOTS 32u /* frames that the server's GPU memory holds; fewer if fewer are moved */

/* -- files of this machine (files.c) ------------------------------------------------------------- */

struct demo_file {
	char *path;
	const char *name; /* last component of the path */
	uint64_t size;
	dev_t device;
	ino_t inode;
};

struct demo_files {
	struct demo_file *all;
	size_t count;
	uint64_t bytes;
};

/*
 * Finds the largest compilers, libraries and programs, at least `bytes` in total if there are enough; at least this
 * program itself.
 */
int demo_files_gather(struct demo_files *files, uint64_t bytes, struct pl_error *error);
void demo_files_free(struct demo_files *files);

/* -- server (server.c) --------------------------------------------------------------------------- */

struct demo_server {
	pid_t pid;  /* 0: not running */
	int key;    /* descriptor of the key file in memory; -1: the user gave a key file */
	int output; /* pipe from standard output of the server */
	char key_path[32];
	char address[80];
};

/*
 * Starts `peerlane serve` in a child process, which dies with this one.  Makes a key unless the user gave one.
 * `gpu_memory` is an argument of --memory, or NULL.
 */
int demo_server_start(struct demo_server *server, struct cli_options *options, const struct demo_files *files,
		      const char *gpu_memory, struct pl_error *error);
/* Stops the server.  Returns -EIO if it failed. */
int demo_server_stop(struct demo_server *server, struct pl_error *error);

/* -- steps (steps.c) ----------------------------------------------------------------------------- */

/* Result of a step. */
struct demo_step {
	struct pipeline_result result;
	unsigned count;            /* number of files, frames or writes */
	uint64_t verified;         /* bytes compared and found equal */
	uint64_t median, p99, min; /* latency, ns */
};

/* GPUs of both processes, and the results of their steps. */
struct demo_gpu {
	bool wanted;
	unsigned count;             /* number of GPUs in use; 0: none */
	struct pl_gpu_info info[2]; /* the first is of this process, the last one in use of the server */
	struct pl_error absent;     /* wanted && count == 0: the reason */
	const char *inject;         /* step with a wrong bit, or NULL */
	struct demo_step push, pull, write;
	struct demo_step host, host_write; /* to host memory of the server, and from there back to a GPU */
};

struct demo {
	struct cli_options common;
	uint64_t size;
	unsigned frames;
	struct demo_files files;
	unsigned rounds; /* times that each file is pulled */
	struct demo_server server;
	struct session session;
	struct demo_step pull, push, write;
	struct demo_gpu gpu;
	uint64_t nanoseconds;
};

/* Bytes of all steps. */
struct demo_total {
	uint64_t bytes, staged;
};
struct demo_total demo_total(const struct demo *demo);

/* Reads every file from the server and compares its bytes with the file system. */
int demo_pull(struct demo *demo, struct pl_error *error);
/* Writes frames of pseudorandom content to the server and compares the hashes that the server computes. */
int demo_push(struct demo *demo, struct pl_error *error);
/* Returns the next number of SplitMix64, which generates data faster than networks transfer it; period 2^64. */
uint64_t demo_next_random(uint64_t *state);
/* Fills a frame: its number in the first and last word, pseudorandom words derived from it between them. */
void demo_fill_frame(uint64_t *words, uint64_t number, uint64_t seed);
/* Requests a token for memory of the server: to write to its first `size` bytes; size 0: to read all of it. */
int demo_open_memory(struct demo *demo, const char *name, uint64_t size, struct service_message *answer,
		     struct pl_error *error);
/* Fills *error with the first wrong byte; returns -EBADMSG. */
int demo_fail_verification(struct pl_error *error, const char *object, uint64_t offset);

/* -- latency (words.c) --------------------------------------------------------------------------- */

struct demo_gpu_verifier;

/* Transfers of single words of 8 bytes. */
struct demo_words {
	const char *step;
	const char *memory; /* name at the server */
	uint64_t size;      /* bytes of this memory */
	const char *kind;   /* kind of the memory of this process */
	bool back;          /* the time includes a read of the word into other memory of this process */
	unsigned count;
	struct demo_gpu_verifier *verifier; /* NULL: the processor compares */
};

int demo_time_words(struct demo *demo, const struct demo_words *words, struct demo_step *step, struct pl_error *error);
/* Measures single writes of 8 bytes, then reads them back and compares them. */
int demo_write(struct demo *demo, struct pl_error *error);

/* -- GPUs (gpu.c) -------------------------------------------------------------------------------- */

/* Finds up to two GPUs if they are wanted. */
void demo_gpu_query(struct demo_gpu *gpu);
/* Returns the frames that the server's GPU memory holds. */
unsigned demo_gpu_slots(const struct demo *demo);
/* Moves frames and words between GPU memory of both processes and checks them.  Does nothing without a GPU. */
int demo_gpu_run(struct demo *demo, struct pl_error *error);
/*
 * Compares bytes of a region in GPU memory, at most a frame, with those sent: a kernel computes on the received bytes,
 * and the processor checks all its results.
 */
int demo_gpu_verify(struct demo_gpu_verifier *verifier, const char *step, struct pl_region *region, uint64_t offset,
		    const void *sent, uint64_t length, struct pl_error *error);

/* -- output (output.c) --------------------------------------------------------------------------- */

void demo_print_table(const struct demo *demo);
void demo_print_json(const struct demo *demo, const struct pl_error *error);

#endif
