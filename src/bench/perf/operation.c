/* SPDX-License-Identifier: BSD-2-Clause */
/* Table of operations.  A new operation needs an entry in the table and a function that posts it. */
#include "bench/perf/operation.h"

#include <string.h>

#include "bench/perf/fast_loop.h"
#include "bench/perf/requests.h"
#include "bench/perf/run.h"
#include "bench/perf/sequential.h"

#define BENCH_KV_SIZES "4K,16K,64K,256K"
#define POST_FUNCTION static inline __attribute__((always_inline)) int

/* Fills the transfers of a vectored operation, whose messages are in successive slots. */
static const struct pl_transfer *fill_transfers(struct bench_endpoint *ep, const struct bench_request *request,
						uint32_t vector)
{
	const struct bench_connection *connection = &ep->connections[request->connection];
	uint64_t offset = request->remote, base = request->local - request->remote;
	struct pl_transfer *transfers = ep->pipeline.transfers;

	for (uint32_t i = 0; i < vector; i++) {
		transfers[i] = (struct pl_transfer){ connection->remote, offset, ep->local.region, base + offset,
						     ep->plan.size };
		offset += ep->layout.stride;
		if (offset == ep->layout.window)
			offset = 0;
	}
	return transfers;
}

POST_FUNCTION write_post(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
			 uint32_t vector, struct pl_error *error)
{
	const struct bench_connection *connection = &ep->connections[request->connection];
	const struct pl_attributes *attributes = &ep->pipeline.attributes;
	/* The receiver of a ping-pong polls the first slot. */
	uint64_t offset = ep->plan.latency ? 0 : request->remote;

	(void)number;
	if (vector > 1)
		return pl_writev(connection->peer, fill_transfers(ep, request, vector), vector, attributes, NULL,
				 error);
	return pl_write(
		connection->peer,
		&(struct pl_transfer){ connection->remote, offset, ep->local.region, request->local, ep->plan.size },
		attributes, NULL, error);
}
BENCH_DEFINE_FAST_LOOP(write, false)

POST_FUNCTION read_post(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
			uint32_t vector, struct pl_error *error)
{
	const struct bench_connection *connection = &ep->connections[request->connection];
	const struct pl_attributes *attributes = &ep->pipeline.attributes;

	(void)number;
	if (vector > 1)
		return pl_readv(connection->peer, fill_transfers(ep, request, vector), vector, attributes, NULL, error);
	return pl_read(connection->peer,
		       &(struct pl_transfer){ connection->remote, request->remote, ep->local.region, request->local,
					      ep->plan.size },
		       attributes, NULL, error);
}
BENCH_DEFINE_FAST_LOOP(read, false)

POST_FUNCTION send_post(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
			uint32_t vector, struct pl_error *error)
{
	(void)number;
	(void)vector;
	return pl_send(ep->connections[request->connection].peer, ep->tag,
		       &(struct pl_buffer){ ep->local.region, request->local, ep->plan.size }, &ep->pipeline.attributes,
		       NULL, error);
}
BENCH_DEFINE_FAST_LOOP(send, false)

POST_FUNCTION fetch_add_post(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
			     uint32_t vector, struct pl_error *error)
{
	const struct bench_connection *connection = &ep->connections[request->connection];

	(void)number;
	(void)vector;
	return pl_fetch_add(
		connection->peer,
		&(struct pl_atomic){ .remote = connection->remote, .remote_offset = request->remote, .operand = 1 },
		&ep->pipeline.attributes, NULL, error);
}
BENCH_DEFINE_FAST_LOOP(fetch_add, true)

POST_FUNCTION compare_swap_post(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number,
				uint32_t vector, struct pl_error *error)
{
	const struct bench_connection *connection = &ep->connections[request->connection];
	uint64_t value = ep->pipeline.expected[number];

	(void)vector;
	return pl_compare_swap(connection->peer,
			       &(struct pl_atomic){ .remote = connection->remote,
						    .remote_offset = request->remote,
						    .operand = value + 1,
						    .compare = value },
			       &ep->pipeline.attributes, NULL, error);
}
BENCH_DEFINE_FAST_LOOP(compare_swap, true)

