/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Open MPI by its binary interface, so that neither its headers nor its library is needed to build or to start.  Its
 * handles are addresses of exported objects: MPI_COMM_WORLD is that of ompi_mpi_comm_world.  In the interface of MPICH
 * and its derivatives handles are numbers; such a library is refused by name.
 */
#include "bench/matrix/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_FIRST 20000 /* nanoseconds between two polls: first, last */
#define WAIT_LAST 2000000

struct mpi {
	struct world base;
	void *library, *world, *byte;
	int (*init)(int *argc, char ***argv);
	int (*finalize)(void);
	int (*abort)(void *communicator, int status);
	int (*comm_rank)(void *communicator, int *rank);
	int (*comm_size)(void *communicator, int *size);
	int (*allgather)(const void *from, int count, void *type, void *to, int each, void *each_type,
			 void *communicator);
	int (*gather)(const void *from, int count, void *type, void *to, int each, void *each_type, int root,
		      void *communicator);
	int (*bcast)(void *bytes, int count, void *type, int root, void *communicator);
	int (*ibarrier)(void *communicator, void **request);
	int (*test)(void **request, int *done, void *status);
};

static int load_mpi_library(struct mpi *mpi, struct pl_error *error)
{
	static const char *const names[] = { "libmpi.so.40", "libmpi.so" };
	const struct {
		const char *name;
		void *where;
	} symbols[] = {
		{ "ompi_mpi_comm_world", &mpi->world },
		{ "ompi_mpi_byte", &mpi->byte },
		{ "MPI_Init", &mpi->init },
		{ "MPI_Finalize", &mpi->finalize },
		{ "MPI_Abort", &mpi->abort },
		{ "MPI_Comm_rank", &mpi->comm_rank },
		{ "MPI_Comm_size", &mpi->comm_size },
		{ "MPI_Allgather", &mpi->allgather },
		{ "MPI_Gather", &mpi->gather },
		{ "MPI_Bcast", &mpi->bcast },
		{ "MPI_Ibarrier", &mpi->ibarrier },
		{ "MPI_Test", &mpi->test },
	};

	/* Open MPI's modules look up its symbols among the global ones. */
	for (size_t i = 0; i < CLI_ARRAY_SIZE(names) && !mpi->library; i++)
		mpi->library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
	if (!mpi->library)
		return cli_fail(error, -ENOENT, "MPI-NONE", "libmpi.so.40",
				"install Open MPI: openmpi-bin in Debian and Ubuntu",
				"--mpi needs Open MPI's library, which was not found");
	for (size_t i = 0; i < CLI_ARRAY_SIZE(symbols); i++) {
		void *symbol = dlsym(mpi->library, symbols[i].name);

		if (!symbol)
			return cli_fail(
				error, -ENOTSUP, "MPI-FOREIGN", "libmpi.so",
				"use Open MPI's mpirun, and put its library first into LD_LIBRARY_PATH",
				"this MPI has no %s: only Open MPI 3 to 5 is supported, not MPICH or its derivatives",
				symbols[i].name);
		memcpy(symbols[i].where, &symbol, sizeof(symbol));
	}
	return 0;
}

static int fail_mpi_call(struct pl_error *error, const char *call)
{
	cli_fail(error, -EIO, "MPI-FAILED", NULL, "see the output of mpirun", "%s failed", call);
	return -EIO;
}

static int mpi_barrier(struct world *world, struct pl_error *error)
{
	struct mpi *mpi = (struct mpi *)world;
	struct timespec wait = { .tv_nsec = WAIT_FIRST };
	void *request = NULL;
	int done = 0;

	if (mpi->ibarrier(mpi->world, &request))
		return fail_mpi_call(error, "MPI_Ibarrier");
	while (!done) {
		if (mpi->test(&request, &done, NULL))
			return fail_mpi_call(error, "MPI_Test");
		if (done)
			break;
		nanosleep(&wait, NULL);
		wait.tv_nsec = CLI_MIN(wait.tv_nsec * 2, WAIT_LAST);
	}
	return 0;
}

static int mpi_gather(struct world *world, const void *own, size_t each, void *all, struct pl_error *error)
{
	struct mpi *mpi = (struct mpi *)world;
	/* mpi_barrier() sleeps while it waits, and MPI_Allgather would spin. */
	int rc = mpi_barrier(world, error);

	if (rc < 0)
		return rc;
	if (each > INT_MAX || mpi->allgather(own, (int)each, mpi->byte, all, (int)each, mpi->byte, mpi->world))
		return fail_mpi_call(error, "MPI_Allgather");
	return 0;
}

static int mpi_collect(struct world *world, const void *own, size_t each, void *all, struct pl_error *error)
{
	struct mpi *mpi = (struct mpi *)world;
	int rc = mpi_barrier(world, error);

	if (rc < 0)
		return rc;
	if (each > INT_MAX || mpi->gather(own, (int)each, mpi->byte, all, (int)each, mpi->byte, 0, mpi->world))
		return fail_mpi_call(error, "MPI_Gather");
	return 0;
}

static int mpi_share(struct world *world, void *bytes, size_t length, struct pl_error *error)
{
	struct mpi *mpi = (struct mpi *)world;
	int rc = mpi_barrier(world, error);

	if (rc < 0)
		return rc;
	if (length > INT_MAX || mpi->bcast(bytes, (int)length, mpi->byte, 0, mpi->world))
		return fail_mpi_call(error, "MPI_Bcast");
	return 0;
}

static void mpi_abort(struct world *world, int status)
{
	struct mpi *mpi = (struct mpi *)world;

	mpi->abort(mpi->world, status);
}

static void mpi_close(struct world *world)
{
	((struct mpi *)world)->finalize();
	free(world);
}

static const struct world_ops mpi_ops = {
	.gather = mpi_gather,
	.collect = mpi_collect,
	.share = mpi_share,
	.barrier = mpi_barrier,
	.close = mpi_close,
	.abort = mpi_abort,
};

int mpi_open(struct world **result, struct pl_error *error)
{
	struct mpi *mpi = calloc(1, sizeof(*mpi));
	int rc = mpi ? load_mpi_library(mpi, error) : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	if (rc == 0 && (mpi->init(NULL, NULL) || mpi->comm_rank(mpi->world, &mpi->base.rank) ||
			mpi->comm_size(mpi->world, &mpi->base.size)))
		rc = fail_mpi_call(error, "MPI_Init");
	if (rc < 0) {
		/* The library is not unloaded, as its threads may run; the process ends soon. */
		free(mpi);
		return rc;
	}
	mpi->base.ops = &mpi_ops;
	*result = &mpi->base;
	return 0;
}
