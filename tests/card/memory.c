/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions, memory windows, and the card's access to memory. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "card/card.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define REMOTE_WRITES (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define KNOWN (IBV_ACCESS_LOCAL_WRITE | REMOTE_WRITES | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)
/* What the kernel allows for a dma-buf: UVERBS_METHOD_REG_DMABUF_MR. */
#define DMABUF_KNOWN (IBV_ACCESS_LOCAL_WRITE | REMOTE_WRITES | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING)
/* Time to register a GiB in the mood "slow". */
#define SLOW_GIB (200 * CARD_MILLISECOND)

/* -- keys ------------------------------------------------------------------------------------------ */

/*
 * The low 8 bits belong to the owner of a window. Keys of windows are never used again, so that the use of an old key
 * shows. Drivers give a new region a key that was freed before, with the same low bits: mlx5 the last one, of a stack in
 * its cache of regions; hns the lowest one.
 */
static struct {
	struct card_key {
		struct card_mr *mr;
		struct card_mw *mw;
		bool free;
		uint32_t before; /* number of the key that was freed before it; 0: none */
	} *list;
	uint32_t count, room, freed; /* freed: number of the key that was freed last; 0: none */
} keys;

/* Returns the number of a free key for a region, or 0. */
static uint32_t key_take_free(void)
{
	uint32_t number = keys.freed;

	switch (card_character()->keys) {
	case CARD_KEYS_LAST:
		if (number)
			keys.freed = keys.list[number - 1].before;
		return number;
	case CARD_KEYS_LOWEST:
		for (uint32_t i = 0; i < keys.count; i++)
			if (keys.list[i].free)
				return i + 1;
		return 0;
	default:
		return 0;
	}
}

static uint32_t key_make(struct card_mr *mr, struct card_mw *mw)
{
	uint32_t number = mr ? key_take_free() : 0;

	if (number) {
		keys.list[number - 1] = (struct card_key){ .mr = mr };
		return number << 8 | 0x11;
	}
	if (keys.count == keys.room) {
		keys.room = keys.room ? keys.room * 2 : 256;
		keys.list = realloc(keys.list, keys.room * sizeof(*keys.list));
		if (!keys.list)
			abort();
	}
	keys.list[keys.count] = (struct card_key){ .mr = mr, .mw = mw };
	return ++keys.count << 8 | 0x11;
}

static void key_free(uint32_t key)
{
	struct card_key *freed = &keys.list[(key >> 8) - 1];

	*freed = (struct card_key){ .free = true, .before = keys.freed };
	keys.freed = key >> 8;
}

static struct card_key *key_find(uint32_t key)
{
	static struct card_key none;

	return key >> 8 && key >> 8 <= keys.count ? &keys.list[(key >> 8) - 1] : &none;
}

/* -- access ---------------------------------------------------------------------------------------- */

/* In the static block of each thread: LeakSanitizer misreads the address of a small dynamic one, and crashes. */
static _Thread_local volatile bool copying __attribute__((tls_model("initial-exec")));
static long page_size;

/*
 * A card keeps pages that a file loses, because it pinned them. The process has lost them: the access gets an empty
 * page in their place.
 */
static void copy_faulted(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (copying) {
		uintptr_t page = (uintptr_t)info->si_addr & ~((uintptr_t)page_size - 1);

		if (syscall(SYS_mmap, page, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			    0) == (long)page)
			return;
	}
	signal(number, SIG_DFL);
}

static void memory_open(void)
{
	struct sigaction action = { .sa_sigaction = copy_faulted, .sa_flags = SA_SIGINFO | SA_NODEFER };

	page_size = sysconf(_SC_PAGESIZE);
	sigaction(SIGBUS, &action, NULL);
}

void card_copy(uint8_t *to, const uint8_t *from, size_t length)
{
	copying = true;
	memcpy(to, from, length);
	copying = false;
}

/* Size of a part in which a card reads. */
#define PART 512u

/* Reads aligned words of the source at once. */
__attribute__((no_sanitize("thread"))) static void look(uint8_t *to, const uint8_t *from, uint32_t length)
{
	uint32_t i = 0;

	for (; i < length && (uintptr_t)(from + i) % sizeof(uint64_t); i++)
		to[i] = *(const volatile uint8_t *)(from + i);
	for (; length - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
		const uint64_t word = *(const volatile uint64_t *)(const void *)(from + i);

		__builtin_memcpy(to + i, &word, sizeof(word));
	}
	for (; i < length; i++)
		to[i] = *(const volatile uint8_t *)(from + i);
}

