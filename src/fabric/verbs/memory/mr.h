/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of this end and of the peer: registrations, windows, keys. */
#ifndef PL_FABRIC_VERBS_MEMORY_MR_H
#define PL_FABRIC_VERBS_MEMORY_MR_H

#include "fabric/verbs/endpoint.h"
#include "profile/profile.h"

/* profile_advice.c */
struct verbs_advised {
	bool staged;        /* stage, even if the device could reach the memory */
	const char *reason; /* reason for operations that follow the advice, or for missing advice; NULL: no profile */
};

struct verbs_advice {
	enum pl_gpu_path first; /* path to try first */
	struct verbs_advised directions[PL_DIRECTION_COUNT];
};

/* For memory that the processor cannot reach. grant_lock is held. */
void verbs_advise(struct verbs_state *state, const struct verbs_device *device, const struct pl_memory *memory,
		  struct verbs_advice *advice);

/* mr_shared.c: registrations for this end's own use; grant_lock */
struct pl_registration_cache *verbs_mr_shared_open(const struct verbs_state *state);
/* Returns the number of a registration of all that memory with these rights; 0: none. */
uint32_t verbs_mr_shared_take(struct verbs_device *device, const struct pl_memory *memory, unsigned access,
			      struct ibv_mr **mr);
/* Shares a new registration. Returns its number; 0: no memory, and it is not shared. */
uint32_t verbs_mr_shared_add(struct verbs_state *state, struct verbs_device *device, const struct pl_memory *memory,
			     unsigned access, struct ibv_mr *mr);
/* A region of that memory no longer uses it. */
void verbs_mr_shared_give(const struct verbs_device *device, uint32_t number, const struct pl_memory *memory);
/* Releases all kept registrations; none is in use. */
void verbs_mr_shared_end(struct verbs_device *device);
/* Takes no lock. */
void verbs_mr_shared_count(void *state, struct pl_registrations_info *info);
void verbs_mr_shared_freed(void *state, const void *address, size_t length);

/*
 * Layout of a remote key: id, address, mask of the rails that have a key, number of rails, ports near the memory, key of
 * each rail, and up to three further parts: mask of the rails whose keys are windows, memory order, number of the
 * connection to which each window is bound.
 */
#define VERBS_KEY_MASK 16u
#define VERBS_KEY_COUNT 17u
#define VERBS_KEY_RKEYS 20u

static inline size_t verbs_key_windows(unsigned rails)
{
	return VERBS_KEY_RKEYS + rails * sizeof(uint32_t);
}

static inline size_t verbs_key_connections(unsigned rails)
{
	return verbs_key_windows(rails) + 2;
}

/* mr.c */
struct verbs_mr {
	struct pl_registration base;
	struct pl_list device_link; /* grant_lock */
	const struct verbs_library *library;
	const struct pl_allocator *allocator;
	struct ibv_mr *mr; /* NULL: registration refused (see reason), or the device is gone */
	uint32_t lkey;     /* read without a lock */
	int failure;       /* -EINPROGRESS: a thread registers the memory */
	uint64_t failed;   /* time of the failure: a lack of memory may end */
	const char *reason; /* of GPU memory: paths tried, and their results */
	unsigned access;
	struct verbs_advice advice; /* of a GPU's memory */
	uint32_t cached; /* shared: its number in the cache */
	struct verbs_device *device;
	struct pl_memory *memory; /* of a region, which stays until the registration has ended */
	size_t offset, length;
	uint64_t iova;        /* address of the first byte at the device */
	bool own;             /* for this end's own use: all of the memory, read-only if it cannot be written */
	struct verbs_job job; /* registers the memory */
	bool outdated;        /* released while a thread registers: that thread frees it; grant_lock */
};

/* Result of a registration with a device. */
struct verbs_mr_result {
	struct ibv_mr *mr;
	int failure;
	const char *reason;
	unsigned access; /* as registered */
};

/* Registers the memory of an empty registration with its device. Takes no lock. */
void verbs_mr_register(const struct verbs_mr *registration, struct verbs_mr_result *result);
/* Fills the registration. grant_lock is held. */
void verbs_mr_fill(struct verbs_mr *registration, const struct verbs_mr_result *result);

