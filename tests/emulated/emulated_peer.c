/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Test of the library between two machines, one with the emulated GPU:
 *
 *     emulated_peer far ADDRESS               listens; writes, sends and reads memory that the other end shares
 *     emulated_peer near ADDRESS PATH         registers GPU memory, whose access path must be PATH: dmabuf, address or
 *                                             staged
 *     emulated_peer freed ADDRESS PATH lost|kept
 *                                             frees registered memory; later writes are denied (lost), or reach memory
 *                                             that no other allocation has (kept)
 */
#include <stdio.h>
#include <stdlib.h>

#include "emulated/emulated.h"
#include "peermem/rig.h"
#include "support/check.h"
#include "support/gpu.h"

#define MIB ((size_t)1 << 20)
/* Ranges of the GPU region: the far end writes, sends and later writes again; this end reads. */
#define LENGTH (4 * MIB)
#define WRITTEN MIB
#define SENT 4096
#define SENT_LENGTH 200000 /* longer than messages that are copied through buffers */
#define SENT_AT (2 * MIB + 100)
#define AGAIN 8192
#define AGAIN_LENGTH 4096
#define READ_AT (3 * MIB - 50)
#define READ_LENGTH 300000

enum { TAG_TOKEN = 1, TAG_SENT, TAG_WORD };

struct end {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *words; /* memory for arriving messages */
};

static void end_open(struct end *end)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	options.fabric = "verbs";
	options.insecure = true;
	check_ok(pl_open(&end->context, &options, &error), &error);
	check_ok(pl_region_allocate(end->context, 4096, PL_ACCESS_LOCAL, &end->words, &error), &error);
}

static struct pl_completion wait_completed(struct pl_operation *operation)
{
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	return receipt;
}

static void end_send_bytes(struct end *end, uint64_t tag, const void *data, size_t length)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(end->peer, tag, data, length, NULL, &operation, &error), &error);
	wait_completed(operation);
}

/* Receives a message, appends a NUL and returns its length. */
static size_t end_receive_bytes(struct end *end, uint64_t tag)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_receive(end->peer, tag, UINT64_MAX, &(struct pl_buffer){ end->words, 0, 4000 }, NULL, &operation,
			    &error),
		 &error);
	receipt = wait_completed(operation);
	((char *)pl_region_address(end->words))[receipt.bytes] = '\0';
	return receipt.bytes;
}

static const char *receive_word(struct end *end)
{
	end_receive_bytes(end, TAG_WORD);
	return pl_region_address(end->words);
}

static void send_word(struct end *end, const char *word)
{
	end_send_bytes(end, TAG_WORD, word, strlen(word));
}

static void send_token(struct end *end, struct pl_region *region)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(region, NULL, token, &length, &error), &error);
	end_send_bytes(end, TAG_TOKEN, token, length);
}

static int import_received_token(struct end *end, struct pl_remote **remote, struct pl_error *error)
{
	size_t length = end_receive_bytes(end, TAG_TOKEN);

	return pl_remote_import(end->peer, pl_region_address(end->words), length, 0, remote, error);
}

/* -- the far end ---------------------------------------------------------------------------------------- */

static void check_direct(const struct pl_completion *receipt, uint64_t bytes)
{
	check_text(receipt->fabric, "verbs");
	check_number(receipt->route, PL_ROUTE_DIRECT);
	check_number((receipt->bytes - receipt->bytes_staged), bytes);
	check_number(receipt->bytes_staged, 0);
}

static void write_send_read(struct end *end, struct pl_remote *remote, struct pl_region *from, struct pl_region *into)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(pl_write(end->peer, &(struct pl_transfer){ remote, 0, from, 0, WRITTEN }, &direct, &operation, &error),
		 &error);
	receipt = wait_completed(operation);
	check_direct(&receipt, WRITTEN);
	check_ok(pl_send(end->peer, TAG_SENT, &(struct pl_buffer){ from, SENT, SENT_LENGTH }, NULL, &operation, &error),
		 &error);
	wait_completed(operation);
	check_ok(pl_read(end->peer, &(struct pl_transfer){ remote, 0, into, 0, WRITTEN }, &direct, &operation, &error),
		 &error);
	receipt = wait_completed(operation);
	check_direct(&receipt, WRITTEN);
	check(!memcmp(pl_region_address(into), pl_region_address(from), WRITTEN));
}

