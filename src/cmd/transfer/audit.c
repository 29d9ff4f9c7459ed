/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/audit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cmd/common/condition.h"
#include "cmd/transfer/audit_format.h"

#define JOURNAL_SOCKET "/run/systemd/journal/socket"
/* Bytes of lines that wait for the log. */
#define QUEUE_MAX (4u << 20)
/* Bytes from which a strict log drops lines of connections. */
#define STRICT_QUEUE_MAX (2 * QUEUE_MAX)
/* Time for the log to take a line at the end, and the number of such times while it takes lines. */
#define CLOSE_TIME (5 * CLI_NS_PER_S)
#define CLOSE_TIMES 12
#define RETRY_TIME CLI_NS_PER_S

struct queued_line {
	struct queued_line *next;
	size_t length, written;
	char text[];
};

struct audit {
	char *path;
	enum audit_format format;
	bool strict;
	pthread_t thread;
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t changed, idle;
	int fd;      /* the thread's, which writes without the lock */
	int next_fd; /* takes the place of `fd` before the next line; -1: none */
	struct queued_line *first, **last;
	size_t queued; /* bytes */
	uint64_t sequence, dropped;
	bool ending, failed;
};

/*
 * Opens a pipe only if a process reads it: the server must not wait for that, neither at its start nor when it opens the log again.  The
 * thread that writes may wait.
 */
static int open_log_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd >= 0)
		fcntl(fd, F_SETFL, O_APPEND);
	return fd;
}

