/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of `peerlane get`. */
#ifndef PL_CMD_TRANSFER_GET_H
#define PL_CMD_TRANSFER_GET_H

#include "cmd/transfer/listing.h"
#include "cmd/transfer/partial_key.h"
#include "cmd/transfer/small_client.h"
#include "cmd/transfer/transfer.h"

struct get {
	struct transfer_command command;
	const char *output;
	bool sync;               /* wait until storage has the files */
	bool recursive;          /* names are folders at the server */
	bool ranged;             /* only a range of the file is fetched */
	uint64_t offset, length; /* that range; length UINT64_MAX: up to the end */
	struct listing listing;
	char *folder_path;  /* folder of --output FILE; NULL: not allocated */
	char *target;       /* of --output, if that is a symbolic link; NULL: not allocated */
	int stream;         /* descriptor of a pipe, device or standard output, in place of a file; -1: none */
	bool standard;      /* the stream is standard output */
	bool output_failed; /* the last file could not be written */
	int folder;         /* descriptor of the folder that receives the files */
	struct small small;
	struct partial_key key; /* of partial files */
};

/* get_file.c: fetches one file, and fills the result of the transfer. */
void get_file(struct get *get, struct transfer *transfer);

#endif
