/* SPDX-License-Identifier: BSD-2-Clause */
/* Server that answers the command as a test wants it, and the command as its client. */
#ifndef TEST_FALSE_SERVER_H
#define TEST_FALSE_SERVER_H

#include <peerlane/peerlane.h>

#include "cmd/transfer/service.h"
#include "support/check.h"
#include "support/process.h"

#define FALSE_AREA (256u << 10)
#define FALSE_OUTPUT_MAX 65536

struct false_server;
/* Fills the answer to a request.  Its header is filled already. */
typedef void false_answer(struct false_server *server, const struct service_message *request,
			  struct service_message *answer);

struct false_server {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *peer;
	struct pl_region *memory, *messages;
	char address[96], folder[64]; /* the command runs in the folder */
	false_answer *answer;
	unsigned requests;  /* since the last command began */
	unsigned entries;   /* for the test */
	const char *text;   /* for the test */
	uint64_t granted;   /* bytes of the token in answers; 0: all */
	bool silent;        /* the answer is not sent */
	bool impatient;     /* for the test: the command waits seconds for an answer, not minutes */
	uint8_t buffer[SERVICE_ENTRIES_MAX]; /* entries, files or ranges of an answer */
};

struct false_result {
	int status;
	char output[FALSE_OUTPUT_MAX]; /* standard output and error */
	uint64_t memory;               /* largest resident size of the command */
};

void false_server_open(struct false_server *server, false_answer *answer);
/* Removes the folder too. */
void false_server_close(struct false_server *server);

void false_put_token(struct false_server *server, struct service_message *answer);
void false_put_entry(struct false_server *server, struct service_message *answer, const char *name, uint64_t size);
void false_put_file(struct false_server *server, struct service_message *answer, struct service_file *file,
		    const char *name);
void false_put_range(struct false_server *server, struct service_message *answer, uint64_t offset, uint64_t length);
void false_fail(struct service_message *answer, int status, const char *text);

/*
 * Runs `peerlane` with the server's address behind the first argument, and serves it.  Checks that it exits, and that its
 * output has no control characters.  The result is valid until the next call.
 */
const struct false_result *false_run(struct false_server *server, const char *const *arguments);
#define run(server, ...) false_run(server, (const char *const[]){ __VA_ARGS__, NULL })

/* Checks that the command failed with this text in its output, within its memory. */
void false_check_fails(const struct false_result *result, const char *text);
void false_check_memory(const struct false_result *result);
bool false_exists(const struct false_server *server, const char *name);
unsigned false_count_files(const struct false_server *server);

#endif