static int open_journal(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -1;
	if (strlen(path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
	} else {
		strcpy(address.sun_path, path);
		if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
			return fd;
	}
	rc = errno;
	close(fd);
	errno = rc;
	return -1;
}

static bool write_line(int fd, struct queued_line *line)
{
	while (line->written < line->length) {
		ssize_t put = write(fd, line->text + line->written, line->length - line->written);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return false;
		line->written += (size_t)put;
	}
	return true;
}

/* Writes one line without the lock.  A line that cannot be written counts as dropped, or stays in a strict log. */
static void write_first_line(struct audit *audit)
{
	struct queued_line *line = audit->first;
	int fd = audit->fd, rc;
	bool written, complain;

	pthread_mutex_unlock(&audit->lock);
	written = write_line(fd, line);
	rc = errno;
	pthread_mutex_lock(&audit->lock);
	complain = !written && !audit->failed;
	audit->failed = !written;
	if (written || !audit->strict) {
		audit->first = line->next;
		if (!audit->first)
			audit->last = &audit->first;
		audit->queued -= line->length;
		audit->dropped += !written;
		free(line);
	}
	if (complain)
		cli_warn("the audit log %s cannot be written: %s", audit->path, strerror(rc));
}

/* Waits until the log may be tried again: after a while, or when it is another file.  The lock is held. */
static void wait_to_retry(struct audit *audit)
{
	uint64_t end = cli_now() + RETRY_TIME;

	while (audit->next_fd < 0 && cli_condition_wait(&audit->changed, &audit->lock, end))
		;
}

static void *write_lines(void *argument)
{
	struct audit *audit = argument;

	pthread_mutex_lock(&audit->lock);
	for (;;) {
		if (audit->next_fd >= 0) {
			close(audit->fd);
			audit->fd = audit->next_fd;
			audit->next_fd = -1;
			/* The old file may have the beginning of a line. */
			if (audit->first)
				audit->first->written = 0;
		}
		if (audit->first) {
			write_first_line(audit);
			if (audit->failed && audit->strict)
				wait_to_retry(audit);
			continue;
		}
		pthread_cond_broadcast(&audit->idle);
		if (audit->ending)
			break;
		pthread_cond_wait(&audit->changed, &audit->lock);
	}
	pthread_mutex_unlock(&audit->lock);
	return NULL;
}

int audit_open(struct audit **result, const struct audit_options *options, struct pl_error *error)
{
	const char *target = options->target;
	bool journal = !strcmp(target, "journal") || !strncmp(target, "journal=", 8);
	const char *path = !journal ? target : target[7] ? target + 8 : JOURNAL_SOCKET;
	struct audit *audit = calloc(1, sizeof(*audit));
	struct pl_error reason;
	int rc;

	*result = NULL;
	if (audit)
		audit->path = strdup(path);
	if (!audit || !audit->path) {
		free(audit);
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	audit->format = journal ? AUDIT_JOURNAL : options->json ? AUDIT_JSON : AUDIT_TEXT;
	audit->strict = options->strict;
	audit->fd = journal ? open_journal(path) : open_log_file(path);
	rc = audit->fd < 0 ? -errno : 0;
	audit->next_fd = -1;
	audit->last = &audit->first;
	pthread_mutex_init(&audit->lock, NULL);
	cli_condition_init(&audit->changed);
	cli_condition_init(&audit->idle);
	if (rc == 0)
		rc = -pthread_create(&audit->thread, NULL, write_lines, audit);
	if (rc == 0) {
		*result = audit;
		return 0;
	}
	if (audit->fd >= 0)
		close(audit->fd);
	free(audit->path);
	free(audit);
	cli_fail_new_path(&reason, rc, "open", path);
	if (rc == -ENXIO && !journal)
		return cli_fail(error, rc, "AUDIT-OPEN", path, "start the reader of the pipe first",
				"the audit log is a pipe that no process reads, or a device that is not there");
	return cli_fail(error, rc, "AUDIT-OPEN", path, journal ? "see whether systemd-journald runs" : reason.hint,
			"the audit log cannot be opened: %s", strerror(-rc));
}

bool audit_is_blocked(struct audit *audit)
{
	bool blocked;

	if (!audit || !audit->strict)
		return false;
	pthread_mutex_lock(&audit->lock);
	blocked = audit->failed || audit->queued >= QUEUE_MAX;
	pthread_mutex_unlock(&audit->lock);
	return blocked;
}

void audit_write(struct audit *audit, const struct audit_event *event)
{
	char text[AUDIT_LINE_MAX];
	struct queued_line *line;
	size_t length, limit;

	if (!audit)
		return;
	/* Requests under way when a strict log is blocked are few. */
	limit = !audit->strict ? QUEUE_MAX : event->connection ? STRICT_QUEUE_MAX : SIZE_MAX;
	pthread_mutex_lock(&audit->lock);
	length = audit_format(audit->format, event, ++audit->sequence, audit->dropped, text);
	line = audit->queued + length <= limit ? malloc(sizeof(*line) + length) : NULL;
	if (line) {
		line->next = NULL;
		line->written = 0;
		line->length = length;
		memcpy(line->text, text, length);
		*audit->last = line;
		audit->last = &line->next;
		audit->queued += length;
		audit->dropped = 0;
		pthread_cond_signal(&audit->changed);
	} else {
		audit->dropped++;
	}
	pthread_mutex_unlock(&audit->lock);
}

void audit_reopen(struct audit *audit)
{
	int fd;

	if (!audit || audit->format == AUDIT_JOURNAL)
		return;
	fd = open_log_file(audit->path);
	if (fd < 0) {
		cli_warn("the audit log %s cannot be opened again: %s", audit->path, strerror(errno));
		return;
	}
	pthread_mutex_lock(&audit->lock);
	if (audit->next_fd >= 0)
		close(audit->next_fd);
	audit->next_fd = fd;
	pthread_cond_signal(&audit->changed);
	pthread_mutex_unlock(&audit->lock);
}

/* Waits until all lines are written, as long as the log takes lines.  Returns true if none is left.  The lock is held. */
static bool wait_until_written(struct audit *audit)
{
	size_t before = SIZE_MAX;

	for (int i = 0; i < CLOSE_TIMES && audit->first && audit->queued < before; i++) {
		uint64_t end = cli_now() + CLOSE_TIME;

		before = audit->queued;
		while (audit->first && cli_condition_wait(&audit->idle, &audit->lock, end))
			;
	}
	return !audit->first;
}

void audit_close(struct audit *audit)
{
	bool written;

	if (!audit)
		return;
	pthread_mutex_lock(&audit->lock);
	audit->ending = true;
	pthread_cond_signal(&audit->changed);
	written = wait_until_written(audit);
	pthread_mutex_unlock(&audit->lock);
	if (!written) {
		/* The log's device does not take anything: the process ends without it. */
		cli_warn("the audit log %s takes no more lines; the last ones are lost", audit->path);
		pthread_detach(audit->thread);
		return;
	}
	pthread_join(audit->thread, NULL);
	close(audit->fd);
	pthread_mutex_destroy(&audit->lock);
	pthread_cond_destroy(&audit->changed);
	pthread_cond_destroy(&audit->idle);
	free(audit->path);
	free(audit);
}
