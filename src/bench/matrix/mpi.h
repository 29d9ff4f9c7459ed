/* SPDX-License-Identifier: BSD-2-Clause */
/* What of MPI starts processes and has them exchange a little: Open MPI's library, loaded when it is asked for. */
#ifndef PL_CLI_MPI_H
#define PL_CLI_MPI_H

#include "cmd/common/cli.h"

struct mpi;

/* -ENOENT if there is no such library, -ENOTSUP if it is not Open MPI's. */
int mpi_open(struct mpi **mpi, struct pl_error *error);
/* All have to call it; NULL is fine. */
void mpi_close(struct mpi *mpi);
int mpi_rank(const struct mpi *mpi);
int mpi_size(const struct mpi *mpi);
/* Everybody's `each` bytes, by rank.  Returns when all called it. */
int mpi_gather(struct mpi *mpi, const void *own, size_t each, void *all, struct pl_error *error);
/* The same without bytes.  It sleeps meanwhile: who waits must not take the processor from who measures. */
int mpi_meet(struct mpi *mpi, struct pl_error *error);
/* Ends all ranks, as one of them cannot go on. */
void mpi_abort(struct mpi *mpi, int status);

#endif
