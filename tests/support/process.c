/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/process.h"

#include <pthread.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef PL_HAVE_VALGRIND
#include <valgrind/valgrind.h>
#endif

#include "support/check.h"

/* Factor for instrumented or emulated code on a shared machine. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOWNESS 6u
#elif defined(TEST_EMULATED)
#define SLOWNESS 10u
#else
#define SLOWNESS 2u
#endif

unsigned slowness(void)
{
#ifdef PL_HAVE_VALGRIND
	if (RUNNING_ON_VALGRIND)
		return 20;
#endif
	return SLOWNESS;
}

/* Longest useful limits in seconds: tests/meson.build ends a program after 600 s or more. */
#define HANG_PLAIN 300u
#define HANG_SLOW 600u

unsigned hang_seconds(unsigned seconds)
{
	unsigned limit = 6 * seconds * slowness();
	unsigned most = slowness() > 2 ? HANG_SLOW : HANG_PLAIN;
	unsigned least = seconds * slowness();

	if (limit > most)
		limit = most;
	return limit > least ? limit : least;
}

static uint64_t read_time(clockid_t id)
{
	struct timespec time;

	clock_gettime(id, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

uint64_t clock_now(void)
{
	return read_time(CLOCK_MONOTONIC);
}

uint64_t cpu_time(void)
{
	return read_time(CLOCK_PROCESS_CPUTIME_ID);
}

void sleep_ms(unsigned milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000L };

	while (nanosleep(&time, &time) < 0 && errno == EINTR)
		;
}

pid_t process_fork(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	check(pid >= 0);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

int process_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		check(errno == EINTR);
	return status;
}

void process_kill(pid_t pid, int signal)
{
	kill(pid, signal);
	process_wait(pid);
}

void process_stop(pid_t pid)
{
	int status;

	check(!kill(pid, SIGSTOP));
	while (waitpid(pid, &status, WUNTRACED) < 0)
		check(errno == EINTR);
	check(WIFSTOPPED(status));
}

/* Returns true once the child ends.  Polls, as waitpid(2) has no time limit. */
static bool ended_within(pid_t pid, unsigned seconds, int *status)
{
	uint64_t deadline = clock_now() + seconds * SECOND;
	unsigned naps = 0;

	while (waitpid(pid, status, WNOHANG) == 0) {
		if (clock_now() > deadline)
			return false;
		sleep_ms(naps++ < 20 ? 1 : 10);
	}
	return true;
}

int process_run(const char *name, unsigned seconds, void (*test)(void *argument), void *argument)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
	static bool hung;
	/* Further hangs must not keep the program from printing its results. */
	unsigned limit = hung ? seconds * slowness() : hang_seconds(seconds);
	int status = 0;
	bool ended;
	pid_t pid = process_fork();

	if (!pid) {
		setpgid(0, 0);
		/* Signal handlers of a test library would hide a crash. */
		for (unsigned i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
			signal(crashes[i], SIG_DFL);
		test(argument);
		exit(0);
	}
	setpgid(pid, pid);
	ended = ended_within(pid, limit, &status);
	if (!ended) {
		hung = true;
		fprintf(stderr, "%s: not done within %u s\n", name, limit);
		kill(pid, SIGABRT);
		if (!ended_within(pid, 20, &status))
			process_kill(pid, SIGKILL);
	}
	kill(-pid, SIGKILL);
	if (!ended)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		return SKIPPED;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: ended by signal %d (%s)\n", name, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		fprintf(stderr, "%s: exited with %d\n", name, WEXITSTATUS(status));
	return status ? -1 : 0;
}

static unsigned directory_entries(const char *path)
{
	DIR *directory = opendir(path);
	unsigned count = 0;

	check(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count - 2;
}

unsigned open_descriptors(void)
{
	return directory_entries("/proc/self/fd") - 1;
}

void mapping_permissions(const void *address, char text[8])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];

	*text = '\0';
	check(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long begin;
		char found[8];

		if (sscanf(line, "%lx-%*x %7s", &begin, found) == 2 && begin == (unsigned long)address)
			strcpy(text, found);
	}
	fclose(maps);
}

void require_second_mapping(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *first = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *second = mremap(first, 0, size, MREMAP_MAYMOVE);

	munmap(first, size);
	if (second != MAP_FAILED) {
		munmap(second, size);
		return;
	}
	printf("skipped: this emulator does not duplicate mappings with mremap(2)\n");
	fflush(stdout);
	_exit(SKIPPED);
}

bool mapping_shared(const void *address)
{
	char text[8];

	mapping_permissions(address, text);
	return strchr(text, 's');
}

static void *no_work(void *argument)
{
	return argument;
}

static unsigned count_threads(void)
{
	return directory_entries("/proc/self/task");
}

unsigned running_threads(void)
{
	unsigned before = count_threads();
	pthread_t thread;

	/* A sanitizer starts its own thread with the program's first thread.  The call below triggers that now. */
	check_number(pthread_create(&thread, NULL, no_work, NULL), 0);
	pthread_join(thread, NULL);
	/* The kernel shows a joined thread a little longer. */
	for (unsigned i = 0; i < 200 && count_threads() != before; i++)
		sleep_ms(1);
	return count_threads();
}

void check_threads(unsigned expected)
{
	for (unsigned i = 0; i < 20000 && count_threads() != expected; i++)
		sleep_ms(1);
	check_number(count_threads(), expected);
}

uint64_t resident_memory(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long total, resident;

	check(file);
	check_number(fscanf(file, "%lu %lu", &total, &resident), 2);
	fclose(file);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

bool memory_is_exact(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return false;
#else
	return !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#endif
}

bool resident_within(uint64_t before, uint64_t limit)
{
	return !memory_is_exact() || resident_memory() < before + limit;
}
