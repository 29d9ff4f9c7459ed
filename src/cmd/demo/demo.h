/* SPDX-License-Identifier: BSD-2-Clause */
/* The demonstration: two processes of this machine, real files, every byte compared. */
#ifndef PL_CLI_DEMO_H
#define PL_CLI_DEMO_H

#include <sys/types.h>

#include "cmd/transfer/pipeline.h"

#define DEMO_MEMORY "frames"
#define DEMO_FRAME (8ull << 20)
#define DEMO_SLOTS 8u /* frames that the server's memory holds */

/* -- files of this machine (demo_files.c) -------------------------------------------------------- */

struct demo_file {
	char *path;
	const char *name; /* its last part */
	uint64_t size;
	dev_t device;
	ino_t inode;
};

struct demo_files {
	struct demo_file *all;
	size_t count;
	uint64_t bytes;
};

/* The largest of compilers, libraries and programs, until there are `wanted` bytes; at least this program itself. */
int demo_files_gather(struct demo_files *files, uint64_t wanted, struct pl_error *error);
void demo_files_free(struct demo_files *files);

/* -- the remote host (demo_server.c) ------------------------------------------------------------- */

struct demo_server {
	pid_t pid; /* 0: none */
	int key;   /* descriptor of a file in memory with the key; -1: the key is the user's */
	int output;
	char key_path[32];
	char address[80];
};

/* Starts `peerlane serve` as another process, which does not outlive this one; makes a key unless there is one. */
int demo_server_start(struct demo_server *server, struct cli_options *options, const struct demo_files *files,
		      struct pl_error *error);
/* Ends it in order. -EIO if it did not end well. */
int demo_server_stop(struct demo_server *server, struct pl_error *error);

/* -- steps (demo_steps.c) ------------------------------------------------------------------------ */

struct demo_step {
	struct pipeline_result result;
	unsigned count;            /* files, frames, writes */
	uint64_t verified;         /* bytes compared and equal */
	uint64_t median, p99, min; /* latency, ns */
};

struct demo {
	struct cli_options common;
	uint64_t size;
	unsigned frames;
	struct demo_files files;
	unsigned rounds; /* how often each file is pulled */
	struct demo_server server;
	struct session session;
	struct demo_step pull, push, write;
	uint64_t nanoseconds;
};

/* Pulls every file into memory and compares it with the file system's own. */
int demo_pull(struct demo *demo, struct pl_error *error);
/* Pushes frames with seeded content and compares hashes that the server computes of its memory. */
int demo_push(struct demo *demo, struct pl_error *error);
/* Times single writes of 8 bytes and compares what arrived. */
int demo_write(struct demo *demo, struct pl_error *error);

/* -- showing it (render_demo.c) ------------------------------------------------------------------ */

void render_demo_table(const struct demo *demo);
void render_demo_json(const struct demo *demo, const struct pl_error *error);

#endif