void card_copy_shared(uint8_t *to, const uint8_t *from, uint32_t length)
{
	uint8_t part[PART];

	for (uint32_t i = 0, size; i < length; i += size) {
		size = PART - (uintptr_t)(from + i) % sizeof(uint64_t);
		size = length - i < size ? length - i : size;
		copying = true;
		look(part, from + i, size);
		copying = false;
		card_copy(to + i, part, size);
	}
}

static bool within(uint64_t begin, uint64_t room, const struct card_access *access)
{
	return access->address >= begin && access->length <= room && access->address - begin <= room - access->length;
}

uint8_t *card_local(const struct card_qp *qp, const struct card_access *access)
{
	const struct card_mr *mr = key_find(access->key)->mr;

	if (!mr || mr->base.lkey != access->key || mr->base.pd != qp->base.pd || mr->dead ||
	    (mr->access & access->rights) != access->rights || !within(mr->iova, mr->base.length, access))
		return NULL;
	return mr->bytes + (access->address - mr->iova);
}

uint8_t *card_remote(const struct card_qp *qp, const struct card_access *access)
{
	const struct card_key *key = key_find(access->key);
	const struct card_mr *mr = key->mw ? key->mw->mr : key->mr;
	unsigned rights = mr ? mr->access : 0;

	if (!mr || mr->base.pd != qp->base.pd || (qp->access & access->rights) != access->rights || mr->dead)
		return NULL;
	if (key->mw) {
		rights = key->mw->access;
		if (key->mw->base.rkey != access->key || key->mw->qp_num != qp->base.qp_num ||
		    !within(key->mw->address, key->mw->length, access))
			return NULL;
	} else if (mr->base.rkey != access->key) {
		return NULL;
	}
	if ((rights & access->rights) != access->rights || !within(mr->iova, mr->base.length, access))
		return NULL;
	return mr->bytes + (access->address - mr->iova);
}

const struct card_mr *card_region_of(uint32_t number)
{
	const struct card_key *key = key_find(number);

	return key->mw ? key->mw->mr : key->mr;
}

/* -- regions --------------------------------------------------------------------------------------- */

/* Registrations that standin_card_hold() keeps from ending. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t released;
	size_t least;     /* bytes of those that are held; 0: none */
	unsigned devices; /* a bit for each device that holds them */
	unsigned count;
} held = { .lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER };

/* Registrations that standin_card_refuse() lets fail: of so many bytes and more, by the devices of these bits. */
static _Atomic size_t refused_least;
static atomic_uint refusing_devices;

void standin_card_refuse(unsigned devices, size_t least)
{
	refused_least = least;
	refusing_devices = devices;
}

void standin_card_hold(unsigned devices, size_t least)
{
	pthread_mutex_lock(&held.lock);
	held.least = least;
	held.devices = devices;
	pthread_cond_broadcast(&held.released);
	pthread_mutex_unlock(&held.lock);
}

unsigned standin_card_held(void)
{
	unsigned count;

	pthread_mutex_lock(&held.lock);
	count = held.count;
	pthread_mutex_unlock(&held.lock);
	return count;
}

static void await_release(unsigned device, size_t length)
{
	pthread_mutex_lock(&held.lock);
	held.count++;
	while (held.least && length >= held.least && held.devices & 1u << device)
		pthread_cond_wait(&held.released, &held.lock);
	held.count--;
	pthread_mutex_unlock(&held.lock);
}

/* True if STANDIN_LOCKED forbids the domain more bytes, as `ulimit -l` forbids them to a process. */
static bool locks_too_much(const struct ibv_pd *pd, size_t length)
{
	const char *limit = getenv("STANDIN_LOCKED");
	uint64_t bytes = length;

	for (uint32_t i = 0; limit && i < keys.count; i++)
		if (keys.list[i].mr && keys.list[i].mr->base.pd == pd && !keys.list[i].mr->map)
			bytes += keys.list[i].mr->base.length;
	return limit && bytes > strtoull(limit, NULL, 10);
}

/* True if dma-bufs of so many bytes more do not fit STANDIN_BAR1, as a GPU's BAR1 limits them. */
static bool exceeds_bar1(size_t length)
{
	const char *limit = getenv("STANDIN_BAR1");

	return limit && card_counts.shown + length > strtoull(limit, NULL, 10);
}

/* True if the cgroup of the process allows no further objects of a card: kernel/cgroup/rdma.c. Sets errno. */
static bool exceeds_cgroup(void)
{
	bool exceeds;

	pthread_mutex_lock(&card_lock);
	exceeds = card_happens(CARD_CGROUP);
	pthread_mutex_unlock(&card_lock);
	if (exceeds)
		errno = EAGAIN;
	return exceeds;
}

