/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kept lists: ranges in the memory of a GPU that several launches of the gather kernel read. A list lives until its owner and all
 * kernels that may read it are done. gathers->lock is held.
 */
#ifndef PL_CUDA_GATHER_LIST_H
#define PL_CUDA_GATHER_LIST_H

#include "base/base.h"

/* Ranges for the kept lists of a GPU: 4 MiB of its memory. */
#define CUDA_KEPT_RANGES 131072u

struct cuda_gathers;
struct cuda_gpu;

struct pl_gather_list {
	struct pl_list link;
	struct cuda_gathers *gathers;
	struct cuda_gpu *gpu;  /* of the gathers; held by the owner */
	unsigned first, count; /* ranges */
	unsigned users;        /* the owner, and launches */
};

/* Returns a list with `count` ranges in a row and one user. NULL: no room, or no memory. */
struct pl_gather_list *cuda_list_place(struct pl_list *lists, unsigned count);
/* Ends one use. The last one frees the list. */
void cuda_list_put(struct pl_gather_list *list);
/* Frees all lists: the memory of the GPU is gone. */
void cuda_lists_free(struct pl_list *lists);

#endif
