/* SPDX-License-Identifier: BSD-2-Clause */
/* The process that opened a context, and its children. */
#include <sys/mman.h>

#include "core/context.h"

#define FORK_MARK_SPACE 4096 /* bytes of a page, or of its beginning */

/* Returns a page that the kernel empties in children of fork(2) (madvise(2)): a look needs no system call. NULL: none. */
static const uint8_t *open_fork_mark(void)
{
	uint8_t *mark = mmap(NULL, FORK_MARK_SPACE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mark == MAP_FAILED)
		return NULL;
	if (madvise(mark, FORK_MARK_SPACE, MADV_WIPEONFORK) < 0) {
		munmap(mark, FORK_MARK_SPACE);
		return NULL;
	}
	*mark = 1;
	return mark;
}

void pl_context_mark_process(struct pl_context *context)
{
	context->process = getpid();
	context->fork_mark = open_fork_mark();
}

void pl_context_unmark_process(struct pl_context *context)
{
	if (context->fork_mark)
		munmap((void *)context->fork_mark, FORK_MARK_SPACE);
}

int pl_context_check_process(const struct pl_context *context, const char *call, struct pl_error *error)
{
	if (!pl_context_forked(context))
		return 0;
	return pl_fail(error, -EBADF, "FORKED", call, NULL, "open a context in each process",
		       "the context belongs to the parent process");
}