static struct ibv_mr *region_add(struct ibv_pd *pd, struct card_mr made)
{
	struct card_mr *mr = malloc(sizeof(*mr));
	const unsigned device = card_number(pd->context);
	uint64_t pause = 0;

	if (!mr)
		return NULL;
	await_release(device, made.base.length);
	if (exceeds_cgroup()) {
		if (made.map)
			munmap(made.map, made.map_length);
		free(mr);
		return NULL;
	}
	*mr = made;
	mr->base.context = pd->context;
	mr->base.pd = pd;
	pthread_mutex_lock(&card_lock);
	if ((refusing_devices & 1u << device && mr->base.length >= refused_least) ||
	    (mr->map ? exceeds_bar1(mr->base.length) : locks_too_much(pd, mr->base.length))) {
		pthread_mutex_unlock(&card_lock);
		if (mr->map)
			munmap(mr->map, mr->map_length);
		free(mr);
		errno = ENOMEM;
		return NULL;
	}
	card_counts.mrs++;
	card_counts.device_mrs[device]++;
	card_counts.made_mrs++;
	card_counts.relaxed += mr->relaxed;
	card_counts.data_direct += mr->direct;
	*(mr->map ? &card_counts.shown : &card_counts.locked) += mr->base.length;
	mr->base.lkey = mr->base.rkey = key_make(mr, NULL);
	if (card_happens(CARD_SLOW))
		pause = made.base.length / (1u << 20) * (SLOW_GIB >> 10) + CARD_MILLISECOND;
	pthread_mutex_unlock(&card_lock);
	if (pause)
		usleep((useconds_t)(pause / CARD_MICROSECOND));
	return &mr->base;
}

static bool flags_refused(unsigned access, unsigned known)
{
	return (access & ~known) || ((access & REMOTE_WRITES) && !(access & IBV_ACCESS_LOCAL_WRITE));
}

/* Pins the pages: all must be there, and writable if the card may write. */
static int region_pin(const void *address, size_t length, unsigned access)
{
	uintptr_t begin = (uintptr_t)address & ~((uintptr_t)page_size - 1), end = (uintptr_t)address + length;

	return madvise((void *)begin, end - begin,
		       access & IBV_ACCESS_LOCAL_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

static pthread_once_t memory_once = PTHREAD_ONCE_INIT;

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access)
{
	const bool relaxed = access & IBV_ACCESS_RELAXED_ORDERING;

	pthread_once(&memory_once, memory_open);
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (flags_refused(access, KNOWN) || (!relaxed && getenv("STANDIN_RELAXED_ONLY")) ||
	    (access & IBV_ACCESS_MW_BIND && !card_character()->windows) || !length) {
		errno = EINVAL;
		return NULL;
	}
	if (region_pin(address, length, access) < 0) {
		errno = errno == ENOMEM || errno == EINVAL ? EFAULT : errno;
		return NULL;
	}
	/* mlx4's driver chooses pages by the address in the process: others than `iova` says. */
	if (!strncmp(card_character()->device, "mlx4", 4) || card_is_foreign(pd->context))
		iova = (uintptr_t)address;
	return region_add(pd, (struct card_mr){ .base = { .addr = address, .length = length },
						.iova = iova,
						.access = access,
						.relaxed = relaxed,
						.bytes = address });
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	if (access & (int)IBV_ACCESS_OPTIONAL_RANGE) {
		errno = EINVAL;
		return NULL;
	}
	return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned)access);
}

struct ibv_mr *card_reg_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
			       bool direct)
{
	uint64_t skew;
	size_t mapped;
	off_t begin;
	uint8_t *map;

	pthread_once(&memory_once, memory_open);
	skew = offset % (uint64_t)page_size;
	if (!card_character()->dmabuf) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (flags_refused((unsigned)access, DMABUF_KNOWN) || iova % (uint64_t)page_size != skew || !length) {
		errno = EINVAL;
		return NULL;
	}
	/* tests/libcuda: the file's position is the begin of the dma-buf, and O_APPEND marks a PCIE mapping. */
	begin = lseek(fd, 0, SEEK_CUR);
	mapped = length + skew;
	map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, begin + (off_t)(offset - skew));
	if (begin < 0 || map == MAP_FAILED) {
		errno = EINVAL;
		return NULL;
	}
	return region_add(pd, (struct card_mr){ .base = { .length = length },
						.iova = iova,
						.access = (unsigned)access,
						.relaxed = access & IBV_ACCESS_RELAXED_ORDERING,
						.bytes = map + skew,
						.map = map,
						.map_length = mapped,
						.direct = direct,
						.dead = !direct && fcntl(fd, F_GETFL) & O_APPEND });
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	return card_reg_dmabuf(pd, offset, length, iova, fd, access, false);
}

