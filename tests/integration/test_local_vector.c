/* SPDX-License-Identifier: BSD-2-Clause */
/* Vectors of ranges that the kernel copies between two processes, by few system calls. */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/local.h"

/* The posting thread copies PIECES of them, and engines copy MANY. */
enum { PIECES = 200, MANY = 800, PIECE = 3000, STRIDE = 4096, LENGTH = MANY * STRIDE };

/* Calls of the library, which these functions replace. No call copies more than `most_bytes`. */
static atomic_uint calls, refused;
static size_t most_bytes;

static ssize_t copy_between(long number, pid_t process, const struct iovec *local, const struct iovec *remote,
			    unsigned long count)
{
	struct iovec parts[LOCAL_RANGES];
	size_t left = most_bytes;
	unsigned long used = 0;
	ssize_t done;

	check(count <= LOCAL_RANGES);
	for (; used < count && left; used++) {
		parts[used] = local[used];
		parts[used].iov_len = local[used].iov_len < left ? local[used].iov_len : left;
		left -= parts[used].iov_len;
	}
	calls++;
	done = syscall(number, process, parts, used, remote, count, 0ul);
	refused += done < 0 && errno == EFAULT;
	return done;
}

ssize_t process_vm_readv(pid_t process, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	(void)remote_count, (void)flags;
	return copy_between(SYS_process_vm_readv, process, local, remote, local_count);
}

ssize_t process_vm_writev(pid_t process, const struct iovec *local, unsigned long local_count,
			  const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	(void)remote_count, (void)flags;
	return copy_between(SYS_process_vm_writev, process, local, remote, local_count);
}

struct ends {
	struct scenario_environment environment;
	struct buffer near, far[2];
	struct pl_remote *remotes[2];
	struct pl_transfer transfers[MANY];
	unsigned count;
};

/* Number of pieces, and the setting of both ends. */
struct shape {
	unsigned count;
	const struct setting *setting;
};
static const struct shape few = { PIECES, &local_manual }, many = { MANY, &local_manual },
			  many_threads = { MANY, &local_threads };

/* Opens both ends. The pieces of the far end are in the reverse order. Piece `empty` has no bytes. */
static void ends_open(struct ends *ends, const struct shape *shape, unsigned empty)
{
	environment_open(&ends->environment, shape->setting);
	ends->count = shape->count;
	buffer_open(&ends->near, ends->environment.near, LENGTH, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 2; i++) {
		buffer_open(&ends->far[i], ends->environment.far, LENGTH, PL_ACCESS_ALL);
		ends->remotes[i] = share(&ends->environment, ends->far[i].region, ends->environment.near_peer, NULL);
	}
	for (unsigned i = 0; i < ends->count; i++)
		ends->transfers[i] =
			(struct pl_transfer){ ends->remotes[0], (uint64_t)(ends->count - 1 - i) * STRIDE,
					      ends->near.region, (size_t)i * STRIDE, i == empty ? 0 : PIECE };
}

static void ends_close(struct ends *ends)
{
	for (unsigned i = 0; i < 2; i++) {
		pl_remote_release(ends->remotes[i]);
		buffer_close(&ends->far[i]);
	}
	buffer_close(&ends->near);
	environment_close(&ends->environment);
}

/* Transfers all pieces. Returns the status, and counts the calls from 0. */
static int transfer(struct ends *ends, bool write, struct pl_error *error)
{
	struct pl_operation *operation;

	calls = 0;
	check_ok((write ? pl_writev : pl_readv)(ends->environment.near_peer, ends->transfers, ends->count, NULL,
						&operation, error),
		 error);
	return await(&ends->environment, operation, NULL, error);
}

static void check_pieces(const struct ends *ends, const uint8_t *from, const uint8_t *to)
{
	for (unsigned i = 0; i < ends->count; i++) {
		const struct pl_transfer *piece = &ends->transfers[i];
		bool read = to == ends->near.bytes;
		size_t source = read ? piece->remote_offset : piece->offset,
		       target = read ? piece->offset : piece->remote_offset;

		check(!memcmp(to + target, from + source, piece->length));
		value_check(to + target + piece->length, STRIDE - piece->length, POISON);
	}
}

/* Checks both directions; also if each call copies less than was asked for, as it does if the memory ends. */
static void few_calls(void *argument)
{
	const struct shape *shape = argument;
	const struct {
		size_t most_bytes;
		unsigned calls;
	} cases[] = { { LENGTH, (shape->count + LOCAL_RANGES - 1) / LOCAL_RANGES }, { PIECE * 2 + 17, LENGTH } };
	struct pl_error error;
	struct ends ends;

	ends_open(&ends, shape, shape->count);
	for (unsigned i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		bool write = i & 1;
		uint8_t *from = write ? ends.near.bytes : ends.far[0].bytes,
			*to = write ? ends.far[0].bytes : ends.near.bytes;

		most_bytes = cases[i / 2].most_bytes;
		pattern_fill(from, LENGTH, i, 0);
		bytes_set(to, POISON, LENGTH);
		check_ok(transfer(&ends, write, &error), &error);
		check(calls && calls <= cases[i / 2].calls);
		check_pieces(&ends, from, to);
	}
	ends_close(&ends);
}

