/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Key of the last frame of a lane. A run of frames with one key takes grant_lock, which all lanes of all peers share, once.
 *
 * The kept key serves a frame with its id; it refuses the frame if `revoked` is set. A lookup in the table would have the same result:
 *
 * - A key leaves the table, or becomes unusable, only after `revoked` was set: by a revocation, a deregistration, the peer's RELEASE
 *   or the end of the peer. No later key has its id. So the table has this key under this id while the flag is false, and no
 *   usable one afterwards.
 * - The lane loads the flag under its engine's lock, as it does after a look at the table, and again before each use of the memory.
 *   A revocation sets the flag, then takes the lock of every engine in turn. A lane that loaded false has ended its use by
 *   then; a lane that takes the lock later loads true. No byte moves after the revocation returns.
 * - Rights, range and expiry are checked for each frame. The members of a key do not change while `revoked` is false.
 *
 * The lane's reference keeps the structure, not the memory behind it. Keys of large sends are not kept: the send would not end.
 */
#ifndef PL_CORE_KEPT_KEY_H
#define PL_CORE_KEPT_KEY_H

#include "core/peer.h"

/* As pl_key_acquire(). *kept: the key of the last frame, or NULL; replaced by this one. The caller's engine is held. */
struct pl_key *pl_key_acquire_kept(struct pl_key **kept, struct pl_peer *peer, uint64_t id, uint64_t offset,
				   uint64_t length, unsigned right, enum pl_wire_status *status);

#endif
