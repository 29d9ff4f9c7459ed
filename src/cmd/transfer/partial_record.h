/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Record of a partial file: which version of the source the file copies, and how many bytes it has.  It is valid only in
 * the file that it was written to, under the same key, and until the host reboots.
 */
#ifndef PL_CMD_TRANSFER_PARTIAL_RECORD_H
#define PL_CMD_TRANSFER_PARTIAL_RECORD_H

#include <stdint.h>

#include "cmd/transfer/file_version.h"
#include "cmd/transfer/partial_key.h"

#define PARTIAL_RECORD_SIZE 144

/*
 * Writes a record at an offset of a file.  Without a key, the record is not valid.  Returns 0, or a negative errno of
 * fstat(2) or pwrite(2).
 */
int partial_record_write(int fd, uint64_t offset, const struct partial_key *key, const struct file_version *source,
			 uint64_t done);

/* Reads the number of complete bytes of the source from a record.  Returns 0 if the record is not valid. */
uint64_t partial_record_read(int fd, uint64_t offset, const struct partial_key *key, const struct file_version *source);

#endif
