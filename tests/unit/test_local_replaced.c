/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Revoked mappings of the local fabric that no pages can replace, or only after a failure of the kernel. This program's mmap(2) and
 * mremap(2) replace the C library's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/local.h"

/* No other memory of this length is mapped. */
#define LENGTH (3u << 20)

/* True if there is no memory for pages of this process. */
static atomic_bool lacks_memory;

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t);
	void *found;

	if (atomic_load(&lacks_memory) && length == LENGTH && (flags & MAP_ANONYMOUS)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	found = dlsym(RTLD_NEXT, "mmap");
	memcpy(&next, &found, sizeof(next));
	return next(address, length, protection, flags, fd, offset);
}

/* True if the kernel fails after it unmapped the old pages. */
static atomic_bool leaves_hole;

void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *(*next)(void *, size_t, size_t, int, ...);
	void *found = dlsym(RTLD_NEXT, "mremap"), *at;
	va_list arguments;

	va_start(arguments, flags);
	at = va_arg(arguments, void *);
	va_end(arguments);
	if (atomic_load(&leaves_hole) && new_size == LENGTH && (flags & MREMAP_FIXED)) {
		check_number(munmap(at, new_size), 0);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	memcpy(&next, &found, sizeof(next));
	return next(old, old_size, new_size, flags, at);
}

/*
 * Checks a hostile owner that revokes a key and marks its gate as free, while a thread may copy: the mapping stays in place until pages of
 * this process replace it. The owner reports a revocation as often as it likes.
 */
static void check_replacement(void *setting)
{
	struct scenario_environment environment;
	struct local_endpoint *near;
	struct local_access *access;
	struct pl_region *allocated;
	struct pl_remote *remote;
	struct pl_error error;
	const uint8_t *bytes;
	char text[8];

	environment_open(&environment, setting);
	near = local_endpoint_of(environment.near_peer->endpoint);
	check_ok(pl_region_allocate(environment.far, LENGTH, PL_ACCESS_ALL, &allocated, &error), &error);
	bytes = pl_region_address(allocated);
	remote = share(&environment, allocated, environment.near_peer, NULL);
	access = remote->fabric_data;
	check(access->path == &local_mapped_path);
	atomic_store(&access->gate->open, 0);
	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&lacks_memory, i == 0);
		pl_engine_lock(environment.near_peer->home);
		local_key_revoked(near, access->key);
		pl_engine_unlock(environment.near_peer->home);
		check(access->mapping && access->mapping == access->base);
		mapping_permissions(access->base, text);
		check_text(text, i ? "rw-p" : "rw-s");
		access->base[LENGTH - 1] = (uint8_t)(1 + i);
		check_number(bytes[LENGTH - 1], 1);
	}
	atomic_store(&access->gate->open, access->number);
	pl_remote_release(remote);
	check_number(pl_region_deregister(allocated), 0);
	environment_close(&environment);
}

static void stays_in_place(void *setting)
{
	check_replacement(setting);
}

static void leaves_no_hole(void *setting)
{
	atomic_store(&leaves_hole, true);
	check_replacement(setting);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "stays in place", stays_in_place, &local_threads, 30 },
		{ "stays in place, manual", stays_in_place, &local_manual, 30 },
		{ "leaves no hole", leaves_no_hole, &local_threads, 30 },
		{ "leaves no hole, manual", leaves_no_hole, &local_manual, 30 },
	};

	return cases_run("local replaced", cases, PL_ARRAY_SIZE(cases));
}
