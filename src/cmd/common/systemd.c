/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Socket activation and notices of systemd, as sd_listen_fds(3) and sd_notify(3) document them.  Without libsystemd, which
 * would bring its own dependencies into the process of a server.
 */
#include "cmd/common/systemd.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define FIRST_FD 3

int systemd_listen_fd(void)
{
	const char *process = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	bool ours = process && count && strtol(process, NULL, 10) == getpid() && strtol(count, NULL, 10) >= 1;

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	if (!ours || fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return FIRST_FD;
}

void systemd_notify(const char *format, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = path ? strlen(path) : 0;
	va_list arguments;
	char text[512];
	int fd;

	if (length < 2 || length >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0'; /* abstract */
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		cli_warn("the service manager cannot be told: %s", strerror(errno));
	close(fd);
}

uint64_t systemd_watchdog(void)
{
	const char *microseconds = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");
	uint64_t interval;

	if (!microseconds || (process && strtol(process, NULL, 10) != getpid()))
		return 0;
	interval = strtoull(microseconds, NULL, 10);
	return interval > UINT64_MAX / 1000 ? 0 : interval * 1000;
}

bool systemd_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat status;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &status) == 0 &&
	       status.st_dev == device && status.st_ino == inode;
}
