/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/agent.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum command_type {
	COMMAND_ACCEPT = 1,
	COMMAND_FILL,
	COMMAND_MATCH,
	COMMAND_SEND,
	COMMAND_RECEIVE,
	COMMAND_WAIT,
	COMMAND_WRITE,
	COMMAND_REWRITE,
	COMMAND_REVOKE,
	COMMAND_STOP
};

struct command {
	enum command_type type;
	uint64_t first, second, third;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

struct served {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_operation *operation;
	struct buffer buffer;
};

/* Sends or receives a whole structure.  Returns false at the end of the socket pair. */
static bool send_struct(int fd, const void *data, size_t length)
{
	return send(fd, data, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static bool receive_struct(int fd, void *data, size_t length)
{
	return recv(fd, data, length, MSG_WAITALL) == (ssize_t)length;
}

static int64_t agent_run_command(struct served *served, const struct command *command)
{
	struct pl_operation **operation = &served->operation;
	struct pl_region *region = served->buffer.region;
	struct pl_error error;

	switch (command->type) {
	case COMMAND_ACCEPT:
		check_ok(pl_accept(served->listener, AMPLE_TIME, &served->peer, &error), &error);
		return 0;
	case COMMAND_FILL:
		pattern_fill(served->buffer.bytes, served->buffer.length, command->first, 0);
		return 0;
	case COMMAND_MATCH:
		return pattern_matches(served->buffer.bytes + command->second, command->third, command->first,
				       command->second);
	case COMMAND_SEND:
		check_ok(pl_send(served->peer, command->first, &(struct pl_buffer){ region, 0, command->second }, NULL,
				 operation, &error),
			 &error);
		return 0;
	case COMMAND_RECEIVE:
		check_ok(pl_receive(served->peer, command->first, UINT64_MAX,
				    &(struct pl_buffer){ region, 0, command->second }, NULL, operation, &error),
			 &error);
		return 0;
	case COMMAND_WAIT:
		return pl_wait(served->operation, UINT64_MAX, NULL, NULL);
	case COMMAND_WRITE:
		check_ok(pl_remote_import(served->peer, command->token, command->token_length, 0, &served->remote,
					  &error),
			 &error);
		check_ok(pl_write(served->peer, &(struct pl_transfer){ served->remote, 0, region, 0, command->first },
				  NULL, operation, &error),
			 &error);
		return 0;
	case COMMAND_REWRITE:
		return pl_write(served->peer, &(struct pl_transfer){ served->remote, 0, region, 0, command->first },
				NULL, operation, &error);
	case COMMAND_REVOKE:
		return pl_region_revoke(region, command->token, command->token_length);
	case COMMAND_STOP:
		return 0;
	}
	return -EINVAL;
}

static void agent_serve(int fd, const struct setting *setting, size_t size)
{
	struct agent self = { .token_length = PL_TOKEN_MAX };
	struct served served = { 0 };
	struct command command;
	struct pl_error error;

	served.context = context_open(setting);
	served.listener = listener_open(setting, served.context, self.address);
	buffer_open(&served.buffer, served.context, size, PL_ACCESS_ALL);
	check_ok(pl_region_share(served.buffer.region, NULL, self.token, &self.token_length, &error), &error);
	check(send_struct(fd, &self, sizeof(self)));
	while (receive_struct(fd, &command, sizeof(command))) {
		int64_t result = agent_run_command(&served, &command);

		check(send_struct(fd, &result, sizeof(result)));
		if (command.type == COMMAND_STOP)
			break;
	}
	pl_close(served.context);
	buffer_close_bare(&served.buffer);
}

void agent_fork(struct agent *agent, const struct setting *setting, size_t size, void (*prepare)(int fd))
{
	int pair[2];

	check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	*agent = (struct agent){ .fd = pair[0] };
	agent->pid = process_fork();
	if (agent->pid) {
		close(pair[1]);
		return;
	}
	close(pair[0]);
	if (prepare)
		prepare(pair[1]);
	agent_serve(pair[1], setting, size);
	exit(0);
}

void agent_ready(struct agent *agent)
{
	struct agent self;
	int status;

	/* An agent without the memory that it needs skips the case. */
	if (!receive_struct(agent->fd, &self, sizeof(self))) {
		status = process_wait(agent->pid);
		check(WIFEXITED(status));
		check_number(WEXITSTATUS(status), SKIPPED);
		exit(SKIPPED);
	}
	memcpy(agent->address, self.address, sizeof(self.address));
	memcpy(agent->token, self.token, sizeof(self.token));
	agent->token_length = self.token_length;
}

void agent_start(struct agent *agent, const struct setting *setting, size_t size)
{
	agent_fork(agent, setting, size, NULL);
	agent_ready(agent);
}

static int64_t send_command(struct agent *agent, const struct command *command)
{
	int64_t result;

	check(send_struct(agent->fd, command, sizeof(*command)));
	check(receive_struct(agent->fd, &result, sizeof(result)));
	return result;
}

void agent_stop(struct agent *agent)
{
	send_command(agent, &(struct command){ .type = COMMAND_STOP });
	check_number(process_wait(agent->pid), 0);
	close(agent->fd);
}

void agent_kill(struct agent *agent)
{
	process_kill(agent->pid, SIGKILL);
	close(agent->fd);
}

void agent_accept(struct agent *agent)
{
	send_command(agent, &(struct command){ .type = COMMAND_ACCEPT });
}

void agent_fill(struct agent *agent, uint64_t seed)
{
	send_command(agent, &(struct command){ .type = COMMAND_FILL, .first = seed });
}

bool agent_matches(struct agent *agent, uint64_t seed, uint64_t offset, uint64_t length)
{
	return send_command(
		agent, &(struct command){ .type = COMMAND_MATCH, .first = seed, .second = offset, .third = length });
}

void agent_send(struct agent *agent, uint64_t tag, uint64_t length)
{
	send_command(agent, &(struct command){ .type = COMMAND_SEND, .first = tag, .second = length });
}

void agent_receive(struct agent *agent, uint64_t tag, uint64_t length)
{
	send_command(agent, &(struct command){ .type = COMMAND_RECEIVE, .first = tag, .second = length });
}

int agent_wait(struct agent *agent)
{
	return (int)send_command(agent, &(struct command){ .type = COMMAND_WAIT });
}

void agent_write(struct agent *agent, const uint8_t *token, size_t token_length, uint64_t length)
{
	struct command command = { .type = COMMAND_WRITE, .first = length, .token_length = token_length };

	memcpy(command.token, token, token_length);
	send_command(agent, &command);
}

void agent_rewrite(struct agent *agent, uint64_t length)
{
	check_number(send_command(agent, &(struct command){ .type = COMMAND_REWRITE, .first = length }), 0);
}

void agent_revoke(struct agent *agent)
{
	struct command command = { .type = COMMAND_REVOKE, .token_length = agent->token_length };

	memcpy(command.token, agent->token, agent->token_length);
	check_number(send_command(agent, &command), 0);
}
