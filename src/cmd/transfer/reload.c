/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane serve --reload`: asks a running server to read its keys and lists again, and waits for the result.  A server
 * listens at an abstract Unix socket with its process id in the name.  A connection of its own user, or of root, is the
 * request; the server answers with one message.  The kernel tells each end who the other one is.
 *
 * The message is "0", or "1" and the texts of the error, each with its NUL: id, call, object, message, hint.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/transfer/serve.h"

#define ANSWER_MAX (1 + sizeof(struct pl_error))
#define ANSWER_SECONDS 30
#define BACKLOG 8

/* Fills the address of a server.  Returns its length. */
static socklen_t reload_address(struct sockaddr_un *address, pid_t process)
{
	int length;

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "peerlane/serve/%d", (int)process);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* -- server ------------------------------------------------------------------------------------------ */

int reload_listen(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t length = reload_address(&address, getpid());

	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	cli_warn("`peerlane serve --reload` cannot reach this server: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

static size_t encode_reload_answer(const struct pl_error *error, char answer[ANSWER_MAX])
{
	const char *const texts[] = { error->id, error->call, error->object, error->message, error->hint };
	size_t length = 1;

	answer[0] = error->code < 0 ? '1' : '0';
	for (size_t i = 0; error->code < 0 && i < CLI_ARRAY_SIZE(texts); i++) {
		strcpy(answer + length, texts[i]);
		length += strlen(texts[i]) + 1;
	}
	return length;
}

void reload_serve_request(struct serve *serve)
{
	int fd = accept4(serve->reload, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred other = { .uid = (uid_t)-1 };
	struct pl_error error = { .code = 0 };
	char answer[ANSWER_MAX];

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &(socklen_t){ sizeof(other) }) == 0 &&
	    (other.uid == geteuid() || other.uid == 0)) {
		serve_reload(serve, &error);
		/* Without room for the answer the other end learns that there is none. */
		if (send(fd, answer, encode_reload_answer(&error, answer), MSG_NOSIGNAL) < 0)
			cli_warn("the result of a reload cannot be sent: %s", strerror(errno));
	}
	close(fd);
}

/* -- `peerlane serve --reload` ------------------------------------------------------------------------- */

/* Reads a process id, or a file that has one.  Returns -EINVAL if there is none. */
static int find_server_process(const char *text, pid_t *process, struct pl_error *error)
{
	char line[32] = "", *end;
	long number;
	int fd;

	if (!isdigit((unsigned char)text[0])) {
		fd = open(text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			return cli_fail_errno(error, -errno, "open", text);
		if (read(fd, line, sizeof(line) - 1) < 0)
			line[0] = '\0';
		close(fd);
	} else {
		snprintf(line, sizeof(line), "%s", text);
	}
	number = strtol(line, &end, 10);
	if (end == line || (*end && *end != '\n') || number < 1 || number > INT32_MAX)
		return cli_fail(error, -EINVAL, "RELOAD-PROCESS", text, "give the process id, or the file of --pid-file",
				"there is no process id");
	*process = (pid_t)number;
	return 0;
}

static int connect_to_server(const char *text, pid_t process, struct pl_error *error)
{
	struct sockaddr_un address;
	socklen_t length = reload_address(&address, process);
	struct ucred other = { .pid = 0 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return cli_fail_errno(error, -errno, "socket", NULL);
	if (connect(fd, (struct sockaddr *)&address, length) < 0) {
		rc = cli_fail(error, -ESRCH, "RELOAD-NO-SERVER", text, "give the process id of a running `peerlane serve`",
			      "no server of this process id listens: %s", strerror(errno));
	} else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &(socklen_t){ sizeof(other) }) < 0 ||
		   other.pid != process || (other.uid != geteuid() && geteuid() != 0)) {
		rc = cli_fail(error, -EACCES, "RELOAD-FOREIGN", text, "run the command as the user of the server",
			      "another process or user listens in place of the server");
	} else {
		return fd;
	}
	close(fd);
	return rc;
}

static int take_answer_text(const char **at, const char *end, char *text, size_t size)
{
	size_t length = strnlen(*at, (size_t)(end - *at));

	if (*at + length == end || length >= size)
		return -EPROTO;
	memcpy(text, *at, length + 1);
	cli_printable(text, false);
	*at += length + 1;
	return 0;
}

static int decode_reload_answer(const char *answer, size_t length, struct pl_error *error)
{
	const char *at = answer + 1, *end = answer + length;
	int rc = length && (answer[0] == '0' || answer[0] == '1') ? 0 : -EPROTO;

	if (rc == 0 && answer[0] == '0' && length == 1)
		return 0;
	memset(error, 0, sizeof(*error));
	if (rc == 0 &&
	    (take_answer_text(&at, end, error->id, sizeof(error->id)) < 0 ||
	     take_answer_text(&at, end, error->call, sizeof(error->call)) < 0 ||
	     take_answer_text(&at, end, error->object, sizeof(error->object)) < 0 ||
	     take_answer_text(&at, end, error->message, sizeof(error->message)) < 0 ||
	     take_answer_text(&at, end, error->hint, sizeof(error->hint)) < 0 || at != end))
		rc = -EPROTO;
	error->code = -EINVAL;
	return rc == 0 ? error->code
		       : cli_fail(error, rc, "RELOAD-NO-ANSWER", NULL, "read the messages of the server",
				  "the server refused the request, or ended before it answered");
}

int reload_request(const char *text, struct pl_error *error)
{
	char answer[ANSWER_MAX];
	pid_t process = 0;
	ssize_t length;
	int rc = find_server_process(text, &process, error);

	if (rc == 0)
		rc = connect_to_server(text, process, error);
	if (rc < 0)
		return rc;
	length = cli_read_within(rc, answer, sizeof(answer), ANSWER_SECONDS * CLI_NS_PER_S);
	close(rc);
	if (length == -ETIMEDOUT)
		return cli_fail(error, -ETIMEDOUT, "RELOAD-NO-ANSWER", text, "read the messages of the server",
				"the server did not answer within %d s", ANSWER_SECONDS);
	return decode_reload_answer(answer, length > 0 ? (size_t)length : 0, error);
}
