/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Key of the records of partial files.  This user's processes on this host share it, in a file that only this user can
 * read.  A partial file with a record that another key signed is not resumed, because its bytes may be anybody's.
 */
#ifndef PL_CMD_TRANSFER_PARTIAL_KEY_H
#define PL_CMD_TRANSFER_PARTIAL_KEY_H

#include <stdint.h>

#include <peerlane/peerlane.h>

#define PARTIAL_KEY_SIZE 32

struct partial_key {
	enum { PARTIAL_KEY_UNREAD, PARTIAL_KEY_VALID, PARTIAL_KEY_MISSING } state;
	uint8_t bytes[PARTIAL_KEY_SIZE];
};

/*
 * Reads the key at the first call, and makes its file if it is missing: "part-key" in $STATE_DIRECTORY,
 * $XDG_STATE_HOME/peerlane or $HOME/.local/state/peerlane.  Returns NULL, after one warning, if there is no key.
 */
const struct partial_key *partial_key_get(struct partial_key *key);
void partial_key_wipe(struct partial_key *key);

#endif
