/* SPDX-License-Identifier: BSD-2-Clause */
/* Publishers for tests: of this process, for commands that subscribe; and of a child, for subscribers here. */
#ifndef TEST_PUBLISHING_H
#define TEST_PUBLISHING_H

#include <stdbool.h>
#include <sys/types.h>

#include <peerlane/stream.h>

/* Context of this process with a publisher, at an address of the loopback interface. */
struct publishing {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_publisher *publisher;
	char address[80];
};

void publishing_open(struct publishing *publishing, const char *name, const struct pl_publisher_options *options);
void publishing_close(struct publishing *publishing);

/* Child that publishes, or subscribes until it is killed. */
struct publishing_child {
	pid_t pid;
	int from, to; /* pipes: the child's address; a byte ends the child */
	char address[96];
};

/* Forks. The child calls run(), which never returns, and writes its address, of as many bytes, to the pipe `to`. */
void publishing_child_start(struct publishing_child *child, void (*run)(const void *argument, int to, int from),
			    const void *argument);
/* True in the child once the parent wants its end. */
bool publishing_child_is_told(int from);
/* Tells the child to end, and waits until it has. */
void publishing_child_end(struct publishing_child *child);

#endif
