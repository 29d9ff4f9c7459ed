/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two network namespaces of two processes, joined by a veth pair that can be taken down and can lose packets.  The
 * namespaces end with the processes.  Needs root; exits with 77 without.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/agent.h"
#include "support/cases.h"
#include "support/netns.h"

#define SIZE (32u << 20)

static const struct setting wired = { "wired", "tcp", "10.77.0.2", PL_PROGRESS_THREAD, 4, true, false, false, false };
static const struct setting sealed = { "sealed", "tcp", "10.77.0.2", PL_PROGRESS_THREAD, 2, true, true, false, false };

/* Moves the agent to its own namespace, then configures its end of the veth pair. */
static void plug_agent(int fd)
{
	char byte = 0;

	check(!unshare(CLONE_NEWNET));
	check_number(send(fd, &byte, 1, 0), 1);
	check_number(recv(fd, &byte, 1, 0), 1);
	check(command_run("ip addr add 10.77.0.2/24 dev pl1"));
	check(command_run("ip link set lo up"));
	check(command_run("ip link set pl1 up"));
}

struct wire {
	struct agent agent;
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
};

static void wire_open(struct wire *wire, const struct setting *setting, size_t size)
{
	struct pl_options options = setting_options(setting);
	char words[128], byte = 0;
	struct pl_error error;

	check(!unshare(CLONE_NEWNET));
	agent_fork(&wire->agent, setting, size, plug_agent);
	check_number(recv(wire->agent.fd, &byte, 1, 0), 1);
	snprintf(words, sizeof(words), "ip link add pl0 type veth peer name pl1 netns %d", (int)wire->agent.pid);
	check(command_run(words));
	check(command_run("ip addr add 10.77.0.1/24 dev pl0"));
	check(command_run("ip link set lo up"));
	check(command_run("ip link set pl0 up"));
	check_number(send(wire->agent.fd, &byte, 1, 0), 1);
	agent_ready(&wire->agent);
	options.keepalive = 2 * SECOND;
	wire->context = context_open_with(&options);
	check_ok(pl_connect(wire->context, wire->agent.address, 0, &wire->peer, &error), &error);
	agent_accept(&wire->agent);
	check_ok(pl_remote_import(wire->peer, wire->agent.token, wire->agent.token_length, 0, &wire->remote, &error),
		 &error);
	buffer_open(&wire->buffer, wire->context, size, PL_ACCESS_ALL);
}

static void wire_close(struct wire *wire)
{
	pl_remote_release(wire->remote);
	pl_peer_close(wire->peer);
	buffer_close(&wire->buffer);
	pl_close(wire->context);
}

/* Writes to the agent and reads back, `rounds` times. */
static void transfers_arrive(struct wire *wire, unsigned rounds, size_t size)
{
	struct pl_operation *operation;
	struct pl_error error;

	for (unsigned i = 0; i < rounds; i++) {
		pattern_fill(wire->buffer.bytes, size, i, 0);
		check_ok(pl_write(wire->peer, &(struct pl_transfer){ wire->remote, 0, wire->buffer.region, 0, size },
				  NULL, &operation, &error),
			 &error);
		check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
		check(agent_matches(&wire->agent, i, 0, size));
		memset(wire->buffer.bytes, POISON, size);
		check_ok(pl_read(wire->peer, &(struct pl_transfer){ wire->remote, 0, wire->buffer.region, 0, size },
				 NULL, &operation, &error),
			 &error);
		check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
		pattern_check(wire->buffer.bytes, size, i, 0);
	}
}

static void transfers(void *argument)
{
	const struct setting *setting = argument;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_error error;
	struct wire wire;

	wire_open(&wire, setting, SIZE);
	transfers_arrive(&wire, 3, SIZE);
	check_number(pl_peer_query(wire.peer, &info), 0);
	check(!strncmp(info.address, "10.77.0.2:", 10));
	check(!strncmp(info.local_address, "10.77.0.1:", 10));
	check(info.authenticated && info.encrypted == setting->encrypted);
	pl_remote_release(wire.remote);
	pl_peer_close(wire.peer);
	/* The agent's address needs a key, which this context does not have. */
	pl_close(wire.context);
	check_ok(pl_open(&wire.context, NULL, &error), &error);
	check_status(pl_connect(wire.context, wire.agent.address, 0, &wire.peer, &error), -EPERM, &error);
	check_status(pl_listen(wire.context, "10.77.0.1:0", &(struct pl_listener *){ NULL }, &error), -EPERM, &error);
	pl_close(wire.context);
	buffer_close_bare(&wire.buffer);
	agent_stop(&wire.agent);
}

