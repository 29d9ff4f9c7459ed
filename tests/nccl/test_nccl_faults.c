/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that die, stand still, or say nothing for long, and what the others must be able to do meanwhile. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "end_buffer.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

/* A time limit that no case reaches: a call that waits for one hangs. */
#define FOR_EVER "86400"

/* -- processes that exchange messages on demand --------------------------------------------------- */

/* Process that connects both ways, and moves messages, whenever the first process asks for it. */
struct partner {
	struct end end;
	void *send, *receive;
	unsigned moved;
};

enum { DEMAND_CONNECTION = 'c', DEMAND_MESSAGES = 'm', DEMAND_END = 'e' };

static void partner_close(struct partner *partner)
{
	if (partner->send) {
		driver_close_send(&partner->end.driver, partner->send);
		driver_close_receive(&partner->end.driver, partner->receive);
	}
	partner->send = partner->receive = NULL;
}

static void partner_run(struct end *end)
{
	struct partner partner = { .end = *end };
	char demand = 0;

	driver_open(&partner.end.driver, 11);
	while (demand != DEMAND_END) {
		end_get(&partner.end, &demand, 1);
		if (demand == DEMAND_CONNECTION) {
			partner_close(&partner);
			partner.receive = end_receive_comm(&partner.end);
			partner.send = end_send_comm(&partner.end);
		} else if (demand == DEMAND_MESSAGES) {
			end_exchange(&partner.end, partner.send, partner.receive, partner.moved++, false);
		}
	}
	partner_close(&partner);
	driver_close(&partner.end.driver);
}

static void partner_demand(struct partner *partner, char demand)
{
	end_put(&partner->end, &demand, 1);
}

/* Connects as a communicator of the driver. */
static void partner_connect(struct partner *partner, const struct driver *driver)
{
	partner_demand(partner, DEMAND_CONNECTION);
	partner_close(partner);
	partner->end.driver = *driver;
	partner->send = end_send_comm(&partner->end);
	partner->receive = end_receive_comm(&partner->end);
}

static void partner_exchange(struct partner *partner)
{
	partner_demand(partner, DEMAND_MESSAGES);
	end_exchange(&partner->end, partner->send, partner->receive, partner->moved++, true);
}

static void partner_end(struct partner *partner)
{
	partner_demand(partner, DEMAND_END);
	partner_close(partner);
	check_number(process_wait(partner->end.other), 0);
}

/* -- a lost process ------------------------------------------------------------------------------- */

#define COMMS 8u /* each way */

/* Connections both ways, each with a buffer of MIDDLE bytes at each end. */
struct ways {
	struct driver *driver;
	uint8_t *data;
	void *sends[COMMS], *receives[COMMS], *from[COMMS], *to[COMMS];
};

static uint8_t *ways_from(const struct ways *ways, unsigned i)
{
	return ways->data + i * MIDDLE;
}

static uint8_t *ways_to(const struct ways *ways, unsigned i)
{
	return ways->data + (COMMS + i) * MIDDLE;
}

static void ways_open(struct ways *ways, struct end *end, bool first)
{
	ways->driver = &end->driver;
	ways->data = calloc(2 * COMMS, MIDDLE);
	check(ways->data);
	for (unsigned i = 0; i < COMMS; i++) {
		if (first)
			ways->sends[i] = end_send_comm(end);
		ways->receives[i] = end_receive_comm(end);
		if (!first)
			ways->sends[i] = end_send_comm(end);
		ways->from[i] = driver_register(ways->driver, ways->sends[i], ways_from(ways, i), MIDDLE);
		ways->to[i] = driver_register(ways->driver, ways->receives[i], ways_to(ways, i), MIDDLE);
	}
}

static void ways_close(struct ways *ways)
{
	for (unsigned i = 0; i < COMMS; i++) {
		driver_deregister(ways->driver, ways->sends[i], ways->from[i]);
		driver_deregister(ways->driver, ways->receives[i], ways->to[i]);
	}
	for (unsigned i = 0; i < COMMS; i++) {
		driver_close_send(ways->driver, ways->sends[i]);
		driver_close_receive(ways->driver, ways->receives[i]);
	}
	free(ways->data);
}

