/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/sigbus_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* A signal handler has no other place to leave word. */
static atomic_uint faults;

static void replace_page(int number, siginfo_t *info, void *context)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *address = (void *)((uintptr_t)info->si_addr & ~(page - 1));
	int saved = errno;

	(void)context;
	atomic_fetch_add(&faults, 1);
	/* Anything but a page without storage behind it, and a failure here, ends the process as usual. */
	if (info->si_code != BUS_ADRERR ||
	    mmap(address, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		signal(number, SIG_DFL);
	errno = saved;
}

unsigned guard_faults(void)
{
	return atomic_load(&faults);
}

void guard_install(void)
{
	struct sigaction action = { .sa_sigaction = replace_page, .sa_flags = SA_SIGINFO | SA_RESTART };

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}