/* Checks pieces of two remote regions, and an empty piece between others. */
static void mixed_pieces(void *argument)
{
	struct pl_error error;
	struct ends ends;

	most_bytes = LENGTH;
	ends_open(&ends, argument, 70);
	for (unsigned i = 0; i < ends.count; i++)
		ends.transfers[i].remote = ends.remotes[i / 50 % 2];
	pattern_fill(ends.far[0].bytes, LENGTH, 1, 0);
	pattern_fill(ends.far[1].bytes, LENGTH, 2, 0);
	bytes_set(ends.near.bytes, POISON, LENGTH);
	check_ok(transfer(&ends, false, &error), &error);
	check(calls <= ends.count / 50 + 1);
	for (unsigned i = 0; i < ends.count; i++) {
		const struct pl_transfer *piece = &ends.transfers[i];

		pattern_check(ends.near.bytes + piece->offset, piece->length, 1 + i / 50 % 2, piece->remote_offset);
		value_check(ends.near.bytes + piece->offset + piece->length, STRIDE - piece->length, POISON);
	}
	ends_close(&ends);
}

/* A region of the far end in memory that a test may take away. All pieces lie there, one behind the other. */
struct extra {
	uint8_t *memory;
	struct pl_region *region;
	struct pl_remote *remote;
};

static void extra_open(struct extra *extra, struct ends *ends)
{
	struct pl_error error;

	extra->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(extra->memory != MAP_FAILED);
	check_ok(
		pl_region_register(ends->environment.far, extra->memory, LENGTH, PL_ACCESS_ALL, &extra->region, &error),
		&error);
	extra->remote = share(&ends->environment, extra->region, ends->environment.near_peer, NULL);
	for (unsigned i = 0; i < ends->count; i++) {
		ends->transfers[i].remote = extra->remote;
		ends->transfers[i].remote_offset = (uint64_t)i * STRIDE;
	}
}

/* The region has been deregistered. */
static void extra_close(struct extra *extra)
{
	pl_remote_release(extra->remote);
	munmap(extra->memory, LENGTH);
}

/* Checks that a piece without memory fails the vector, by one call, and that no piece behind it in its share is written. */
static void unmapped_piece(void *argument)
{
	enum { HOLE = 130 };
	const struct shape *shape = argument;
	struct pl_error error;
	struct extra extra;
	struct ends ends;

	most_bytes = LENGTH;
	refused = 0;
	ends_open(&ends, shape, shape->count);
	extra_open(&extra, &ends);
	pattern_fill(extra.memory, LENGTH, 3, 0);
	bytes_set(ends.near.bytes, POISON, LENGTH);
	check_number(munmap(extra.memory + HOLE * STRIDE, STRIDE), 0);
	check_status(transfer(&ends, false, &error), -EFAULT, &error);
	check_text(error.id, "MEMORY-UNWRITABLE");
	check_number(refused, 1);
	/* Several engines copy shares at once. */
	for (unsigned i = 0; i < ends.count && shape != &many_threads; i++) {
		uint8_t *piece = ends.near.bytes + ends.transfers[i].offset;

		if (i < HOLE)
			pattern_check(piece, PIECE, 3, (uint64_t)i * STRIDE);
		else
			value_check(piece, STRIDE, POISON);
	}
	check_number(pl_region_deregister(extra.region), 0);
	extra_close(&extra);
	ends_close(&ends);
}

/* Checks that a vector without bytes needs valid keys, too. */
static void empty_pieces(void *argument)
{
	struct pl_error error;
	struct extra extra;
	struct ends ends;

	ends_open(&ends, argument, PIECES);
	extra_open(&extra, &ends);
	for (unsigned i = 0; i < ends.count; i++)
		ends.transfers[i].length = 0;
	check_ok(transfer(&ends, false, &error), &error);
	check_number(pl_region_deregister(extra.region), 0);
	check(transfer(&ends, false, &error) < 0);
	extra_close(&extra);
	ends_close(&ends);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "few calls", few_calls, (void *)&few, 60 },
		{ "few calls of engines", few_calls, (void *)&many, 60 },
		{ "few calls of threads", few_calls, (void *)&many_threads, 60 },
		{ "mixed pieces", mixed_pieces, (void *)&few, 60 },
		{ "mixed pieces of engines", mixed_pieces, (void *)&many, 60 },
		{ "unmapped piece", unmapped_piece, (void *)&few, 60 },
		{ "unmapped piece of engines", unmapped_piece, (void *)&many, 60 },
		{ "unmapped piece of threads", unmapped_piece, (void *)&many_threads, 60 },
		{ "empty pieces", empty_pieces, (void *)&few, 60 },
	};

	return cases_run("local-vector", cases, sizeof(cases) / sizeof(cases[0]));
}