/* Odd connections have a request in flight. */
static void *ways_post(struct ways *ways, unsigned i)
{
	return driver_must_receive(ways->driver, ways->receives[i], ways_to(ways, i), MIDDLE, ways->to[i]);
}

static void killed_process(struct end *end)
{
	struct ways ways;

	driver_open(&end->driver, 11);
	ways_open(&ways, end, false);
	for (unsigned i = 1; i < COMMS; i += 2)
		ways_post(&ways, i);
	end_meet(end);
	pause();
}

/* Repeats a receive until it fails; those that are taken stay posted. Returns its result. */
static enum net_result receive_until_failure(struct ways *ways, unsigned i)
{
	struct patience patience;
	enum net_result rc;
	void *request;

	patience_begin(&patience, 30);
	while ((rc = driver_receive(ways->driver, ways->receives[i], ways_to(ways, i), MIDDLE, ways->to[i], &request)) ==
	       NET_SUCCESS)
		patience_wait(&patience);
	return rc;
}

static enum net_result send_until_failure(struct ways *ways, unsigned i)
{
	return driver_wait_refusal(ways->driver, ways->sends[i], ways_from(ways, i), MIDDLE, ways->from[i]);
}

/* Every connection with the lost process fails: those with requests in flight, and those without. */
static void check_all_fail(struct ways *ways, void *requests[COMMS])
{
	for (unsigned i = 0; i < COMMS; i++) {
		if (requests[i])
			check_number(driver_wait_failure(ways->driver, requests[i]), NET_REMOTE_ERROR);
		check_number(receive_until_failure(ways, i), NET_REMOTE_ERROR);
		check_number(send_until_failure(ways, i), NET_REMOTE_ERROR);
	}
}

/* Kills one of three processes. The other two go on, and a new communicator works. */
static void case_process_lost(void *fabric)
{
	void *requests[COMMS] = { NULL }, *communicator;
	struct partner other, late;
	struct ways ways;
	struct end end;

	use_fabric(fabric);
	end_start_child(&end, killed_process);
	end_start_child(&other.end, partner_run);
	end_start_child(&late.end, partner_run);
	other = (struct partner){ .end = other.end };
	late = (struct partner){ .end = late.end };
	driver_open(&end.driver, 11);
	ways_open(&ways, &end, true);
	partner_connect(&other, &end.driver);
	partner_exchange(&other);
	for (unsigned i = 1; i < COMMS; i += 2)
		requests[i] = ways_post(&ways, i);
	end_meet(&end);
	for (unsigned i = 1; i < COMMS; i += 2)
		driver_must_send(&end.driver, ways.sends[i], ways_from(&ways, i), MIDDLE, ways.from[i]);
	process_kill(end.other, SIGKILL);
	partner_exchange(&other);
	check_all_fail(&ways, requests);
	partner_exchange(&other);
	ways_close(&ways);
	partner_exchange(&other);
	communicator = end.driver.context;
	check_number(driver_init(&end.driver, &end.driver.context), NET_SUCCESS);
	partner_connect(&late, &end.driver);
	partner_exchange(&late);
	partner_exchange(&other);
	partner_connect(&other, &end.driver);
	partner_exchange(&other);
	partner_end(&late);
	partner_end(&other);
	check_number(driver_finalize(&end.driver, communicator), NET_SUCCESS);
	driver_close(&end.driver);
}

/* -- a stopped process ---------------------------------------------------------------------------- */

#define WINDOW 8u
#define STREAMED 20u /* messages each way before the process is stopped */
#define ROUNDS 2000u /* while it is */

/* Messages of MIDDLE bytes each way, of which up to WINDOW are in flight. */
struct flow {
	struct driver *driver;
	bool sends, pauses; /* pauses: takes no more messages */
	void *comm, *memory;
	uint8_t *data;
	void *requests[NET_REQUESTS_MAX];
	unsigned posted, done;
};

static void flow_open(struct flow *flow, struct end *end, bool sends)
{
	*flow = (struct flow){ .driver = &end->driver, .sends = sends };
	flow->comm = sends ? end_send_comm(end) : end_receive_comm(end);
	flow->data = malloc(LENGTH);
	check(flow->data);
	memset(flow->data, 0x11, LENGTH);
	flow->memory = driver_register(flow->driver, flow->comm, flow->data, LENGTH);
}

