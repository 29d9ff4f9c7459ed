/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * call_cost FABRIC SIZE COUNT [IN_FLIGHT]: nanoseconds of a write between two contexts of this process: one at a time, or
 * with IN_FLIGHT writes that pl_poll() collects. benchmarks/python_cost makes the same calls in Python.
 */
#include "support.h"

#define IN_FLIGHT_MAX 1024

struct pair {
	struct pl_context *near, *far;
	struct pl_listener *listener;
	struct pl_peer *peer, *other;
	struct pl_transfer transfer;
};

static void connect_pair(struct pair *pair, const char *fabric, size_t size)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_region *target;
	struct pl_error error;
	char address[80], token[PL_TOKEN_MAX];
	size_t length = sizeof(token);

	options.fabric = fabric;
	MUST(pl_open(&pair->near, &options, &error), &error);
	MUST(pl_open(&pair->far, &options, &error), &error);
	MUST(pl_listen(pair->far, "127.0.0.1:0", &pair->listener, &error), &error);
	pl_listener_address(pair->listener, address, sizeof(address));
	MUST(pl_connect(pair->near, address, 0, &pair->peer, &error), &error);
	MUST(pl_accept(pair->listener, 10 * NS_PER_S, &pair->other, &error), &error);
	MUST(pl_region_allocate(pair->far, size, PL_ACCESS_ALL, &target, &error), &error);
	MUST(pl_region_allocate(pair->near, size, PL_ACCESS_LOCAL, &pair->transfer.region, &error), &error);
	MUST(pl_region_share(target, NULL, token, &length, &error), &error);
	MUST(pl_remote_import(pair->peer, token, length, 0, &pair->transfer.remote, &error), &error);
	pair->transfer.length = size;
}

static void write_one(struct pair *pair)
{
	struct pl_operation *operation;
	struct pl_error error;

	MUST(pl_write(pair->peer, &pair->transfer, NULL, &operation, &error), &error);
	MUST(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

static void write_several(struct pair *pair, int count)
{
	struct pl_completion completions[IN_FLIGHT_MAX];
	struct pl_error error;

	for (int i = 0; i < count; i++)
		MUST(pl_write(pair->peer, &pair->transfer, NULL, NULL, &error), &error);
	for (int done = 0; done < count;) {
		int got = pl_poll(pair->near, completions, count);

		for (int i = 0; i < got; i++)
			MUST(completions[i].status, NULL);
		done += got;
	}
}

int main(int argc, char **argv)
{
	long size = argc > 2 ? atol(argv[2]) : 0, count = argc > 3 ? atol(argv[3]) : 0;
	int in_flight = argc > 4 ? atoi(argv[4]) : 1;
	struct pair pair = { 0 };
	uint64_t start;

	if (size < 1 || count < 1 || in_flight < 1 || in_flight > IN_FLIGHT_MAX) {
		fputs("usage: call_cost FABRIC SIZE COUNT [IN_FLIGHT]\n", stderr);
		return 2;
	}
	connect_pair(&pair, argv[1], (size_t)size);
	write_several(&pair, in_flight);
	start = now_ns();
	for (long i = 0; i < count; i += in_flight) {
		if (in_flight == 1)
			write_one(&pair);
		else
			write_several(&pair, in_flight);
	}
	printf("%.1f\n", (double)(now_ns() - start) / (double)count);
	pl_close(pair.near);
	pl_close(pair.far);
	return 0;
}
