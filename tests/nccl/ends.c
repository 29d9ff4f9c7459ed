/* SPDX-License-Identifier: BSD-2-Clause */
#include "ends.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"

void end_put(struct end *end, const void *data, size_t length)
{
	check_number(send(end->fd, data, length, MSG_NOSIGNAL), length);
}

void end_get(struct end *end, void *data, size_t length)
{
	check_number(recv(end->fd, data, length, MSG_WAITALL), length);
}

void end_meet(struct end *end)
{
	char byte = 1;

	end_put(end, &byte, 1);
	end_get(end, &byte, 1);
}

void *end_send_comm(struct end *end)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	void *comm = NULL;

	end_get(end, handle, sizeof(handle));
	patience_begin(&patience, 30);
	for (;;) {
		check_number(driver_connect(&end->driver, handle, &comm), NET_SUCCESS);
		if (comm)
			return comm;
		patience_wait(&patience);
	}
}

void *end_begin_listening(struct end *end)
{
	uint8_t handle[NET_HANDLE_SIZE];
	void *listener;

	driver_listen(&end->driver, handle, &listener);
	end_put(end, handle, sizeof(handle));
	return listener;
}

void *end_accept(struct end *end, void *listener)
{
	struct patience patience;
	void *comm = NULL;

	patience_begin(&patience, 30);
	for (;;) {
		check_number(driver_accept(&end->driver, listener, &comm), NET_SUCCESS);
		if (comm)
			break;
		patience_wait(&patience);
	}
	driver_close_listen(&end->driver, listener);
	return comm;
}

void *end_receive_comm(struct end *end)
{
	return end_accept(end, end_begin_listening(end));
}

void start_child(struct end *end, void (*run)(struct end *))
{
	int pair[2];
	pid_t child;

	check_number(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = process_fork();
	if (child == 0) {
		struct end other = { .fd = pair[1] };

		close(pair[0]);
		run(&other);
		_exit(0);
	}
	close(pair[1]);
	*end = (struct end){ .fd = pair[0], .other = child };
}