/* Makes one call of each kind, which may take or finish one message. */
static enum net_result flow_step(struct flow *flow)
{
	uint8_t *data = flow->data + flow->posted % WINDOW * MIDDLE;
	enum net_result rc = NET_SUCCESS;
	void *request = NULL;
	int done;

	if (!flow->pauses && flow->posted - flow->done < WINDOW)
		rc = flow->sends ? driver_send(flow->driver, flow->comm, data, MIDDLE, flow->memory, &request)
				 : driver_receive(flow->driver, flow->comm, data, MIDDLE, flow->memory, &request);
	if (rc == NET_SUCCESS && request)
		flow->requests[flow->posted++ % NET_REQUESTS_MAX] = request;
	if (rc != NET_SUCCESS || flow->done == flow->posted)
		return rc;
	rc = driver_test(flow->driver, flow->requests[flow->done % NET_REQUESTS_MAX], &done, NULL);
	flow->done += rc == NET_SUCCESS && done;
	return rc;
}

/* Streams until the other end closes. */
static void stopped_process(struct end *end)
{
	struct flow receives, sends;
	enum net_result sent = NET_SUCCESS, received = NET_SUCCESS;
	struct patience patience;

	driver_open(&end->driver, 11);
	flow_open(&receives, end, false);
	flow_open(&sends, end, true);
	/* A connection that this end never accepts. */
	end_begin_listening(end);
	end_meet(end);
	patience_begin(&patience, 60);
	while (sent == NET_SUCCESS || received == NET_SUCCESS) {
		if (sent == NET_SUCCESS)
			sent = flow_step(&sends);
		if (received == NET_SUCCESS)
			received = flow_step(&receives);
		patience_wait(&patience);
	}
	check_number(sent, NET_REMOTE_ERROR);
	check_number(received, NET_REMOTE_ERROR);
	driver_deregister(&end->driver, sends.comm, sends.memory);
	driver_deregister(&end->driver, receives.comm, receives.memory);
	driver_close_send(&end->driver, sends.comm);
	driver_close_receive(&end->driver, receives.comm);
	free(sends.data);
	free(receives.data);
	driver_close(&end->driver);
}

/* Every call of NCCL. None waits for the other process, or the case hangs. */
static void call_everything(struct flow *sends, struct flow *receives, uint8_t pending[NET_HANDLE_SIZE], unsigned round)
{
	static uint8_t more[8192];
	struct driver *driver = sends->driver;
	uint8_t handle[NET_HANDLE_SIZE];
	void *listener, *comm, *memory;

	check_number(flow_step(sends), NET_SUCCESS);
	check_number(flow_step(receives), NET_SUCCESS);
	check_number(driver_connect(driver, pending, &comm), NET_SUCCESS);
	check(!comm);
	if (round % 100)
		return;
	driver_listen(driver, handle, &listener);
	check_number(driver_accept(driver, listener, &comm), NET_SUCCESS);
	check(!comm);
	driver_close_listen(driver, listener);
	memory = driver_register(driver, sends->comm, more, sizeof(more));
	driver_deregister(driver, sends->comm, memory);
	memory = driver_register(driver, receives->comm, more, sizeof(more));
	driver_deregister(driver, receives->comm, memory);
}

static void check_untouched(const uint8_t *data, uint8_t value)
{
	for (size_t at = 0; at < LENGTH; at++)
		check(data[at] == value);
}

/* NCCL aborts: it deregisters memory of requests in flight, frees it, and closes. */
static void abort_flows(struct flow *sends, struct flow *receives)
{
	check(receives->done < receives->posted);
	driver_deregister(sends->driver, sends->comm, sends->memory);
	free(sends->data);
	driver_deregister(receives->driver, receives->comm, receives->memory);
	memset(receives->data, 0xcc, LENGTH);
	driver_close_send(sends->driver, sends->comm);
	driver_close_receive(receives->driver, receives->comm);
}