int ibv_dereg_mr(struct ibv_mr *base)
{
	struct card_mr *mr = (struct card_mr *)base;

	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	if (mr->windows || card_happens(CARD_DEREG)) {
		const int error = mr->windows ? EBUSY : EIO;

		pthread_mutex_unlock(&card_lock);
		return error;
	}
	card_place_held(true);
	key_free(base->lkey);
	card_counts.mrs--;
	card_counts.relaxed -= mr->relaxed;
	*(mr->map ? &card_counts.shown : &card_counts.locked) -= mr->base.length;
	pthread_mutex_unlock(&card_lock);
	if (mr->map)
		munmap(mr->map, mr->map_length);
	free(mr);
	return 0;
}

/* -- windows --------------------------------------------------------------------------------------- */

struct ibv_mw *card_alloc_window(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct card_mw *mw = card_character()->windows && type == IBV_MW_TYPE_2 ? calloc(1, sizeof(*mw)) : NULL;

	if (!mw) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mw->base = (struct ibv_mw){ .context = pd->context, .pd = pd, .type = type };
	pthread_mutex_lock(&card_lock);
	card_counts.mws++;
	card_counts.made_mws++;
	mw->base.rkey = key_make(NULL, mw);
	pthread_mutex_unlock(&card_lock);
	return &mw->base;
}

static void window_unbind(struct card_mw *mw)
{
	if (!mw->mr)
		return;
	mw->mr->windows--;
	mw->mr = NULL;
	card_counts.bound--;
}

int card_dealloc_window(struct ibv_mw *base)
{
	struct card_mw *mw = (struct card_mw *)base;

	bool kept;

	pthread_mutex_lock(&card_lock);
	/* The kernel keeps its object until the device is closed; this card forgets it at once. */
	kept = card_happens(CARD_DEALLOC);
	window_unbind(mw);
	key_find(base->rkey)->mw = NULL;
	card_counts.mws--;
	pthread_mutex_unlock(&card_lock);
	free(mw);
	return kept ? EIO : 0;
}

bool card_window_is_too_long(const struct ibv_send_wr *wr)
{
	const char *limit = getenv("STANDIN_WINDOW_MAX");
	const uint64_t most = limit ? strtoull(limit, NULL, 10) : card_character()->window_max;

	return most && wr->bind_mw.bind_info.length > most;
}

enum ibv_wc_status card_bind(const struct card_qp *qp, const struct ibv_send_wr *wr, uint32_t lkey)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	const struct card_access range = { .address = info->addr, .length = (uint32_t)info->length };
	struct card_mr *mr = key_find(lkey)->mr;
	struct card_key *key = key_find(wr->bind_mw.rkey);
	bool writes = info->mw_access_flags & REMOTE_WRITES;

	/* The window and the region may be gone since the request was posted. */
	if (!mr || !key->mw || (struct ibv_mw *)key->mw != wr->bind_mw.mw || key->mw->mr ||
	    mr->base.pd != qp->base.pd || !(mr->access & IBV_ACCESS_MW_BIND) ||
	    (writes && !(mr->access & IBV_ACCESS_LOCAL_WRITE)) || !within(mr->iova, mr->base.length, &range))
		return IBV_WC_MW_BIND_ERR;
	key->mw->mr = mr;
	key->mw->address = info->addr;
	key->mw->length = info->length;
	key->mw->access = info->mw_access_flags;
	key->mw->qp_num = qp->base.qp_num;
	key->mw->base.rkey = wr->bind_mw.rkey;
	mr->windows++;
	card_counts.bound++;
	return IBV_WC_SUCCESS;
}

enum ibv_wc_status card_invalidate(const struct card_qp *qp, uint32_t rkey)
{
	const struct card_key *key = key_find(rkey);

	if (!key->mw || !key->mw->mr || key->mw->base.rkey != rkey || key->mw->qp_num != qp->base.qp_num)
		return IBV_WC_MW_BIND_ERR;
	window_unbind(key->mw);
	return IBV_WC_SUCCESS;
}

void card_unbind(const struct card_qp *qp)
{
	for (uint32_t i = 0; i < keys.count; i++)
		if (keys.list[i].mw && keys.list[i].mw->mr && keys.list[i].mw->qp_num == qp->base.qp_num)
			window_unbind(keys.list[i].mw);
}
