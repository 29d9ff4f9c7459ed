/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded library that stops its process at a chosen event, as SIGSTOP does, until SIGCONT arrives.
 *
 * FAULT_AT=EVENT:N stops at occurrence N of an event; `traffic` stops when the sockets have carried N bytes.
 * FAULT_LOG=FILE gets a line for each event: its name, its number, and the bytes of all sockets by then.
 * FAULT_OPEN=NAME makes opening a file of that name the event `open`.
 * FAULT_CLOCK=FILE has a number of seconds (int64_t) that the clock of the day is wrong by; it may change at any time.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum event { CONNECT, TRAFFIC, OPEN, CREATE, PWRITE, FSYNC, SYNCED, RENAME, RENAMED, SHUTDOWN, EVENTS };

static const char *const event_names[EVENTS] = {
	"connect", "traffic", "open", "create", "pwrite", "fsync", "synced", "rename", "renamed", "shutdown"
};

static atomic_ulong event_counts[EVENTS];
static atomic_bool trap_sprung;
static enum event trap_event = EVENTS;
static unsigned long trap_number;
static const char *open_name = "";
static const volatile int64_t *clock_offset;
static int log_fd = -1;

/* Prepares everything before the program enters its sandbox. */
__attribute__((constructor)) static void set_trap(void)
{
	const char *at = getenv("FAULT_AT"), *log = getenv("FAULT_LOG"), *path = getenv("FAULT_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *mapped;

	if (getenv("FAULT_OPEN"))
		open_name = getenv("FAULT_OPEN");
	if (log)
		log_fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; at && i < EVENTS; i++) {
		size_t length = strlen(event_names[i]);

		if (!strncmp(at, event_names[i], length) && at[length] == ':') {
			trap_event = (enum event)i;
			trap_number = strtoul(at + length + 1, NULL, 10);
		}
	}
	if (fd < 0)
		return;
	mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	if (mapped != MAP_FAILED)
		clock_offset = mapped;
	close(fd);
}

static void *next_function(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

/* Declares `real`, the function that this library stands before. */
#define NEXT(name, type, ...)                                                    \
	static atomic_uintptr_t known;                                           \
	type (*real)(__VA_ARGS__);                                               \
	void *found = (void *)atomic_load(&known);                               \
	if (!found) {                                                            \
		found = next_function(name);                                     \
		atomic_store(&known, (uintptr_t)found);                          \
	}                                                                        \
	memcpy(&real, &found, sizeof(real))

/* Counts an event, and stops the process if the trap is set here. */
static void pass_event(enum event event, unsigned long amount)
{
	int saved = errno;
	unsigned long count = atomic_fetch_add(&event_counts[event], amount) + amount;

	if (log_fd >= 0)
		dprintf(log_fd, "%s %lu %lu\n", event_names[event], count, atomic_load(&event_counts[TRAFFIC]));
	if (event == trap_event && count >= trap_number && !atomic_exchange(&trap_sprung, true))
		raise(SIGSTOP);
	errno = saved;
}

static ssize_t pass_traffic(int fd, ssize_t bytes, int flags)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	int saved = errno;

	/* The sockets of the service manager and of the library's own threads are no traffic. */
	if (bytes > 0 && !(flags & MSG_PEEK) && getsockname(fd, (struct sockaddr *)&address, &length) == 0 &&
	    (address.ss_family == AF_INET || address.ss_family == AF_INET6))
		pass_event(TRAFFIC, (unsigned long)bytes);
	errno = saved;
	return bytes;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	NEXT("connect", int, int, const struct sockaddr *, socklen_t);
	pass_event(CONNECT, 1);
	return real(fd, address, length);
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	NEXT("send", ssize_t, int, const void *, size_t, int);
	return pass_traffic(fd, real(fd, bytes, length, flags), flags);
}

ssize_t recv(int fd, void *bytes, size_t length, int flags)
{
	NEXT("recv", ssize_t, int, void *, size_t, int);
	return pass_traffic(fd, real(fd, bytes, length, flags), flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	NEXT("sendmsg", ssize_t, int, const struct msghdr *, int);
	return pass_traffic(fd, real(fd, message, flags), flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	NEXT("recvmsg", ssize_t, int, struct msghdr *, int);
	return pass_traffic(fd, real(fd, message, flags), flags);
}

int shutdown(int fd, int how)
{
	NEXT("shutdown", int, int, int);
	pass_event(SHUTDOWN, 1);
	return real(fd, how);
}

static void pass_open(const char *path)
{
	const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
	size_t length = strlen(last);

	if (length > 6 && last[0] == '.' && !strcmp(last + length - 5, ".part"))
		pass_event(CREATE, 1);
	else if (!strcmp(last, open_name))
		pass_event(OPEN, 1);
}

int openat(int folder, const char *path, int flags, ...)
{
	NEXT("openat64", int, int, const char *, int, ...);
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	pass_open(path);
	return real(folder, path, flags, mode);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
	NEXT("pwrite64", ssize_t, int, const void *, size_t, off_t);
	pass_event(PWRITE, 1);
	return real(fd, bytes, length, offset);
}

int fsync(int fd)
{
	NEXT("fsync", int, int);
	int rc;

	pass_event(FSYNC, 1);
	rc = real(fd);
	pass_event(SYNCED, 1);
	return rc;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
	NEXT("renameat", int, int, const char *, int, const char *);
	int rc;

	pass_event(RENAME, 1);
	rc = real(from_folder, from, to_folder, to);
	pass_event(RENAMED, 1);
	return rc;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	NEXT("clock_gettime", int, clockid_t, struct timespec *);
	int rc = real(clock, now);

	if (rc == 0 && clock_offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *clock_offset;
	return rc;
}

time_t time(time_t *result)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &precise);
	*now = (struct timeval){ .tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000 };
	return 0;
}