/* Moves messages both ways until so many more are done. */
static void flows_run(struct flow *sends, struct flow *receives, unsigned more)
{
	unsigned sent = sends->done + more, received = receives->done + more;
	struct patience patience;

	patience_begin(&patience, 60);
	while (sends->done < sent || receives->done < received) {
		check_number(flow_step(sends), NET_SUCCESS);
		check_number(flow_step(receives), NET_SUCCESS);
		patience_wait(&patience);
	}
}

static void flow_drain(struct flow *flow)
{
	struct patience patience;

	flow->pauses = true;
	patience_begin(&patience, 60);
	while (flow->done < flow->posted) {
		check_number(flow_step(flow), NET_SUCCESS);
		patience_wait(&patience);
	}
	flow->pauses = false;
}

/*
 * Stops the process. Over sockets it leaves sends in flight: those that it reads no more. By process_vm it copies nothing
 * at that time: nobody can take back a copy for which it is about to enter the kernel.
 */
static void stop_in_streams(pid_t process, const char *fabric, struct flow *sends, struct flow *receives)
{
	bool sockets = !strcmp(fabric, "tcp") || !strcmp(fabric, "denied");

	for (;;) {
		if (!strcmp(fabric, "local"))
			flow_drain(receives);
		process_stop(process);
		for (unsigned i = 0; i < 10 * WINDOW; i++) {
			check_number(flow_step(sends), NET_SUCCESS);
			sleep_ms(1);
		}
		if (!sockets || sends->done < sends->posted)
			return;
		check_number(kill(process, SIGCONT), 0);
		flows_run(sends, receives, 1);
	}
}

/* A process is stopped in the middle of streams both ways. Whatever the other one calls, it returns. */
static void case_process_stopped(void *fabric)
{
	uint8_t pending[NET_HANDLE_SIZE];
	struct flow sends, receives;
	struct end end;

	use_fabric(fabric);
	check_number(setenv("PEERLANE_KEEPALIVE", FOR_EVER, 1), 0);
	check_number(setenv("PEERLANE_CONNECT_TIMEOUT", FOR_EVER, 1), 0);
	check_number(setenv("PEERLANE_ACCEPT_TIMEOUT", FOR_EVER, 1), 0);
	end_start_child(&end, stopped_process);
	driver_open(&end.driver, 11);
	flow_open(&sends, &end, true);
	flow_open(&receives, &end, false);
	end_get(&end, pending, sizeof(pending));
	end_meet(&end);
	flows_run(&sends, &receives, STREAMED);
	stop_in_streams(end.other, fabric, &sends, &receives);
	for (unsigned round = 0; round < ROUNDS; round++)
		call_everything(&sends, &receives, pending, round);
	abort_flows(&sends, &receives);
	driver_close(&end.driver);
	check_untouched(receives.data, 0xcc);
	check_number(kill(end.other, SIGCONT), 0);
	check_number(process_wait(end.other), 0);
	check_untouched(receives.data, 0xcc);
	free(receives.data);
}

/* -- a silent process ----------------------------------------------------------------------------- */

/* The plugin is not called for longer than a silent host is given. */
static void case_idle(void *fabric)
{
	struct partner partner;
	struct driver driver;

	use_fabric(fabric);
	check_number(setenv("PEERLANE_KEEPALIVE", "1", 1), 0);
	end_start_child(&partner.end, partner_run);
	partner = (struct partner){ .end = partner.end };
	driver_open(&driver, 11);
	partner_connect(&partner, &driver);
	partner_exchange(&partner);
	sleep(4);
	partner_exchange(&partner);
	partner_end(&partner);
	driver_close(&driver);
}

#define FABRIC_CASES(fabric) \
	{ "process_lost_" fabric, case_process_lost, fabric, 60 }, \
		{ "process_stopped_" fabric, case_process_stopped, fabric, 60 }, \
	{ \
		"idle_" fabric, case_idle, fabric, 40 \
	}

int main(void)
{
	static const struct test_case cases[] = {
		FABRIC_CASES("tcp"),
		FABRIC_CASES("local"),
		FABRIC_CASES("denied"),
		FABRIC_CASES("verbs"),
	};

	return cases_run("nccl_faults", cases, sizeof(cases) / sizeof(cases[0]));
}
