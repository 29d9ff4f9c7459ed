/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Routes between a GPU and a card, proven: for each GPU, card, path and direction bytes are sent through the card and
 * back into this host, compared, and timed. The results form a profile, from which the best path follows.
 */
#ifndef PL_PROFILE_PROFILE_H
#define PL_PROFILE_PROFILE_H

#include "base/base.h"

enum pl_gpu_path {
	PL_GPU_PATH_DMABUF,  /* dma-buf: the card imports the GPU's memory */
	PL_GPU_PATH_ADDRESS, /* address: a peer memory module gives the card the pages */
	PL_GPU_PATH_STAGED,  /* through locked host memory */
	PL_GPU_PATH_COUNT,
};

enum pl_direction { PL_INTO_GPU, PL_FROM_GPU, PL_DIRECTION_COUNT };

/* Result of one direction. */
struct pl_proof_leg {
	bool proven;
	uint64_t rate;    /* bytes per second; 0 unless proven */
	char reason[160]; /* reason of a failure, or a remark */
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

/* With the NUL: identification of a machine. */
#define PL_PROFILE_MACHINE 33
#define PL_PROFILE_VERSION 1
/* Profile of the system, which pl_profile_path() finds if the user has none. */
#define PL_PROFILE_SYSTEM_FILE "/etc/peerlane/routes.json"

struct pl_profile {
	struct pl_proof *proofs; /* those of a GPU and device in the order of enum pl_gpu_path */
	size_t count;
	char machine[PL_PROFILE_MACHINE]; /* machine of the proof; "": unknown */
	char here[PL_PROFILE_MACHINE];    /* this machine, for pl_profile_advise() */
};

/* Returns "dma-buf", "peer-memory" or "staged". */
const char *pl_gpu_path_name(enum pl_gpu_path way);

/* Adds a zeroed proof. NULL: no memory. */
struct pl_proof *pl_profile_add(struct pl_profile *profile);
void pl_profile_free(struct pl_profile *profile);

/* load.c: loads a saved profile. Returns 0 or a negative errno with the error. */
int pl_profile_load(struct pl_profile *profile, const char *file, struct pl_error *error);
/* The same from the text of a profile; errors name `file`. */
int pl_profile_parse(struct pl_profile *profile, const char *file, const char *text, struct pl_error *error);

/* advice.c: writes this machine's name in profiles; "" if it has no machine id. */
void pl_profile_machine(char machine[PL_PROFILE_MACHINE]);
/*
 * Finds the file to read if the program names none: $PEERLANE_ROUTES, the user's, or the system's. Returns false if
 * there is none.
 */
bool pl_profile_path(char *path, size_t size);
/*
 * Returns the best path of a saved profile. `here` has the GPU, its model and driver, the device and its firmware, as
 * they are now. NULL with the reason (static storage) if they differ from the proof.
 */
const struct pl_proof *pl_profile_advise(const struct pl_profile *profile, const struct pl_proof *here,
					 enum pl_direction direction, const char **reason);

/*
 * Chooses the path between a GPU and a device, with the reason (static storage): the faster direct one, unless staging
 * is clearly faster, as on sockets whose processors forward peer reads slowly. NULL if none is proven.
 */
const struct pl_proof *pl_profile_choose(const struct pl_profile *profile, const char *gpu, const char *device,
					 enum pl_direction direction, const char **reason);

#endif
