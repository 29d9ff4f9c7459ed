/* SPDX-License-Identifier: BSD-2-Clause */
/* Demonstration: transfers of real files between two processes of this machine, with every byte compared. */
#ifndef PL_CMD_DEMO_DEMO_H
#define PL_CMD_DEMO_DEMO_H

#include <sys/types.h>

#include "cmd/transfer/pipeline.h"

#define DEMO_MEMORY "frames"
#define DEMO_FRAME (8ull << 20)
#define DEMO_SLOTS 8u /* frames that the server's memory holds */

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

/* Starts `peerlane serve` in a child process, which dies with this one.  Makes a key unless the user gave one. */
int demo_server_start(struct demo_server *server, struct cli_options *options, const struct demo_files *files,
		      struct pl_error *error);
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

struct demo {
	struct cli_options common;
	uint64_t size;
	unsigned frames;
	struct demo_files files;
	unsigned rounds; /* times that each file is pulled */
	struct demo_server server;
	struct session session;
	struct demo_step pull, push, write;
	uint64_t nanoseconds;
};

/* Reads every file from the server and compares its bytes with the file system. */
int demo_pull(struct demo *demo, struct pl_error *error);
/* Writes frames of pseudorandom content to the server and compares the hashes that the server computes. */
int demo_push(struct demo *demo, struct pl_error *error);
/* Measures single writes of 8 bytes, then reads them back and compares them. */
int demo_write(struct demo *demo, struct pl_error *error);

/* -- output (output.c) --------------------------------------------------------------------------- */

void demo_print_table(const struct demo *demo);
void demo_print_json(const struct demo *demo, const struct pl_error *error);

#endif