static int write_again(struct end *end, struct pl_remote *remote, struct pl_region *from, struct pl_error *error)
{
	struct pl_operation *operation;
	int rc = pl_write(end->peer, &(struct pl_transfer){ remote, 0, from, AGAIN, AGAIN_LENGTH }, NULL, &operation,
			  error);

	return rc < 0 ? rc : pl_wait(operation, UINT64_MAX, NULL, error);
}

static void run_far_end(const char *address)
{
	struct pl_listener *listener;
	struct pl_remote *remote = NULL;
	struct pl_region *from, *into;
	struct pl_error error;
	struct end end;
	uint8_t *bytes;

	end_open(&end);
	check_ok(pl_region_allocate(end.context, WRITTEN, PL_ACCESS_ALL, &from, &error), &error);
	check_ok(pl_region_allocate(end.context, WRITTEN, PL_ACCESS_ALL, &into, &error), &error);
	bytes = pl_region_address(from);
	for (size_t i = 0; i < WRITTEN; i++)
		bytes[i] = rig_pattern(i);
	check_ok(pl_listen(end.context, address, &listener, &error), &error);
	check_ok(pl_accept(listener, UINT64_MAX, &end.peer, &error), &error);
	send_token(&end, from);
	if (import_received_token(&end, &remote, &error) < 0) {
		send_word(&end, error.id);
	} else {
		write_send_read(&end, remote, from, into);
		send_word(&end, "done");
	}
	while (strcmp(receive_word(&end), "end")) {
		int rc = write_again(&end, remote, from, &error);

		printf("written again: %s\n", rc < 0 ? error.id : "no error");
		send_word(&end, rc < 0 ? error.id : "written");
	}
	pl_close(end.context);
}

/* -- the end with the GPU ------------------------------------------------------------------------------- */

static void connect_far(struct end *end, const char *address, struct pl_remote **remote)
{
	struct pl_error error;

	end_open(end);
	check_ok(pl_connect(end->context, address, 0, &end->peer, &error), &error);
	check_ok(import_received_token(end, remote, &error), &error);
}

static void check_pattern(const uint8_t *memory, uint64_t first, size_t length)
{
	uint8_t *copy = malloc(length);

	check(copy);
	gpu_copy_out(memory, copy, length);
	for (size_t i = 0; i < length; i++)
		check_number(copy[i], rig_pattern(first + i));
	free(copy);
}

/* Overwrites the far end's region with bytes of the GPU, then reads part of it into the GPU. */
static void use_far(struct end *end, struct pl_remote *remote, struct pl_region *region, struct pl_completion *receipts)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(end->peer, &(struct pl_transfer){ remote, 0, region, 0, WRITTEN }, NULL, &operation, &error),
		 &error);
	receipts[0] = wait_completed(operation);
	check_ok(pl_read(end->peer, &(struct pl_transfer){ remote, 33, region, READ_AT, READ_LENGTH }, NULL, &operation,
			 &error),
		 &error);
	receipts[1] = wait_completed(operation);
	for (int i = 0; i < 2; i++)
		printf("%s %llu bytes, %llu staged: %s\n", i ? "read" : "wrote", (unsigned long long)receipts[i].bytes,
		       (unsigned long long)receipts[i].bytes_staged, receipts[i].reason);
}

static void near_direct(struct end *end, struct pl_remote *remote, struct pl_region *region, uint8_t *memory)
{
	struct pl_operation *operation;
	struct pl_completion receipts[2];
	struct pl_error error;

	check_ok(pl_receive(end->peer, TAG_SENT, UINT64_MAX, &(struct pl_buffer){ region, SENT_AT, SENT_LENGTH }, NULL,
			    &operation, &error),
		 &error);
	send_token(end, region);
	receipts[0] = wait_completed(operation);
	check_direct(&receipts[0], SENT_LENGTH);
	check_text(receive_word(end), "done");
	use_far(end, remote, region, receipts);
	check_direct(&receipts[0], WRITTEN);
	check_direct(&receipts[1], READ_LENGTH);
	/* The first registration serves the far end's operations, the second serves this end's. */
	emulated_check_registered(2);
	/* No copy of the bytes was in host memory, and no staging buffer exists. */
	check_number(emulated_copied(), 0);
	check_number(emulated_locked(), 0);
	check_pattern(memory, 0, WRITTEN);
	check_pattern(memory + SENT_AT, SENT, SENT_LENGTH);
	check_pattern(memory + READ_AT, 33, READ_LENGTH);
	emulated_holds(memory, 0, WRITTEN);
	emulated_holds(memory + SENT_AT, SENT, SENT_LENGTH);
	emulated_holds(memory + READ_AT, 33, READ_LENGTH);
}

