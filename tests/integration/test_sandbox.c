/* SPDX-License-Identifier: BSD-2-Clause */
/* The sandbox of `peerlane serve`: files that it leaves, and those that it does not. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/transfer/serve.h"
#include "support/cases.h"
#include "support/check.h"

static char folder[] = "/tmp/test_sandbox.XXXXXX";

static void make(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	check(fd >= 0);
	close(fd);
}

static int try_open(const char *name, int flags)
{
	int fd = open(name, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int try_connect(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static void sandbox(void *argument)
{
	struct serve *serve = calloc(1, sizeof(*serve));
	char *paths[] = { (char *)(uintptr_t)"published", (char *)(uintptr_t)"one" };
	struct pl_error error;

	check(serve && chdir(argument) == 0);
	check(mkdir("published", 0700) == 0 && mkdir("upload", 0700) == 0 && mkdir("keys", 0700) == 0 &&
	      mkdir("logs", 0700) == 0);
	make("published/file");
	make("one");
	make("other");
	make("keys/key");
	make("upload/old");
	serve->paths = paths;
	serve->path_count = 2;
	serve->upload = "upload";
	serve->common.key_file = "keys/key";
	serve->audit_options.target = "logs/audit";
	serve->sandbox = SANDBOX_AUTO;
	check_ok(serve_enter_sandbox(serve, &error), &error);
	if (!serve->sandboxed) {
		fprintf(stderr, "the kernel has no Landlock\n");
		_exit(77);
	}
	check_number(try_open("published/file", O_RDONLY), 0);
	check_number(try_open("published/file", O_WRONLY), -EACCES);
	check_number(try_open("published/new", O_WRONLY | O_CREAT), -EACCES);
	check_number(try_open("one", O_RDONLY), 0);
	check_number(try_open("other", O_RDONLY), -EACCES);
	check_number(try_open("new", O_WRONLY | O_CREAT), -EACCES);
	check_number(try_open("keys/key", O_RDONLY), 0);
	check_number(try_open("keys/key", O_WRONLY), -EACCES);
	check_number(try_open("upload/new", O_RDWR | O_CREAT | O_TRUNC), 0);
	check_number(rename("upload/new", "upload/old"), 0);
	check_number(unlink("upload/old"), 0);
	check_number(mkdir("upload/below", 0700), 0);
	check_number(rmdir("upload/below"), 0);
	check_number(try_open("logs/audit", O_WRONLY | O_CREAT | O_APPEND), 0);
	check_number(try_open("/etc/passwd", O_RDONLY), 0);
	check_number(try_open("/dev/null", O_RDWR), 0);
	check_number(try_open("/proc/self/comm", O_WRONLY | O_CREAT | O_TRUNC), 0);
	check_number(try_open("/proc/1/comm", O_WRONLY), -EACCES);
	check_number(try_open("/root", O_RDONLY), -EACCES);
	check_one_of(try_connect(), -EACCES, -ECONNREFUSED); /* since version 4 of Landlock: -EACCES */
	free(serve);
}

int main(void)
{
	static const struct test_case cases[] = { { "sandbox", sandbox, folder, 20 } };
	char command[100];
	int status;

	/* The case runs in a process of its own, in the sandbox; this one removes its folder. */
	check(mkdtemp(folder));
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	status = cases_run("sandbox", cases, 1);
	return system(command) ? 1 : status;
}
