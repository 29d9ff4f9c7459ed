/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers of files by `peerlane get` and `peerlane put`: command line, one file, results. */
#ifndef PL_CMD_TRANSFER_TRANSFER_H
#define PL_CMD_TRANSFER_TRANSFER_H

#include "cmd/common/output.h"
#include "cmd/transfer/data_ranges.h"
#include "cmd/transfer/hash.h"
#include "cmd/transfer/pipeline.h"

/* Transfer of one file, and its result. */
struct transfer {
	const char *name; /* at the server */
	const char *file; /* local path */
	uint64_t size;
	uint64_t listed;  /* get: size in the server's listing; 0: unknown */
	uint64_t resumed; /* bytes transferred by an earlier attempt */
	uint64_t offset;  /* get: first byte of the file at the server */
	uint64_t base;    /* while bytes move: the callback's `done` counts from here */
	bool sparse;      /* only the ranges `data` are moved */
	bool hole;        /* advance() is told of a hole */
	struct data_ranges data;
	struct pipeline_result result;
	bool verified;
	struct hash hash; /* valid if verified */
	int status;       /* 0 or a negative errno */
	struct pl_error error;
	uint64_t kept; /* after a failure: bytes from which the same command resumes */
};

/* -- all files of a command (transfer.c) ----------------------------------------------------------- */

/* Command line of get or put, and the session with the server. */
struct transfer_command {
	struct cli_options common;
	const char *address;
	const char *memory; /* kind of the GPU memory that the bytes pass through; NULL: none */
	char **names;       /* get: names at the server; put: local files */
	int count;
	bool verify;
	struct session session;
	struct transfer *transfers;
	size_t transfer_count;
	/* Adds transfers that only the server knows of; may be NULL. */
	int (*expand)(void *user, struct pl_error *error);
};

/* Adds a transfer.  The caller keeps both strings until the end. */
int transfer_add(struct transfer_command *command, const char *name, const char *file, struct pl_error *error);

/* Parses the options and arguments that get and put share. */
#define TRANSFER_OPTION_EVENTS 0x2f0
#define TRANSFER_EVENTS_HELP "Print the last events of the connection on standard error at the end"
error_t transfer_parse_option(struct transfer_command *command, int key, char *argument, struct argp_state *state);

/* Returns the last component of a path. */
const char *transfer_last_name(const char *path);

/*
 * Opens the session, calls `run` until all transfers are done, prints the results, and frees the transfers.  `run`
 * transfers the first files of a list, fills their results, and returns their number.  An interruption ends the loop.
 */
enum cli_exit transfer_run_all(struct transfer_command *command,
			       size_t (*run)(void *user, struct transfer *transfers, size_t count), void *user);

/* True if two files have the same last component of their paths; sets *first and *second to them. */
bool transfer_find_duplicate(char *const *paths, int count, const char **first, const char **second);

/*
 * Moves the bytes behind `resumed` between the file's mapping and the memory granted by `grant`, an answer of the server.
 * The caller sets the direction and the callbacks of the pipeline.  Of a sparse file only its data is moved; advance()
 * learns of holes as of bytes that have arrived.
 */
int transfer_move_bytes(struct transfer_command *command, struct transfer *transfer,
			const struct service_message *grant, void *mapping, struct pipeline *pipeline,
			struct pl_error *error);

/*
 * Compares the first `length` bytes of a file here with those of a handle at the server.  Sets *same; true for no bytes.
 * A signal interrupts the comparison.  -ESTALE: the file at the server was truncated.
 */
int transfer_compare_beginning(struct transfer_command *command, uint32_t handle, const uint8_t *bytes, uint64_t length,
			       bool *same, struct pl_error *error);

/* Ends the local hash, sets *local to NULL, and compares the hash with that of the server's answer. */
int transfer_compare_hashes(struct transfer *transfer, struct hash_state **local, const struct service_message *answer,
			    struct pl_error *error);

/* -- output (transfer_output.c) -------------------------------------------------------------------- */

/* Prints "NAME: 1.2 GB in 0.3 s, 4 GB/s" on standard output. */
void transfer_print(const struct transfer *transfer);
/* Prints the error, and the bytes kept for another attempt, on standard error. */
void transfer_print_failure(const struct transfer *transfer);
/* Returns CLI_OK, or CLI_OUTPUT with a message. */
int transfers_print_json(const struct transfer *transfers, size_t count, const struct session *session);
/* Returns CLI_OK, CLI_DEGRADED if bytes were staged, or CLI_FAILED. */
enum cli_exit transfers_status(const struct transfer *transfers, size_t count);
/* Adds bytes, seconds, rate, fabric, route, reason and lanes of a result to a JSON object. */
void pipeline_result_add_json(struct json_object *object, const struct pipeline_result *result);

#endif