/* Uses memory that the far end cannot reach: this end's operations are staged. */
static void near_staged(struct end *end, struct pl_remote *remote, struct pl_region *region, uint8_t *memory)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_completion receipts[2];
	struct pl_error error;
	uint8_t *bytes = malloc(WRITTEN);

	check(bytes);
	for (size_t i = 0; i < WRITTEN; i++)
		bytes[i] = rig_pattern(i);
	gpu_copy_in(memory, bytes, WRITTEN);
	free(bytes);
	send_token(end, region);
	printf("the far end's import: %s\n", receive_word(end));
	check(strcmp(pl_region_address(end->words), "done"));
	emulated_copied();
	use_far(end, remote, region, receipts);
	for (int i = 0; i < 2; i++) {
		check_number(receipts[i].route, PL_ROUTE_STAGED);
		check_number(receipts[i].bytes_staged, receipts[i].bytes);
		check(strstr(receipts[i].reason, "no peer memory module is loaded"));
	}
	check_number(emulated_copied(), WRITTEN + READ_LENGTH);
	check_pattern(memory + READ_AT, 33, READ_LENGTH);
	emulated_holds(memory + READ_AT, 33, READ_LENGTH);
	direct.flags = PL_REQUIRE_DIRECT;
	check_ok(pl_write(end->peer, &(struct pl_transfer){ remote, 0, region, 0, WRITTEN }, &direct, &operation,
			  &error),
		 &error);
	check_status(pl_wait(operation, UINT64_MAX, NULL, &error), -ENOTSUP, &error);
	check_text(error.id, "NOT-DIRECT");
}

static void run_near_end(const char *address)
{
	uint8_t *memory = gpu_allocate(LENGTH);
	struct pl_remote *remote;
	struct pl_region *region;
	struct pl_error error;
	struct end end;

	connect_far(&end, address, &remote);
	check_ok(pl_region_register(end.context, memory, LENGTH, PL_ACCESS_ALL, &region, &error), &error);
	check_text(pl_region_memory(region), "cuda");
	emulated_copied();
	if (emulated_chosen_path == PATH_STAGED)
		near_staged(&end, remote, region, memory);
	else
		near_direct(&end, remote, region, memory);
	send_word(&end, "end");
	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	pl_close(end.context);
	gpu_free(memory);
}

/* Checks that the far end cannot reach memory allocated after the other memory was freed. */
static void check_others(struct end *end, bool kept)
{
	static uint8_t copy[LENGTH];
	uint8_t *other = gpu_allocate(LENGTH);

	send_word(end, "again");
	if (kept)
		check_text(receive_word(end), "written");
	else
		check(strcmp(receive_word(end), "written"));
	gpu_copy_out(other, copy, LENGTH);
	for (size_t i = 0; i < LENGTH; i++)
		check_number(copy[i], 0xa5);
	gpu_free(other);
}

static void run_freed(const char *address, bool kept)
{
	uint8_t *memory = gpu_allocate(LENGTH);
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_region *region;
	struct pl_error error;
	struct end end;

	connect_far(&end, address, &remote);
	check_ok(pl_region_register(end.context, memory, LENGTH, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_receive(end.peer, TAG_SENT, UINT64_MAX, &(struct pl_buffer){ region, SENT_AT, SENT_LENGTH }, NULL,
			    &operation, &error),
		 &error);
	send_token(&end, region);
	wait_completed(operation);
	check_text(receive_word(&end), "done");
	emulated_check_registered(2);
	gpu_free(memory);
	emulated_check_registered(kept ? 2 : 0);
	check_others(&end, kept);
	send_word(&end, "end");
	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	pl_close(end.context);
}

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count == 3 && !strcmp(arguments[1], "far")) {
		run_far_end(arguments[2]);
		return 0;
	}
	if (count < 4)
		return 2;
	emulated_open(arguments[3]);
	if (!strcmp(arguments[1], "near"))
		run_near_end(arguments[2]);
	else if (!strcmp(arguments[1], "freed") && count == 5)
		run_freed(arguments[2], !strcmp(arguments[4], "kept"));
	else
		return 2;
	return 0;
}
