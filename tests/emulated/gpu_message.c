/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages from and to GPU memory. */
#include "emulated/gpu_ends.h"
#include "support/gpu.h"

/* Sends from GPU memory at the far end.  The device reads the bytes itself.  A small `tag` travels without a header. */
static void send_from(struct gpu_ends *ends, struct pl_region *region, uint64_t tag, size_t offset, size_t length)
{
	struct pl_operation *sending, *receiving;
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_completion receipt;
	struct pl_error error;

	direct.flags = PL_REQUIRE_DIRECT;
	memset(ends->host.bytes + MIB, 0, length);
	check_ok(pl_receive(ends->environment.near_peer, tag, UINT64_MAX,
			    &(struct pl_buffer){ ends->host.region, MIB, length }, NULL, &receiving, &error),
		 &error);
	check_ok(pl_send(ends->environment.far_peer, tag, &(struct pl_buffer){ region, offset, length }, &direct,
			 &sending, &error),
		 &error);
	check_ok(await(&ends->environment, sending, &receipt, &error), &error);
	check_number((receipt.bytes - receipt.bytes_staged), length);
	check_ok(await(&ends->environment, receiving, &receipt, &error), &error);
	check_number(receipt.bytes, length);
	check_number(emulated_copied(), 0);
	pattern_check(ends->host.bytes + MIB, length, 1, offset);
}

/* Receives into GPU memory, and checks the order, the bytes and the memory around them. */
static void receive_into(struct gpu_ends *ends, struct pl_region *region, const uint8_t *memory)
{
	enum { COUNT = 100, LENGTH = 40, STRIDE = 64 };
	struct pl_operation *operations[COUNT];
	uint8_t bytes[STRIDE];
	struct pl_error error;

	for (size_t i = 0; i < COUNT; i++)
		check_ok(pl_receive(ends->environment.far_peer, 0, 0, &(struct pl_buffer){ region, i * STRIDE, STRIDE },
				    NULL, &operations[i], &error),
			 &error);
	for (size_t i = 0; i < COUNT; i++)
		check_ok(pl_send_copy(ends->environment.near_peer, i, ends->host.bytes + i, LENGTH, NULL, NULL, &error),
			 &error);
	for (size_t i = 0; i < COUNT; i++) {
		struct pl_completion receipt;

		check_ok(await(&ends->environment, operations[i], &receipt, &error), &error);
		check_number(receipt.tag, i);
		check_number(receipt.bytes_staged, LENGTH);
		gpu_copy_out(memory + i * STRIDE, bytes, sizeof(bytes));
		pattern_check(bytes, LENGTH, 1, i);
		value_check(bytes + LENGTH, STRIDE - LENGTH, 0xa5);
	}
	collect(&ends->environment, ends->environment.near, (struct pl_completion[COUNT]){ 0 }, COUNT);
	emulated_copied();
}

void gpu_messages_case(struct gpu_ends *ends)
{
	static const size_t lengths[] = { 1, 8, 4096, PL_SEND_COPY_MAX };
	uint8_t *memory = gpu_allocate(MIB), *target = gpu_allocate(MIB);
	struct pl_region *region = gpu_ends_register(ends, memory, MIB),
			 *target_region = gpu_ends_register(ends, target, MIB);

	gpu_copy_in(memory, ends->host.bytes, MIB);
	emulated_copied();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		send_from(ends, region, 7, 100 * i, lengths[i]);
		send_from(ends, region, UINT64_MAX - 1, 100 * i + 3, lengths[i]);
	}
	emulated_check_registered(1);
	receive_into(ends, target_region, target);
	check_number(pl_region_deregister(region), 0);
	check_number(pl_region_deregister(target_region), 0);
	gpu_free(memory);
	gpu_free(target);
}
