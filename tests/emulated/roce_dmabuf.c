/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * To be preloaded: ibv_reg_dmabuf_mr() for soft-RoCE, whose part in user space lacks it, so that libibverbs would refuse
 * without asking the kernel.  The kernel is asked here; there, tests/kernel/import.c answers.  The library under test
 * takes its functions by dlvsym(3), so that is where it gets this one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define API __attribute__((visibility("default")))

/* How libibverbs and its drivers know a region. */
struct region {
	struct ibv_mr mr;
	int type, access;
};
#define TYPE_DMABUF 3

/* Newer versions have an argument more, which may be NULL. */
typedef int (*ask_kernel)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
			  struct region *region, void *driver);

static struct ibv_mr *register_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
				      int access)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *found = library ? dlsym(library, "ibv_cmd_reg_dmabuf_mr") : NULL;
	struct region *region = calloc(1, sizeof(*region));
	ask_kernel ask;

	memcpy(&ask, &found, sizeof(ask));
	if (library)
		dlclose(library);
	errno = !region ? ENOMEM : ask ? ask(pd, offset, length, iova, fd, access, region, NULL) : EOPNOTSUPP;
	if (errno) {
		free(region);
		return NULL;
	}
	region->mr.context = pd->context;
	region->mr.pd = pd;
	region->mr.length = length;
	region->type = TYPE_DMABUF;
	region->access = access;
	return &region->mr;
}

API void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
	struct ibv_mr *(*ours)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = register_dmabuf;
	void *(*real)(void *, const char *, const char *);
	void *found;

	if (!strcmp(name, "ibv_reg_dmabuf_mr")) {
		memcpy(&found, &ours, sizeof(found));
		return found;
	}
	found = dlsym(RTLD_NEXT, "dlvsym");
	memcpy(&real, &found, sizeof(real));
	return real(handle, name, version);
}
