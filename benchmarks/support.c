/* SPDX-License-Identifier: BSD-2-Clause */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t processor_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static int compare_times(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return (one > other) - (one < other);
}

void sort_times(uint64_t *times, size_t count)
{
	qsort(times, count, sizeof(*times), compare_times);
}

void stay_on_core(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		give_up("sched_setaffinity", -errno, NULL);
}

static FILE *must_open(const char *path)
{
	FILE *file = fopen(path, "re");

	if (!file)
		give_up(path, -errno, NULL);
	return file;
}

long resident_bytes(void)
{
	FILE *file = must_open("/proc/self/statm");
	long total, resident;

	if (fscanf(file, "%ld %ld", &total, &resident) != 2)
		give_up("/proc/self/statm", -EIO, NULL);
	fclose(file);
	return resident * sysconf(_SC_PAGESIZE);
}

static unsigned entries_of(const char *path)
{
	DIR *directory = opendir(path);
	unsigned count = 0;

	if (!directory)
		give_up(path, -errno, NULL);
	for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count;
}

unsigned open_descriptors(void)
{
	/* Does not count the descriptor of the folder itself. */
	return entries_of("/proc/self/fd") - 1;
}

unsigned running_threads(void)
{
	return entries_of("/proc/self/task");
}

unsigned memory_mappings(void)
{
	FILE *file = must_open("/proc/self/maps");
	unsigned count = 0;

	for (int character = getc(file); character != EOF; character = getc(file))
		count += character == '\n';
	fclose(file);
	return count;
}

void put(int fd, const void *data, size_t length)
{
	if (write(fd, data, length) != (ssize_t)length)
		give_up("write", -errno, NULL);
}

void get(int fd, void *data, size_t length)
{
	for (size_t have = 0; have < length;) {
		ssize_t more = read(fd, (char *)data + have, length - have);

		if (more <= 0)
			give_up("read", more < 0 ? -errno : -EPIPE, NULL);
		have += (size_t)more;
	}
}

pid_t start_process(int *fd)
{
	int ends[2];
	pid_t other;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		give_up("socketpair", -errno, NULL);
	other = fork();
	if (other < 0)
		give_up("fork", -errno, NULL);
	if (other == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	*fd = ends[other == 0];
	close(ends[other != 0]);
	return other;
}

void tell_processor_time(int fd)
{
	char question;

	while (read(fd, &question, 1) == 1) {
		uint64_t time = processor_ns();

		put(fd, &time, sizeof(time));
	}
	exit(0);
}

int run_stream(const void *run, void (*publish)(const void *run, int address_pipe),
	       void (*subscribe)(const void *run, const char *address))
{
	char address[96];
	int pipes[2];
	pid_t child;

	if (pipe(pipes) < 0)
		return 1;
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		publish(run, pipes[1]);
		return 0;
	}
	get(pipes[0], address, sizeof(address));
	subscribe(run, address);
	return waitpid(child, NULL, 0) == child ? 0 : 1;
}

void give_up(const char *call, int code, const struct pl_error *error)
{
	char text[1024];

	if (error && pl_error_format(error, text, sizeof(text)) > 0)
		fprintf(stderr, "%s: %s\n", call, text);
	else
		fprintf(stderr, "%s: %s\n", call, strerror(-code));
	exit(1);
}
