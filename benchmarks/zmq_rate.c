/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * zmq_rate BYTES SECONDS [QUEUE [BUFFERS]]: messages of libzmq's PUB/SUB over loopback tcp, from one process to another, next to
 * stream_rate. The publisher waits for room (ZMQ_XPUB_NODROP), so that no message is lost. It sends BUFFERS pieces of memory in turn,
 * as a ring of that many slots does, without a copy and without filling them; 1: the same memory each time, which stays in the
 * processor's cache. QUEUE: messages that each end keeps. Prints a JSON object.
 */
#include "support.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define LIMIT_MS 60000
#define WARM_UP 64u

struct run {
	size_t bytes;
	double seconds;
	int queue;
	unsigned buffers;
};

/* libzmq's functions fail with -1 or NULL, and a reason in errno. */
static void must(bool success, const char *call)
{
	if (success)
		return;
	fprintf(stderr, "%s: %s\n", call, zmq_strerror(zmq_errno()));
	exit(1);
}

static void *open_socket(void *context, int type, const struct run *run)
{
	void *socket = zmq_socket(context, type);
	int limit = LIMIT_MS;

	must(socket, "zmq_socket");
	must(!zmq_setsockopt(socket, ZMQ_SNDHWM, &run->queue, sizeof(run->queue)), "ZMQ_SNDHWM");
	must(!zmq_setsockopt(socket, ZMQ_RCVHWM, &run->queue, sizeof(run->queue)), "ZMQ_RCVHWM");
	must(!zmq_setsockopt(socket, ZMQ_SNDTIMEO, &limit, sizeof(limit)), "ZMQ_SNDTIMEO");
	must(!zmq_setsockopt(socket, ZMQ_RCVTIMEO, &limit, sizeof(limit)), "ZMQ_RCVTIMEO");
	return socket;
}

static void keep(void *data, void *hint)
{
	(void)data;
	(void)hint;
}

static void send_frame(void *socket, char *data, size_t length)
{
	zmq_msg_t message;

	must(!zmq_msg_init_data(&message, data, length, keep, NULL), "zmq_msg_init_data");
	must(zmq_msg_send(&message, socket, 0) >= 0, "zmq_msg_send");
}

/* Publishes for the time of the run; a message without bytes ends it. */
static void publish(const void *argument, int address_pipe)
{
	const struct run *run = argument;
	void *context = zmq_ctx_new(), *socket;
	char *data = malloc(run->buffers * run->bytes), address[96] = { 0 }, subscription[8];
	size_t length = sizeof(address);
	int yes = 1;
	uint64_t end;
	unsigned sent = 0;

	must(context && data, "zmq_ctx_new");
	/* Pages that were never written would all be one page of zeros. */
	memset(data, 1, run->buffers * run->bytes);
	socket = open_socket(context, ZMQ_XPUB, run);
	must(!zmq_setsockopt(socket, ZMQ_XPUB_NODROP, &yes, sizeof(yes)), "ZMQ_XPUB_NODROP");
	must(!zmq_bind(socket, "tcp://127.0.0.1:*"), "zmq_bind");
	must(!zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &length), "ZMQ_LAST_ENDPOINT");
	put(address_pipe, address, sizeof(address));
	must(zmq_recv(socket, subscription, sizeof(subscription), 0) >= 0, "zmq_recv");
	for (end = now_ns() + (uint64_t)(run->seconds * NS_PER_S); now_ns() < end;)
		send_frame(socket, data + sent++ % run->buffers * run->bytes, run->bytes);
	send_frame(socket, data, 0);
	zmq_close(socket);
	zmq_ctx_term(context);
	free(data);
}

static void subscribe(const void *argument, const char *address)
{
	const struct run *run = argument;
	void *context = zmq_ctx_new(), *socket = open_socket(context, ZMQ_SUB, run);
	uint64_t begin = 0, frames = 0, took;
	double rate;

	must(!zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0), "ZMQ_SUBSCRIBE");
	must(!zmq_connect(socket, address), "zmq_connect");
	for (unsigned taken = 0;; taken++) {
		zmq_msg_t message;
		size_t length;

		must(!zmq_msg_init(&message) && zmq_msg_recv(&message, socket, 0) >= 0, "zmq_msg_recv");
		length = zmq_msg_size(&message);
		zmq_msg_close(&message);
		if (length == 0)
			break;
		if (taken == WARM_UP)
			begin = now_ns();
		else if (taken > WARM_UP)
			frames++;
	}
	took = now_ns() - begin;
	must(frames, "no messages");
	rate = (double)frames * NS_PER_S / (double)took;
	printf("{\"frames_per_second\": %.0f, \"bytes_per_second\": %.0f}\n", rate, rate * (double)run->bytes);
	zmq_close(socket);
	zmq_ctx_term(context);
}

int main(int argc, char **argv)
{
	struct run run = { .queue = 8, .buffers = 16 };

	if (argc < 3) {
		fprintf(stderr, "usage: zmq_rate BYTES SECONDS [QUEUE [BUFFERS]]\n");
		return 2;
	}
	run.bytes = strtoull(argv[1], NULL, 10);
	run.seconds = strtod(argv[2], NULL);
	if (argc > 3)
		run.queue = atoi(argv[3]);
	if (argc > 4)
		run.buffers = (unsigned)atoi(argv[4]);
	if (!run.buffers) {
		fprintf(stderr, "zmq_rate: BUFFERS is at least 1\n");
		return 2;
	}
	return run_stream(&run, publish, subscribe);
}
