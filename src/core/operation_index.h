/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Index of a peer's operations by user_data, for pl_cancel_posted(). Operations keep their only link: each is in peer->operations or
 * in a list of the index, and leaves either without a look at the index. So only programs that cancel pay for it. Home.
 */
#ifndef PL_CORE_OPERATION_INDEX_H
#define PL_CORE_OPERATION_INDEX_H

#include "core/peer.h"

/* Moves all of the peer's operations to an empty list: those in the index first, and then later ones. */
void pl_operations_take(struct pl_peer *peer, struct pl_list *taken);
/*
 * Moves operations to an empty list: all that have this user_data, and some others. A peer with few operations, or without memory
 * for the index, gives all.
 */
void pl_operations_take_of(struct pl_peer *peer, uint64_t user_data, struct pl_list *taken);
/* Frees the index of a peer without operations. */
void pl_operation_index_free(struct pl_peer *peer);

#endif
