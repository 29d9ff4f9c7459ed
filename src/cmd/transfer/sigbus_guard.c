/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/sigbus_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* A global, because a signal handler has no other way to report. */
static atomic_uint replaced_pages;

static void replace_truncated_page(int number, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *address = (void *)((uintptr_t)info->si_addr & ~(page - 1));
	int saved = errno;

	(void)context;
	atomic_fetch_add(&replaced_pages, 1);
	/*
	 * Other kinds of SIGBUS, and a failure of mmap(), end the process as without the handler. The signal ends it, before the access is
	 * repeated: mmap() may have left a hole, where another thread maps memory that the access would change.
	 */
	if (info->si_code != BUS_ADRERR ||
	    mmap(address, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		signal(number, SIG_DFL);
		raise(number);
	}
	errno = saved;
}

unsigned sigbus_guard_count(void)
{
	return atomic_load(&replaced_pages);
}

void sigbus_guard_install(void)
{
	struct sigaction action = { .sa_sigaction = replace_truncated_page, .sa_flags = SA_SIGINFO | SA_RESTART };

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}
