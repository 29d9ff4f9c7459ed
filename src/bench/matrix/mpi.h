/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions of MPI that start processes and exchange small messages: Open MPI's library, loaded on demand. */
#ifndef PL_BENCH_MATRIX_MPI_H
#define PL_BENCH_MATRIX_MPI_H

#include "cmd/common/cli.h"

struct mpi;

/* Returns -ENOENT if there is no library, -ENOTSUP if it is not Open MPI's. */
int mpi_open(struct mpi **mpi, struct pl_error *error);
/* Finalizes MPI; all ranks have to call it.  NULL is allowed. */
void mpi_close(struct mpi *mpi);
int mpi_rank(const struct mpi *mpi);
int mpi_size(const struct mpi *mpi);
/* Gathers `each` bytes of every rank into `all`, by rank.  Returns when all ranks have called it. */
int mpi_gather(struct mpi *mpi, const void *own, size_t each, void *all, struct pl_error *error);
/* Gathers `each` bytes of every rank into `all` of rank 0, by rank.  Waits until all ranks have called it. */
int mpi_collect(struct mpi *mpi, const void *own, size_t each, void *all, struct pl_error *error);
/* Copies `length` bytes of rank 0 to all other ranks.  Waits until all ranks have called it. */
int mpi_share(struct mpi *mpi, void *bytes, size_t length, struct pl_error *error);
/* Waits until all ranks have called it.  Sleeps meanwhile, to leave the processor to ranks that measure. */
int mpi_barrier(struct mpi *mpi, struct pl_error *error);
/* Ends all ranks after a failure of this one. */
void mpi_abort(struct mpi *mpi, int status);

#endif