static const struct bench_operation operations[] = {
	{
		.code = 1,
		.name = "write",
		.perftest_title = "RDMA_Write",
		.access = PL_ACCESS_WRITE,
		.pingpong = true,
		.vectors = true,
		.post = write_post,
		.fast_loop = write_fast_loop,
		.verify = bench_verify_arrived,
	},
	{
		.code = 2,
		.name = "read",
		.perftest_title = "RDMA_Read",
		.access = PL_ACCESS_READ,
		.reads = true,
		.vectors = true,
		.post = read_post,
		.fast_loop = read_fast_loop,
		.verify = bench_verify_read,
	},
	{
		.code = 3,
		.name = "send",
		.perftest_title = "Send",
		.access = PL_ACCESS_LOCAL,
		.needs_receive = true,
		.pingpong = true,
		.server_busy = true,
		.post = send_post,
		.fast_loop = send_fast_loop,
		.verify = bench_verify_arrived,
	},
	{
		.code = 4,
		.name = "fetch-add",
		.perftest_title = "Atomic",
		.size = sizeof(uint64_t),
		.access = PL_ACCESS_ATOMIC,
		.atomic = true,
		.post = fetch_add_post,
		.fast_loop = fetch_add_fast_loop,
		.verify = bench_verify_atomic,
	},
	{
		.code = 5,
		.name = "compare-swap",
		.perftest_title = "Atomic",
		.size = sizeof(uint64_t),
		.access = PL_ACCESS_ATOMIC,
		.atomic = true,
		.post = compare_swap_post,
		.fast_loop = compare_swap_fast_loop,
		.verify = bench_verify_atomic,
	},
	{
		.code = 6,
		.name = "register",
		.default_sizes = "4K,1M,64M",
		.access = PL_ACCESS_WRITE,
		.registers = true,
		.verify = bench_verify_arrived,
		.measure_once = bench_register_once,
		.default_count = 50,
	},
	{
		.code = 7,
		.name = "connect",
		.no_sizes = true,
		.access = PL_ACCESS_LOCAL,
		.connects = true,
		.server_busy = true,
		.verify = bench_verify_arrived,
		.measure_once = bench_connect_once,
		.default_count = 200,
	},
	{
		.code = BENCH_KV_READ,
		.name = "kv-read",
		.default_sizes = BENCH_KV_SIZES,
		.access = PL_ACCESS_READ,
		.reads = true,
		.scattered = true,
		.vectors = true,
		.server_busy = true,
		.post = bench_read_blocks,
		.verify = bench_verify_read,
	},
	{
		.code = BENCH_KV_WRITE,
		.name = "kv-write",
		.default_sizes = BENCH_KV_SIZES,
		.access = PL_ACCESS_WRITE,
		.scattered = true,
		.vectors = true,
		.server_busy = true,
		.post = bench_write_blocks,
		.verify = bench_verify_arrived,
	},
};

const struct bench_operation *bench_operation_by_name(const char *name)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(operations); i++)
		if (!operations[i].scattered && !strcmp(operations[i].name, name))
			return &operations[i];
	return NULL;
}

const struct bench_operation *bench_operation_by_code(unsigned code)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(operations); i++)
		if (operations[i].code == code)
			return &operations[i];
	return NULL;
}

const char *bench_operation_names(char *buffer, size_t size)
{
	size_t length = 0, count = 0;

	/* The operations of `peerlane bench kv` stand last. */
	while (count < CLI_ARRAY_SIZE(operations) && !operations[count].scattered)
		count++;
	buffer[0] = '\0';
	for (size_t i = 0; i < count && length < size; i++)
		length += (size_t)snprintf(buffer + length, size - length, "%s%s", operations[i].name,
					   i + 2 < count    ? ", "
					   : i + 2 == count ? " or "
							    : "");
	return buffer;
}