/* registrar.c: registers memory on threads, while the work of endpoints waits */
/* Registrations of more bytes take long, because the kernel pins each page. */
#define VERBS_REGISTER_NOW (1u << 20)
void verbs_registrar_open(struct verbs_state *state);
void verbs_registrar_close(struct verbs_state *state);
/* Returns false if no thread can be had. grant_lock is held. */
bool verbs_registrar_start(struct verbs_mr *registration);
/* Continues the endpoint's work in `registering`, and its peer's requests, when the next registration has ended. Home. */
void verbs_await_registration(struct verbs_endpoint *endpoint);

int verbs_local_key_find(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, bool written,
			 uint32_t *lkey);

/* Returns the region's registration that was used last, if it is one of the device; else NULL. */
PL_ALWAYS_INLINE const struct verbs_mr *verbs_recent_mr(const struct verbs_device *device, struct pl_region *region)
{
	struct pl_registration *recent = atomic_load_explicit(&region->recent, memory_order_acquire);

	/* Another fabric's registration has another device. */
	return recent && recent->device == device ? pl_container_of(recent, struct verbs_mr, base) : NULL;
}

/*
 * Returns the lkey of a region's memory at a device, and registers the memory if necessary. 0, -EACCES if the memory
 * must not be written, -EINPROGRESS while a thread registers it, or the reason why the device cannot reach it.
 */
PL_ALWAYS_INLINE int verbs_local_key(struct verbs_state *state, struct verbs_device *device, struct pl_region *region,
				     bool written, uint32_t *lkey)
{
	const struct verbs_mr *registration = verbs_recent_mr(device, region);

	if (!registration)
		return verbs_local_key_find(state, device, region, written, lkey);
	if (written && !(registration->access & IBV_ACCESS_LOCAL_WRITE))
		return -EACCES;
	*lkey = registration->lkey;
	return 0;
}

/* Fills the error of a registration that failed. */
void verbs_registration_fail(struct pl_error *error, int code);
/* Returns the reason why the device cannot reach a region's memory, as far as tried; NULL: no special reason. */
const char *verbs_local_refusal(struct verbs_state *state, struct verbs_device *device, struct pl_region *region);
/* Ends registrations that the driver did not end before. grant_lock is held, or the context closes. */
void verbs_stuck_mrs_end(struct verbs_device *device);
/* Ends all registrations of the device. grant_lock is held. */
void verbs_mrs_end(struct verbs_device *device);
/*
 * Finds a region's registration on which windows with these rights can be bound. grant_lock is held. Returns 0,
 * -EINPROGRESS while a thread makes it, or another negative errno.
 */
int verbs_mw_base(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, unsigned rights,
		  struct ibv_mr **mr);
/* Returns the profile's advice for GPU memory whose key verbs_local_key() just returned. */
const struct verbs_advised *verbs_local_advice(const struct verbs_device *device, struct pl_region *region,
					       bool written);
/* Notes that a peer reaches the memory by the rail's port. grant_lock is held. */
void verbs_note_exported(const struct verbs_rail *rail, const struct pl_key *key);
/*
 * Finds or makes the rkey by which peers of a device reach a key's memory. grant_lock is held. Returns 0, -EINPROGRESS
 * while a thread registers the memory, or another negative errno, which stays known until verbs_export_over(): a thread
 * tries each device once for an answer.
 */
int verbs_export_at(struct verbs_device *device, struct pl_list *list, const struct pl_key *key, uint32_t *rkey);
/* key_export.c */
/*
 * True if the driver reuses rkeys soon, and registers memory with another address at the device: mlx5 (its cache of keys in
 * mlx5_ib's mr.c), hns (alloc_mr_key()) and qedr (qedr_reg_user_mr(), whose rkey is the lowest free number). Others may
 * ignore that address (pvrdma_reg_user_mr()), or choose pages by the address in the process, and then access other memory
 * (mlx4_ib_umem_calc_optimal_mtt_size()).
 */
