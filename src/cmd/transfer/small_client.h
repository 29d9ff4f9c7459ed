/* SPDX-License-Identifier: BSD-2-Clause */
/* Small files at the client: many of them are transferred with one request, through an area of memory at the server. */
#ifndef PL_CMD_TRANSFER_SMALL_CLIENT_H
#define PL_CMD_TRANSFER_SMALL_CLIENT_H

#include "cmd/transfer/transfer.h"

/* Area at the server, and memory of the same size here.  The end of the session frees both. */
struct small {
	struct transfer_command *command;
	bool open, failed;
	uint32_t handle;
	uint64_t length;
	struct pl_remote *remote;
	struct pl_region *region;
	uint8_t *bytes;
	unsigned flags; /* SERVICE_UNSYNCED, SERVICE_FOLDERS: of each request of small_put() */
	int folder;     /* small_get(): descriptor of the folder that receives the files */
	bool recursive; /* small_get(): files are in folders below that folder */
	bool sync;      /* small_get(): wait until storage has the files */
};

/*
 * Transfer the first files of a list, as many as are small and as one request takes.  They fill the results.  Return the
 * number of files; 0: the first must be transferred alone.
 */
size_t small_put(struct small *small, struct transfer *transfers, size_t count);
size_t small_get(struct small *small, struct transfer *transfers, size_t count);

#endif
