/* SPDX-License-Identifier: BSD-2-Clause */
/* Utilities of every layer: errors, memory, clock, intrusive list. */
#ifndef PL_BASE_H
#define PL_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <peerlane/peerlane.h>

#define PL_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* For functions on the path of every operation that compilers do not inline by themselves. */
#define PL_ALWAYS_INLINE static inline __attribute__((always_inline))

/* The selected argument is evaluated twice: copy values that may change first. */
#define PL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define PL_NS_PER_S 1000000000ull
#define PL_NS_PER_MS 1000000ull

#define pl_container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/*
 * Fills *error (if not NULL) and returns code, so that a failing function can end in `return pl_fail(error, -EINVAL,
 * "ID", "call", object, "hint", "fact %d", n);`. call, object and hint may be NULL.
 */
int pl_fail(struct pl_error *error, int code, const char *id, const char *call, const char *object, const char *hint,
	    const char *format, ...) __attribute__((format(printf, 7, 8)));

/* True for the codes of a process, or a host, that has no free file descriptor. */
static inline bool pl_lacks_descriptor(int code)
{
	return code == -EMFILE || code == -ENFILE;
}

/*
 * pl_fail() for a failed system call: the fact is strerror(-code). EMFILE and ENFILE have the id "DESCRIPTOR-LIMIT", and
 * name the limit and its remedy.
 */
int pl_fail_errno(struct pl_error *error, int code, const char *id, const char *call, const char *object);

/* pl_fail() for a lack of memory. */
int pl_fail_memory(struct pl_error *error, const char *call);

/* Memory of the caller's allocator; pl_zalloc() returns zeroed memory. */
void *pl_alloc(const struct pl_allocator *allocator, size_t size);
void *pl_zalloc(const struct pl_allocator *allocator, size_t size);
void *pl_realloc(const struct pl_allocator *allocator, void *pointer, size_t size);
static inline void pl_free(const struct pl_allocator *allocator, void *pointer)
{
	if (pointer)
		allocator->release(pointer, allocator->user);
}

/* malloc(3), realloc(3), free(3). */
extern const struct pl_allocator pl_system_allocator;

/* CLOCK_MONOTONIC and CLOCK_REALTIME in nanoseconds. */
uint64_t pl_now(void);
uint64_t pl_wall_clock(void);

/* Returns now + timeout without wrapping: UINT64_MAX stays "never". */
static inline uint64_t pl_deadline(uint64_t now, uint64_t timeout)
{
	return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

/* True if a range leaves [0, size); correct for all numbers, without wrapping. */
static inline bool pl_outside(uint64_t offset, uint64_t length, uint64_t size)
{
	return offset > size || length > size - offset;
}

/* Fills memory with random bytes of the kernel. Returns 0 or a negative errno. */
int pl_random(void *buffer, size_t length);

/*
 * Reads the beginning of a file, such as those of /proc and /sys, and appends a NUL. Returns the length; 0 if the file
 * cannot be read.
 */
size_t pl_read_head(const char *path, char *text, size_t size);

/*
 * Copies an option structure that begins with its size, from a program whose structure may be shorter or longer; NULL
 * copies zeros. Returns -EINVAL if a member unknown to this library is not zero.
 */
int pl_copy_versioned(void *to, size_t known, const void *from);

/* Doubly linked list with a head. An element outside lists points to itself. */
struct pl_list {
	struct pl_list *next, *prev;
};

static inline void pl_list_init(struct pl_list *list)
{
	list->next = list->prev = list;
}

static inline bool pl_list_empty(const struct pl_list *list)
{
	return list->next == list;
}

/* Adds before the head: at the end. */
static inline void pl_list_append(struct pl_list *head, struct pl_list *element)
{
	element->prev = head->prev;
	element->next = head;
	head->prev->next = element;
	head->prev = element;
}

static inline void pl_list_prepend(struct pl_list *head, struct pl_list *element)
{
	pl_list_append(head->next, element);
}

/* Removes an element that is added or freed next: it points to its old neighbours. */
static inline void pl_list_unlink(const struct pl_list *element)
{
	element->prev->next = element->next;
	element->next->prev = element->prev;
}

static inline void pl_list_remove(struct pl_list *element)
{
	pl_list_unlink(element);
	pl_list_init(element);
}

/* Moves all elements of `from` to the end of `to`. */
static inline void pl_list_splice(struct pl_list *to, struct pl_list *from)
{
	if (pl_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	pl_list_init(from);
}

#define pl_list_entry(element, type, member) pl_container_of(element, type, member)
#define pl_list_first(head, type, member) pl_list_entry((head)->next, type, member)
#define pl_list_for_each(cursor, head) \
	for (struct pl_list *cursor = (head)->next; cursor != (head); cursor = cursor->next)
/* The element at the cursor may be removed. */
#define pl_list_for_each_safe(cursor, following, head) \
	for (struct pl_list *cursor = (head)->next, *following = cursor->next; cursor != (head); \
	     cursor = following, following = cursor->next)

#endif