bool verbs_serves_far_addresses(const struct ibv_device_attr *attributes);
/* True if the peer knows the key by addresses that serve windows, too. grant_lock is held. */
bool verbs_key_serves_windows(const struct pl_key *key);
/* The answer is final: forgets the failures, so that a later import tries again. grant_lock is held. */
void verbs_export_over(struct pl_list *list);
int verbs_export_key(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX]);

/* remote_key.c: decodes a remote region's key; NULL: no memory. Home. */
struct verbs_remote_key *verbs_remote_key_make(struct pl_remote *remote, struct verbs_endpoint *endpoint);

static inline struct verbs_remote_key *verbs_remote_key_of(struct pl_remote *remote,
								 struct verbs_endpoint *endpoint)
{
	return remote->fabric_data ? remote->fabric_data : verbs_remote_key_make(remote, endpoint);
}

/* mw.c */
/* Longest window of mlx5: libmlx5 refuses a longer one with EOPNOTSUPP, as it refuses all where it has none. */
#define VERBS_WINDOW_MAX (1ull << 31)

/* Answer to an import, kept until its windows are bound; or the windows of a message. */
struct verbs_answer {
	unsigned pending; /* bind requests that are not over, and for an import one until all are posted */
	bool for_message;
	/* of a message */
	struct verbs_work *message; /* waits for the windows; NULL: not any more */
	uint8_t posted;             /* rails whose bind request is posted and not over, one bit each */
	/* of an import; not set for a message */
	struct pl_imported imported;
};

/* Memory window of a key, or an unbound one. */
struct verbs_mw {
	struct pl_registration base; /* device: of the rail */
	const struct pl_allocator *allocator;
	struct pl_region *region;       /* outlives the window */
	struct pl_operation *operation; /* message: its send; NULL: of a grant */
	struct ibv_mw *mw;              /* NULL: not bound to a queue pair */
	struct verbs_device *kept_by;   /* of an ended key: the device did not deallocate it; NULL: it did */
	uint16_t generation;
	uint32_t rkey;
	bool refused; /* a bind request failed: the key has a registration instead */
};

/* Returns the address of a key's first byte in this process. */
static inline uint64_t verbs_near_address(const struct pl_key *key)
{
	return (uintptr_t)key->memory->address + key->offset;
}

/* Returns the region of a key's memory. */
static inline struct pl_region *verbs_region_of(const struct pl_key *key)
{
	return pl_container_of(key->memory, struct pl_region, memory);
}

/* Returns the list of a grant's registrations, or of a large message's. */
static inline struct pl_list *verbs_registrations_of(struct pl_grant *grant, struct pl_key *key)
{
	return grant ? &grant->registrations : &key->registrations;
}

/* True if the program and the device allow windows. */
static inline bool verbs_mw_enabled(const struct verbs_state *state, const struct verbs_device *device)
{
	return state->context->options.narrow_grants != PL_OFF && atomic_load(&device->windows);
}

/*
 * True if windows can be bound on a registration of the memory. The kernel refuses IBV_ACCESS_MW_BIND for a dma-buf, so
 * a grant of GPU memory or of a dma-buf has a registration of its own.
 */
static inline bool verbs_mw_binds(const struct pl_memory *memory)
{
	return !pl_memory_staged(memory) && !memory->dmabuf;
}

/*
 * Creates a window on a grant's region, bound before the import is answered. grant_lock is held. Sets *refusal to NULL,
 * or to a text: which peers reach the grant without windows, and why; static storage. Returns 0, or -EINPROGRESS while
 * a thread registers the region.
 */
int verbs_mw_make(struct verbs_rail *rail, struct pl_grant *grant, struct pl_key *key, const char **refusal);
/*
 * Registers a grant's region for windows of rails to come. grant_lock is held. Returns 0, -EINPROGRESS while a thread
 * does so, or another negative errno if windows will not be used.
 */
