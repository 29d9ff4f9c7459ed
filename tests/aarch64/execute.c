/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * execv() and posix_spawn() of programs that QEMU emulates. QEMU passes execve(2) to the host's kernel, which cannot run
 * programs of another processor. So these functions start the emulator again. Linked into each program and library of
 * the build for the emulator; calls by the C library itself do not come here.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Arguments before the program's own: the emulator, -0, the program's name for itself, the program. */
#define ARGUMENTS_BEFORE 4

static bool needs_emulator(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr head;
	bool whole;

	if (fd < 0)
		return false;
	whole = read(fd, &head, sizeof(head)) == (ssize_t)sizeof(head);
	close(fd);
	return whole && !memcmp(head.e_ident, ELFMAG, SELFMAG) && head.e_machine == EM_AARCH64;
}

/* Returns the arguments that start the emulator with the program; NULL: no emulator is needed, or no memory. */
static char **emulator_arguments(const char *path, char *const arguments[])
{
	static char emulator[] = EMULATOR, name_option[] = "-0";
	/* The emulator's own /proc/self/exe differs: takes the program's path. */
	char *whole = realpath(path, NULL), **all = NULL;
	size_t count = 0;

	while (arguments[count])
		count++;
	if (whole && count && needs_emulator(whole))
		all = malloc((ARGUMENTS_BEFORE + count) * sizeof(*all));
	if (!all) {
		free(whole);
		return NULL;
	}
	all[0] = emulator;
	all[1] = name_option;
	all[2] = arguments[0];
	all[3] = whole;
	memcpy(all + ARGUMENTS_BEFORE, arguments + 1, count * sizeof(*all));
	return all;
}

static void free_arguments(char **all)
{
	if (all)
		free(all[3]);
	free(all);
}

int execv(const char *path, char *const arguments[])
{
	char **all = emulator_arguments(path, arguments);
	int failure;

	execve(all ? EMULATOR : path, all ? all : arguments, environ);
	failure = errno;
	free_arguments(all);
	errno = failure;
	return -1;
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	char **all = emulator_arguments(path, arguments);
	/* Calls the C library. Both functions are equal for a path with a slash, which all callers give. */
	int rc = posix_spawnp(pid, all ? EMULATOR : path, actions, attributes, all ? all : arguments, environment);

	free_arguments(all);
	return rc;
}
