/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/system_call.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"

#define NUMBERS_MAX 8

/* Installs a filter in which the numbers have one result and all others another. */
static void install_filter(const long *numbers, unsigned count, unsigned listed, unsigned others, unsigned flags)
{
	struct sock_filter filter[NUMBERS_MAX + 3];
	struct sock_fprog program = { .filter = filter };

	check(count <= NUMBERS_MAX);
	filter[program.len++] =
		(struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	/* Each match jumps to the last statement. */
	for (unsigned i = 0; i < count; i++)
		filter[program.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[i],
								     (unsigned char)(count - i), 0);
	filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
	filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program)) {
		fprintf(stderr, "the kernel has no system call filters\n");
		exit(SKIPPED);
	}
}

void refuse_system_calls(const long *numbers, unsigned count, int error)
{
	install_filter(numbers, count, SECCOMP_RET_ERRNO | (unsigned)error, SECCOMP_RET_ALLOW,
		       SECCOMP_FILTER_FLAG_TSYNC);
}

void trap_system_calls(const long *allowed, unsigned count)
{
	long numbers[NUMBERS_MAX] = { SYS_exit, SYS_madvise, SYS_munmap, SYS_rt_sigprocmask };
	unsigned own = 4;

	for (unsigned i = 0; i < count; i++) {
		check(own < NUMBERS_MAX);
		numbers[own++] = allowed[i];
	}
	install_filter(numbers, own, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP, 0);
}

void refuse_process_vm(void)
{
	static const long numbers[] = { SYS_process_vm_readv, SYS_process_vm_writev };
	char from = 1, to = 0;
	struct iovec local = { .iov_base = &to, .iov_len = 1 }, remote = { .iov_base = &from, .iov_len = 1 };

	refuse_system_calls(numbers, 2, EPERM);
	check_number(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), -1);
	check_number(errno, EPERM);
	check_number(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), -1);
	check_number(errno, EPERM);
}