int verbs_mw_expect(const struct verbs_endpoint *endpoint, struct verbs_device *device, struct pl_grant *grant);
/* Called before their queue pair is destroyed. */
void verbs_mw_drop_all(struct verbs_rail *rail);
/* Answers a question for a key: posts the bind request, or frees the work. */
void verbs_bind(struct verbs_rail *rail, struct verbs_work *work);
/* A bind request, or an invalidation, is done. */
void verbs_mw_work_done(struct verbs_work *work);
/* The bind request was not done. */
void verbs_bind_failed(struct verbs_rail *rail, const struct verbs_work *work);
/* Handles a question or an answer on a rail; -EPROTO. */
int verbs_key_arrived(struct verbs_rail *rail, const struct pl_frame *frame);
/* Binds the windows of a key whose import is to be answered. Returns false if the key has none. */
bool verbs_hold_answer(struct pl_endpoint *endpoint, const struct pl_imported *imported);
/*
 * Sends over this connection of the rail or not at all, and before all other work: the other end may wait for the
 * frame.
 */
void verbs_mw_send(struct verbs_rail *rail, struct pl_list *list, enum pl_frame_type type, uint64_t key, uint64_t offset);

/* mw_import.c */
/* The rail is up: answers earlier questions, and asks the peer for all keys. */
void verbs_mw_rail_up(struct verbs_rail *rail);
/* Asks the peer for keys of windows that the remote key lacks, over rails that are up. */
void verbs_mw_ask(struct verbs_endpoint *endpoint, struct verbs_remote_key *target);
/* Asks the owner for a key of one of the rails, if none was asked for. Returns true if so; the question waits first. */
bool verbs_ask_missing(struct verbs_endpoint *endpoint, struct verbs_remote_key *target, uint8_t rails);
/* True if this end has a key of the memory, or may get one. */
bool verbs_obtainable(const struct verbs_endpoint *endpoint, const struct verbs_remote_key *target);
/* Takes the owner's answer to a question for a key. UINT64_MAX: there is none. */
void verbs_key_told(struct verbs_rail *rail, uint64_t id, uint64_t answer);
void verbs_imported(struct pl_endpoint *endpoint, struct pl_remote *remote);

/*
 * Adds a window that is not bound to the key's registrations, once for each rail. grant_lock is held. Returns 0,
 * -EINPROGRESS while the region is being registered, or another negative errno if the device does not register it.
 */
int verbs_mw_add(struct verbs_rail *rail, struct pl_key *key, struct pl_region *region,
		 void (*release)(struct pl_registration *window));
/*
 * Deallocates a window of the rail's device. If the driver refuses that, the peer may still reach the memory: gives the
 * device up, because its closing ends the window. grant_lock is free.
 */
void verbs_mw_dealloc(const struct verbs_rail *rail, struct ibv_mw *mw);
/*
 * release() and finish() of a window. If the driver does not deallocate it, finish() gives the device up as
 * verbs_mw_dealloc() does.
 */
void verbs_mw_release(struct pl_registration *window);
void verbs_mw_finish(struct pl_registration *window);
/* Frees a window that is in no list, without grant_lock. */
void verbs_mw_free(struct verbs_mw *window);

/* mw_message.c */
/*
 * Adds an unbound window for a large message, once. Sets *refusal to NULL, or to "" if the message needs a registration.
 * grant_lock is held. Returns 0, or -EINPROGRESS while the region is being registered.
 */
int verbs_mw_make_message(struct verbs_rail *rail, struct pl_key *key, const char **refusal);
/* Queues the bind requests of a rendezvous frame before it. Returns false if it has none. */
bool verbs_mw_bind_message(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* True if a frame may go: its windows are bound, or will be before it on the same queue pair. */
bool verbs_mw_message_goes(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* The message waits no more. */
void verbs_mw_message_left(struct verbs_endpoint *endpoint, struct verbs_work *work);
/* Takes an unbound window of the rail. Returns false if there is none. */
bool verbs_mw_take(struct verbs_rail *rail, struct verbs_mw *window);
/* The window of an invalidation is unbound. */
void verbs_mw_invalidated(struct verbs_work *work);
/* Deallocates the unbound windows of a rail, and those that are being invalidated. */
void verbs_mw_forget(struct verbs_rail *rail);

/* True if a rail's device at the other end has a key for the memory. */
static inline bool verbs_reaches(const struct verbs_remote_key *target, unsigned rail)
{
	return target->present & 1u << rail;
}

#endif
