/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libibverbs, loaded on first use, so that one binary runs with and without it.
 *
 * Calls go through the table, `library->ibv_alloc_pd(context)`, with the types of the headers. Inline functions of the
 * headers that call no function of libibverbs (ibv_post_send(), ibv_poll_cq(), ibv_req_notify_cq(), memory windows,
 * ...) are used directly. Those that do call one have a replacement below.
 */
#ifndef PL_RDMA_LIBRARY_H
#define PL_RDMA_LIBRARY_H

#include <infiniband/verbs.h>

#include "base/base.h"

/* Removes macros that would also replace members with those names. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

/*
 * Functions, with the symbol version of their present types. The linker would choose these; a plain dlsym(3) returns
 * the default version of the installed library, which may differ.
 */
#define VERBS_IBVERBS_FUNCTIONS(NEEDED, OPTIONAL) \
	NEEDED(ibv_get_device_name, "IBVERBS_1.1") \
	NEEDED(ibv_query_device, "IBVERBS_1.1") \
	NEEDED(ibv_query_port, "IBVERBS_1.1") \
	NEEDED(ibv_alloc_pd, "IBVERBS_1.1") \
	NEEDED(ibv_dealloc_pd, "IBVERBS_1.1") \
	NEEDED(ibv_reg_mr, "IBVERBS_1.1") \
	NEEDED(ibv_dereg_mr, "IBVERBS_1.1") \
	NEEDED(ibv_create_comp_channel, "IBVERBS_1.0") \
	NEEDED(ibv_destroy_comp_channel, "IBVERBS_1.0") \
	NEEDED(ibv_create_cq, "IBVERBS_1.1") \
	NEEDED(ibv_destroy_cq, "IBVERBS_1.1") \
	NEEDED(ibv_get_cq_event, "IBVERBS_1.1") \
	NEEDED(ibv_ack_cq_events, "IBVERBS_1.1") \
	NEEDED(ibv_create_srq, "IBVERBS_1.1") \
	NEEDED(ibv_destroy_srq, "IBVERBS_1.1") \
	NEEDED(ibv_modify_qp, "IBVERBS_1.1") \
	NEEDED(ibv_query_qp, "IBVERBS_1.1") \
	NEEDED(ibv_get_async_event, "IBVERBS_1.1") \
	NEEDED(ibv_ack_async_event, "IBVERBS_1.1") \
	NEEDED(ibv_wc_status_str, "IBVERBS_1.1") \
	NEEDED(ibv_get_device_list, "IBVERBS_1.1") \
	NEEDED(ibv_free_device_list, "IBVERBS_1.1") \
	NEEDED(ibv_open_device, "IBVERBS_1.1") \
	NEEDED(ibv_close_device, "IBVERBS_1.1") \
	NEEDED(ibv_create_qp, "IBVERBS_1.1") \
	NEEDED(ibv_destroy_qp, "IBVERBS_1.1") \
	NEEDED(ibv_query_gid, "IBVERBS_1.1") \
	NEEDED(ibv_query_pkey, "IBVERBS_1.1") \
	OPTIONAL(ibv_reg_mr_iova2, "IBVERBS_1.8") \
	OPTIONAL(ibv_query_ece, "IBVERBS_1.10") \
	OPTIONAL(ibv_set_ece, "IBVERBS_1.10") \
	OPTIONAL(_ibv_query_gid_ex, "IBVERBS_1.11") \
	OPTIONAL(_ibv_query_gid_table, "IBVERBS_1.11") \
	OPTIONAL(ibv_reg_dmabuf_mr, "IBVERBS_1.12")

/* Optional functions are NULL in a library without them. */
struct verbs_library {
#define VERBS_MEMBER(name, version) __typeof__(name) *name;
	VERBS_IBVERBS_FUNCTIONS(VERBS_MEMBER, VERBS_MEMBER)
#undef VERBS_MEMBER
};

/*
 * Returns the table of the process; or NULL with "RDMA-NO-LIBRARY" or "RDMA-LIBRARY-OLD". Thread-safe; the first call
 * decides for all others.
 *
 * The library is never unloaded: drivers that it loads may have threads and fork handlers, and other parts of the
 * program may use it, too.
 */
const struct verbs_library *verbs_library_get(struct pl_error *error);

/* Fills a table from a file, which dlopen(3) finds. Returns 0, -ELIBACC or -ELIBBAD. */
int verbs_library_open(const char *file, struct verbs_library *library, struct pl_error *error);

/*
 * The three error conventions of the library, converted to a negative errno.
 *
 * Functions that return a pointer: NULL, and errno. EAGAIN, of a limit in the cgroup's rdma.max, is a lack of memory:
 * it may end later.
 */
static inline int verbs_made(const void *object)
{
	if (object)
		return 0;
	if (errno == EAGAIN)
		return -ENOMEM;
	return errno > 0 ? -errno : -EIO;
}

/* Functions that return an int: an errno, or -1 and errno. Success returns 0. */
static inline int verbs_result(int result)
{
	if (result > 0)
		return -result;
	return result == 0 ? 0 : verbs_made(NULL);
}

/* ibv_query_port(3). Returns 0 or a negative errno. */
int verbs_query_port(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attributes);
/*
 * ibv_reg_mr(3). Optional access flags, such as relaxed ordering, are dropped where they are unknown, so they never
 * fail a registration. Returns 0 or a negative errno.
 */
int verbs_reg_mr(const struct verbs_library *library, struct ibv_pd *pd, void *address, size_t length, unsigned access,
		 struct ibv_mr **mr);
/*
 * Registers memory that this end reads behind completions only, which push bytes of any order before them: with relaxed
 * ordering where the device registers no other memory.
 */
int verbs_reg_buffers(const struct verbs_library *library, struct ibv_pd *pd, void *address, size_t length,
		      struct ibv_mr **mr);
/* The same as verbs_reg_mr() for a device address, `iova`, that may differ from `address`, by whole pages. */
int verbs_reg_mr_iova(const struct verbs_library *library, struct ibv_pd *pd, void *address, size_t length,
		      uint64_t iova, unsigned access, struct ibv_mr **mr);

#endif
