/* SPDX-License-Identifier: BSD-2-Clause */
/* World of Open MPI's library, which is loaded on demand. */
#ifndef PL_BENCH_MATRIX_MPI_H
#define PL_BENCH_MATRIX_MPI_H

#include "bench/matrix/world.h"

/* Returns -ENOENT if there is no library, -ENOTSUP if it is not Open MPI's. */
int mpi_open(struct world **world, struct pl_error *error);

#endif
