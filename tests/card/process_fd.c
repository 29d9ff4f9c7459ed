/* SPDX-License-Identifier: BSD-2-Clause */
#include "card/process_fd.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARGUMENTS 6

static int inherited = -1;

/* The linker gives the library's calls of syscall() to __wrap_syscall() (meson.build). */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	long arguments[ARGUMENTS];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < ARGUMENTS; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_pidfd_open && inherited >= 0 && (pid_t)arguments[0] == getpid())
		return fcntl(inherited, F_DUPFD_CLOEXEC, 0);
	return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

void process_fd_begin(void)
{
	const char *number = getenv("PATH_COST_PROCESS_FD");

	inherited = number ? atoi(number) : -1;
}
