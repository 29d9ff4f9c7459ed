/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways between a GPU and a card, proven: for each GPU, card, way and direction bytes are sent through the card and
 * back into this host, compared, and timed.  What came of it is a profile, from which the way to take follows.
 */
#ifndef PL_PROFILE_PROFILE_H
#define PL_PROFILE_PROFILE_H

#include "base/base.h"

enum pl_gpu_path {
	PL_GPU_PATH_DMABUF,  /* the card has the GPU's memory by a dma-buf */
	PL_GPU_PATH_ADDRESS, /* by its address, from a peer memory module */
	PL_GPU_PATH_STAGED,  /* through locked memory of the host */
	PL_GPU_PATH_COUNT,
};

enum pl_direction { PL_INTO_GPU, PL_FROM_GPU, PL_DIRECTION_COUNT };

/* Of one direction. */
struct pl_proof_leg {
	bool proven;
	uint64_t rate;    /* bytes a second; 0 unless proven */
	char reason[160]; /* why not, or what is to be said of it */
};

struct pl_proof {
	char gpu[16];    /* PCI address */
	char model[64];  /* of the GPU */
	char device[64]; /* of libibverbs */
	char driver[16]; /* of the GPU: "CUDA 13000" */
	char firmware[64];
	enum pl_gpu_path way;
	struct pl_proof_leg legs[PL_DIRECTION_COUNT];
};

/* With its end: what tells a machine from others. */
#define PL_PROFILE_MACHINE 33
#define PL_PROFILE_VERSION 1

struct pl_profile {
	struct pl_proof *proofs; /* those of a GPU and device in the order of enum pl_gpu_path */
	size_t count;
	char machine[PL_PROFILE_MACHINE]; /* where it was proven; "": it is not known */
	char here[PL_PROFILE_MACHINE];    /* for pl_profile_advise() */
};

/* "dma-buf", "peer-memory", "staged". */
const char *pl_gpu_path_name(enum pl_gpu_path way);

/* Adds a proof, zeroed.  NULL: no memory. */
struct pl_proof *pl_profile_add(struct pl_profile *profile);
void pl_profile_free(struct pl_profile *profile);

/* load.c: what was saved. 0, or why not. */
int pl_profile_load(struct pl_profile *profile, const char *file, struct pl_error *error);

/* here.c: what this machine is called in profiles; "" if it has no number. */
void pl_profile_machine(char machine[PL_PROFILE_MACHINE]);
/* The file that is read if the program names none: $PEERLANE_ROUTES, or the user's, or the system's.  False: none. */
bool pl_profile_path(char *path, size_t size);
/*
 * The way to take according to a profile that was proven earlier: `here` has the GPU, its model and driver, the device
 * and its firmware, as they are now.  NULL, and why (static storage), if they are not what was proven.
 */
const struct pl_proof *pl_profile_advise(const struct pl_profile *profile, const struct pl_proof *here,
					 enum pl_direction direction, const char **reason);

/*
 * Of the ways between a GPU and a device the one to take, and why (static storage): the faster of the direct ones, unless
 * staging is clearly faster, as through sockets whose processors are slow to pass reads on.  NULL if none is proven.
 */
const struct pl_proof *pl_profile_choose(const struct pl_profile *profile, const char *gpu, const char *device,
					 enum pl_direction direction, const char **reason);

#endif
