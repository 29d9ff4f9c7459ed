/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded library with ibv_reg_dmabuf_mr() for Soft-RoCE.
 * The user-space driver of Soft-RoCE lacks this call, so libibverbs would refuse it without a call of the kernel.  This
 * library calls the kernel, where tests/kernel/import.c answers.  Peerlane finds its functions by dlvsym(3), so this
 * library replaces dlvsym(3).
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define API __attribute__((visibility("default")))

/* Region as libibverbs and its drivers define it. */
struct region {
	struct ibv_mr mr;
	int type, access;
};
#define TYPE_DMABUF 3
/* Flags that the kernel accepts for a dma-buf (drivers/infiniband/core/uverbs_std_types_mr.c). */
#define ACCEPTED_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_RELAXED_ORDERING)

/* Newer versions of libibverbs take one more argument, which may be NULL. */
typedef int (*ask_kernel)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
			  struct region *region, void *driver);

static struct ibv_mr *roce_register_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					   int access)
{
	void *library, *found;
	struct region *region;
	ask_kernel ask;

	if (access & ~ACCEPTED_ACCESS) {
		errno = EINVAL;
		return NULL;
	}
	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	found = library ? dlsym(library, "ibv_cmd_reg_dmabuf_mr") : NULL;
	region = calloc(1, sizeof(*region));
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
	struct ibv_mr *(*ours)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int) = roce_register_dmabuf;
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