/* Takes the link down during transfers: each operation ends by its deadline, and its buffer is free again. */
static void pulled(void *argument)
{
	enum { COUNT = 6 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operations[COUNT];
	struct pl_remote *remote;
	struct pl_error error;
	struct wire wire;
	uint64_t posted;

	wire_open(&wire, argument, 4 * SIZE);
	memset(wire.buffer.bytes, 1, wire.buffer.length);
	attributes.timeout = SECOND;
	posted = clock_now();
	for (unsigned i = 0; i < COUNT; i++) {
		struct pl_region *region = wire.buffer.region;

		check_ok((i % 2 ? pl_read : pl_write)(wire.peer,
						      &(struct pl_transfer){ wire.remote, 0, region, 0, 4 * SIZE },
						      &attributes, &operations[i], &error),
			 &error);
	}
	sleep_ms(10);
	check(command_run("ip link set pl0 down"));
	for (unsigned i = 0; i < COUNT; i++) {
		int status = pl_wait(operations[i], UINT64_MAX, NULL, &error);

		/* The first operations may be complete already; the last cannot be. */
		check_one_of(status, -ETIMEDOUT, -ECONNRESET, i < COUNT - 1 ? 0 : -ETIMEDOUT);
		if (status)
			check_status(status, status, &error);
	}
	check(clock_now() - posted < SECOND + SLACK);
	memset(wire.buffer.bytes, POISON, wire.buffer.length);
	/* The link's keepalive may have ended the peer already. */
	check_one_of(pl_remote_import(wire.peer, wire.agent.token, wire.agent.token_length, 200 * MS, &remote, &error),
		     -ETIMEDOUT, -ECONNRESET, -ENOTCONN);
	/* After the link is up again, no byte of an abandoned operation may arrive. */
	check(command_run("ip link set pl0 up"));
	sleep_ms(1000);
	value_check(wire.buffer.bytes, wire.buffer.length, POISON);
	agent_kill(&wire.agent);
	wire_close(&wire);
}

/* Takes the link of an idle connection down for good: the peer counts as lost after the keepalive time. */
static void pulled_for_good(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;
	struct wire wire;
	uint64_t pulled_at;

	wire_open(&wire, argument, 64);
	attributes.timeout = UINT64_MAX;
	check_ok(pl_receive(wire.peer, 1, 0, &(struct pl_buffer){ wire.buffer.region, 0, 64 }, &attributes, &operation,
			    &error),
		 &error);
	check(command_run("ip link set pl0 down"));
	pulled_at = clock_now();
	check_status(pl_wait(operation, UINT64_MAX, NULL, &error), -ECONNRESET, &error);
	check(clock_now() - pulled_at < 8 * SECOND + SLACK);
	agent_kill(&wire.agent);
	wire_close(&wire);
}

/* Returns the number of packets that the queue of this end dropped. */
static unsigned dropped(void)
{
	FILE *report = popen("tc -s qdisc show dev pl0", "r");
	unsigned count = 0;
	char line[256];

	check(report);
	while (fgets(line, sizeof(line), report)) {
		const char *word = strstr(line, "dropped ");

		if (word)
			count += (unsigned)strtoul(word + strlen("dropped "), NULL, 10);
	}
	pclose(report);
	return count;
}

static void packets_lost(void *argument)
{
	struct wire wire;

	wire_open(&wire, argument, SIZE);
	/* Without netem in the kernel, a queue too short for its rate drops packets of bursts. */
	if (!command_run("tc qdisc add dev pl0 root netem loss 1%") &&
	    !command_run("tc qdisc add dev pl0 root tbf rate 400mbit burst 64k limit 64k")) {
		puts("skipped: neither netem nor tbf here to lose packets");
		exit(SKIPPED);
	}
	transfers_arrive(&wire, 2, SIZE / 2);
	check(dropped() > 0);
	agent_stop(&wire.agent);
	wire_close(&wire);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "transfers", transfers, &wired, 15 },
		{ "transfers, encrypted", transfers, &sealed, 15 },
		{ "pulled", pulled, &wired, 15 },
		{ "pulled for good", pulled_for_good, &wired, 20 },
		{ "packets lost", packets_lost, &wired, 25 },
	};

	if (!netns_possible()) {
		puts("skipped: network namespaces cannot be made here (they need root and iproute2)");
		return SKIPPED;
	}
	return cases_run("network namespaces", cases, sizeof(cases) / sizeof(cases[0]));
}
