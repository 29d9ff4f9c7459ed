/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of hosts: the document in the output of a command, among banners and messages, or the reason why there is none. */
#ifndef PL_CMD_FLEET_ANSWER_H
#define PL_CMD_FLEET_ANSWER_H

#include "cmd/fleet/facts.h"
#include "cmd/fleet/run.h"

enum fleet_kind { FLEET_CHECK, FLEET_TOPO };

enum answer_outcome {
	ANSWER_NONE, /* not asked yet */
	ANSWER_DOCUMENT,
	ANSWER_UNREACHABLE, /* the launcher failed, or could not be started */
	ANSWER_NO_PROGRAM,  /* a shell behind the launcher cannot start the command */
	ANSWER_TIMEOUT,
	ANSWER_TOO_LONG,
	ANSWER_TRUNCATED,
	ANSWER_NO_DOCUMENT,
	ANSWER_OTHER_FORMAT,
	ANSWER_FAILED,   /* the command on the host reports an error */
	ANSWER_REPEATED, /* another answer is of the same machine */
	ANSWER_OUTCOMES,
};

/* Oddities of an answer that has a document. */
enum answer_note {
	ANSWER_NOTE_CLOCK, /* the clock of the host differs */
	ANSWER_NOTE_NAME,  /* two machines have one name */
	ANSWER_NOTE_END,   /* the launcher did not end */
	ANSWER_NOTES,
};

#define ANSWER_REASON_MAX 240

struct answer {
	enum answer_outcome outcome;
	char reason[ANSWER_REASON_MAX];              /* why there is no document */
	char notes[ANSWER_NOTES][ANSWER_REASON_MAX]; /* about an answer with a document; empty: all is well */
	int status;     /* exit status of the launcher, or the negative number of a signal */
	double seconds; /* from start to end; negative: unknown */
	double clock;   /* seconds by which the clock of the host is ahead at least; 0: none is seen */
	char *document; /* JSON on one line; NULL: none */
	char host[256], boot_id[40], version[64], time[32]; /* of the document; empty: unknown */
	struct facts facts;
};

/* Returns "document", "unreachable" and so on. */
const char *answer_outcome_name(enum answer_outcome outcome);
/* Returns the outcome of this name; ANSWER_NO_DOCUMENT if there is none. */
enum answer_outcome answer_outcome_of(const char *name);
/* Sets the difference of clocks, with its note. */
void answer_set_clock(struct answer *answer, double seconds);
/* Returns "clock", "name" or "end". */
const char *answer_note_name(enum answer_note note);

/*
 * Finds the document in an output of any bytes.  Noise before and behind it is allowed; without noise, its members may
 * have any order.  Returns the parsed object, and sets *begin and *size; NULL with *truncated set if a document begins
 * and does not end.  The text ends with NUL.
 */
struct json_object *answer_find(const char *text, size_t length, const char **begin, size_t *size, bool *truncated);

/* Reads an output into zeros: the document and its facts, or the reason why there is none. */
void answer_read(struct answer *answer, enum fleet_kind kind, const char *text, size_t length);
/* Reads the end of the command on a host into zeros. */
void answer_read_result(struct answer *answer, enum fleet_kind kind, const struct run_result *result);
void answer_free(struct answer *answer);

#endif
