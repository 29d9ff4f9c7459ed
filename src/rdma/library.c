/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/library.h"

#include <dlfcn.h>
#include <pthread.h>

#define IBVERBS "libibverbs.so.1"
#define HINT_INSTALL "install rdma-core, on Debian and Ubuntu: libibverbs1 and ibverbs-providers"
#define HINT_UPDATE "update rdma-core: it is older than Peerlane can use"

struct symbol {
	const char *name, *version;
	size_t offset; /* offset of the function pointer in struct verbs_library */
	bool optional;
};

#define NEEDED(function, version) { #function, version, offsetof(struct verbs_library, function), false },
#define OPTIONAL(function, version) { #function, version, offsetof(struct verbs_library, function), true },
static const struct symbol symbols[] = { VERBS_IBVERBS_FUNCTIONS(NEEDED, OPTIONAL) };
#undef NEEDED
#undef OPTIONAL

int verbs_library_open(const char *file, struct verbs_library *library, struct pl_error *error)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const char *reason;

	memset(library, 0, sizeof(*library));
	if (!handle) {
		reason = dlerror();
		return pl_fail(error, -ELIBACC, "RDMA-NO-LIBRARY", "dlopen", file, HINT_INSTALL, "%s",
			       reason ? reason : "it cannot be loaded");
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(symbols); i++) {
		void *function = dlvsym(handle, symbols[i].name, symbols[i].version);

		if (!function && !symbols[i].optional) {
			dlclose(handle);
			return pl_fail(error, -ELIBBAD, "RDMA-LIBRARY-OLD", "dlvsym", file, HINT_UPDATE,
				       "the library has no %s of version %s", symbols[i].name, symbols[i].version);
		}
		memcpy((char *)library + symbols[i].offset, &function, sizeof(function));
	}
	return 0;
}

/* Written once, by the first caller. */
static struct {
	pthread_once_t once;
	int rc;
	struct verbs_library library;
	struct pl_error error;
} process = { .once = PTHREAD_ONCE_INIT };

static void load_for_process(void)
{
	process.rc = verbs_library_open(IBVERBS, &process.library, &process.error);
}

const struct verbs_library *verbs_library_get(struct pl_error *error)
{
	pthread_once(&process.once, load_for_process);
	if (process.rc == 0)
		return &process.library;
	if (error)
		*error = process.error;
	return NULL;
}

/* -- functions that the headers define inline ------------------------------------------------------ */

int verbs_query_port(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attributes)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, query_port);

	/* The old function does not set fields that were added later. */
	memset(attributes, 0, sizeof(*attributes));
	if (extended)
		return verbs_result(extended->query_port(context, port, attributes, sizeof(*attributes)));
	return verbs_result(library->ibv_query_port(context, port, (struct _compat_ibv_port_attr *)attributes));
}

int verbs_reg_mr_iova(const struct verbs_library *library, struct ibv_pd *pd, void *address, size_t length,
		      uint64_t iova, unsigned access, struct ibv_mr **mr)
{
	const bool elsewhere = iova != (uintptr_t)address;

	if (elsewhere && !library->ibv_reg_mr_iova2)
		return -ENOSYS;
	/* The older function knows no optional flags; the newer one asks the kernel which flags it knows. */
	if (elsewhere || (library->ibv_reg_mr_iova2 && (access & IBV_ACCESS_OPTIONAL_RANGE)))
		*mr = library->ibv_reg_mr_iova2(pd, address, length, iova, access);
	else
		*mr = library->ibv_reg_mr(pd, address, length, (int)(access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE));
	return verbs_made(*mr);
}

int verbs_reg_mr(const struct verbs_library *library, struct ibv_pd *pd, void *address, size_t length, unsigned access,
		 struct ibv_mr **mr)
{
	return verbs_reg_mr_iova(library, pd, address, length, (uintptr_t)address, access, mr);
}

int verbs_reg_buffers(const struct verbs_library *library, struct ibv_pd *pd, void *address, size_t length,
		      struct ibv_mr **mr)
{
	int rc = verbs_reg_mr(library, pd, address, length, IBV_ACCESS_LOCAL_WRITE, mr);

	if (rc == 0 || rc == -ENOMEM || rc == -EFAULT)
		return rc;
	return verbs_reg_mr(library, pd, address, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING, mr);
}
