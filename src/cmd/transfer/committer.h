/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Committer: stores uploaded files, and reads small ones, in threads of its own, because fsync(2) and disks may take
 * seconds and a server serves all clients by one thread.
 */
#ifndef PL_CMD_TRANSFER_COMMITTER_H
#define PL_CMD_TRANSFER_COMMITTER_H

#include <pthread.h>

#include "cmd/transfer/item.h"
#include "cmd/transfer/service.h"

#define COMMITTER_THREADS 4

struct client;

/* Work for a request.  Owns a use of the item; the server's thread releases it afterwards. */
struct commit {
	struct commit *next;
	struct client *client;                  /* NULL: disconnected meanwhile */
	void (*perform)(struct commit *commit); /* in a thread; sets rc and error */
	struct item *item;                      /* the file, or the area of small files */
	char *name;
	uint32_t request; /* number and type of the request to answer */
	enum service_type type;
	uint64_t unreported; /* bytes of the upload that the client has not reported */
	uint64_t unreported_staged; /* of these, bytes that the client staged; valid if has_staged */
	bool has_staged;
	bool sync; /* the file must be on storage before the answer */
	int rc;
	struct pl_error error;
};

struct committer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct commit *waiting, **waiting_end; /* in order */
	struct commit *done;
	unsigned running; /* commits under way in a thread */
	bool ending;
	pthread_t threads[COMMITTER_THREADS];
	unsigned thread_count;
	int event_fd; /* readable if commits are done */
};

int committer_open(struct committer *committer, struct pl_error *error);
/* Hands a commit over, in the server's thread. */
void committer_submit(struct committer *committer, struct commit *commit);
/* Returns a list of all commits that are done since the last call. */
struct commit *committer_take_done(struct committer *committer);
/* Ends all commits, and the threads.  committer_take_done() then returns the rest. */
void committer_close(struct committer *committer);

#endif
