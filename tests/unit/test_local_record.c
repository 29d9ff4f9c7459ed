/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes of the local fabric: layout of docs/protocol.md, and refusals of malformed bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/local/record.h"

static void test_records(void **state)
{
	static const uint8_t golden[LOCAL_RECORD] = { 0x50, 0x4c, 0x53, 0x31, 0x02, 0x00, 0x00, 0x00, 0x08, 0x07, 0x06,
						      0x05, 0x04, 0x03, 0x02, 0x01, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00,
						      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00 };
	struct local_record record = { .type = LOCAL_RECORD_MEMORY, .key = 0x0102030405060708, .size = 8192 };
	uint8_t bytes[LOCAL_RECORD];

	(void)state;
	local_record_encode(&record, bytes);
	assert_memory_equal(bytes, golden, sizeof(golden));
	record = (struct local_record){ 0 };
	assert_int_equal(local_record_decode(bytes, &record), 0);
	assert_int_equal(record.type, LOCAL_RECORD_MEMORY);
	assert_true(record.key == 0x0102030405060708 && record.size == 8192);
	/* Flips the high bit of each byte. Only the key and the low seven bytes of the size may take any value. */
	for (unsigned i = 0; i < LOCAL_RECORD; i++) {
		bool free_to_choose = i >= 8 && i < 23;

		memcpy(bytes, golden, sizeof(bytes));
		bytes[i] ^= 0x80;
		assert_int_equal(local_record_decode(bytes, &record), free_to_choose ? 0 : -EPROTO);
	}
	memcpy(bytes, golden, sizeof(bytes));
	bytes[17] = 0;
	assert_int_equal(local_record_decode(bytes, &record), -EPROTO);
	memcpy(bytes, golden, sizeof(bytes));
	bytes[4] = 0;
	assert_int_equal(local_record_decode(bytes, &record), -EPROTO);
}

/* Checks the number of descriptors: 1 to LOCAL_FDS_PER_KEY in PARTS records, 0 in others. */
static void test_descriptor_count(void **state)
{
	struct local_record record = { .type = LOCAL_RECORD_FDS, .fds = LOCAL_FDS_PER_KEY, .key = 1, .size = 2 << 20 };
	uint8_t bytes[LOCAL_RECORD];

	(void)state;
	local_record_encode(&record, bytes);
	record = (struct local_record){ 0 };
	assert_int_equal(local_record_decode(bytes, &record), 0);
	assert_true(record.type == LOCAL_RECORD_FDS && record.fds == LOCAL_FDS_PER_KEY && record.size == 2 << 20);
	for (unsigned count = 0; count <= UINT16_MAX; count += 1 + count / 64) {
		record.fds = (uint16_t)count;
		local_record_encode(&record, bytes);
		assert_int_equal(local_record_decode(bytes, &record),
				 count && count <= LOCAL_FDS_PER_KEY ? 0 : -EPROTO);
	}
}

static void test_key_bytes(void **state)
{
	struct local_key key = { .id = 0x1122334455667788,
				 .paths = LOCAL_PATH_PROCESS,
				 .gate = 7,
				 .number = 0x11223345,
				 .address = 0x7fffdeadbeef,
				 .expires = UINT64_MAX };
	struct local_key again;
	uint8_t bytes[PL_KEY_BLOB_MAX];

	(void)state;
	assert_int_equal(local_key_encode(&key, bytes), LOCAL_KEY);
	/* The key of each fabric begins with its id. */
	assert_memory_equal(bytes, "\x88\x77\x66\x55\x44\x33\x22\x11\x04", 9);
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY, &again), 0);
	assert_true(again.id == key.id && again.paths == key.paths && again.gate == key.gate);
	assert_true(again.number == key.number && again.address == key.address && again.expires == key.expires);
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY - 1, &again), -EPROTO);
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY + 1, &again), -EPROTO);
	assert_int_equal(local_key_decode(bytes, 0, &again), -EPROTO);
	/* The data for device memory follows. */
	key.paths = LOCAL_PATH_STAGED | LOCAL_PATH_DEVICE;
	key.ipc_handle_length = sizeof(key.ipc_handle);
	memset(key.ipc_handle, 7, sizeof(key.ipc_handle));
	assert_int_equal(local_key_encode(&key, bytes), LOCAL_KEY + sizeof(key.ipc_handle));
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY + sizeof(key.ipc_handle), &again), 0);
	assert_int_equal(again.ipc_handle_length, sizeof(key.ipc_handle));
	assert_memory_equal(again.ipc_handle, key.ipc_handle, sizeof(key.ipc_handle));
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY, &again), -EPROTO);
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY + sizeof(key.ipc_handle) - 1, &again), -EPROTO);
	bytes[LOCAL_KEY - 4]++;
	assert_int_equal(local_key_decode(bytes, LOCAL_KEY + sizeof(key.ipc_handle) + 1, &again), -EPROTO);
}

static void test_invitations(void **state)
{
	struct local_invitation invitation = { .name = "0123456789abcde", .process_namespace = 1, .user_namespace = 2 };
	struct local_invitation again;
	uint8_t bytes[LOCAL_INVITATION + 1];

	(void)state;
	local_invitation_encode(&invitation, bytes);
	assert_int_equal(local_invitation_decode(bytes, LOCAL_INVITATION, &again), 0);
	assert_memory_equal(again.name, invitation.name, sizeof(again.name));
	assert_true(again.process_namespace == 1 && again.user_namespace == 2);
	/* The invitation of an acceptor ends with the data for its lanes. */
	assert_int_equal(local_invitation_decode(bytes, LOCAL_INVITATION + 1, &again), 0);
	assert_int_equal(local_invitation_decode(bytes, LOCAL_INVITATION - 1, &again), -EPROTO);
	bytes[0] = LOCAL_VERSION + 1;
	assert_int_equal(local_invitation_decode(bytes, LOCAL_INVITATION, &again), -EPROTO);
}

static void test_copy_requests(void **state)
{
	static const uint8_t golden[LOCAL_COPY_HEADER + 3 + LOCAL_COPY_RANGE] = { 3, 0, 1, 0, 'k', 'e', 'y', 1, 0, 0,
										  0, 0, 0, 0, 0,   2,   0,   0, 0, 0,
										  0, 0, 0, 3, 0,   0,   0,   0, 0, 0,
										  0, 4, 0, 0, 0,   0,   0,   0, 0 };
	static struct local_copy_request request, again;
	static uint8_t bytes[PL_FRAME_SMALL_MAX + 1];
	size_t length;

	(void)state;
	request.key_length = 3;
	memcpy(request.key, "key", 3);
	request.count = 1;
	request.ranges[0] = (struct local_copy_range){ 1, 2, 3, 4 };
	assert_int_equal(local_copy_request_encode(&request, bytes), sizeof(golden));
	assert_memory_equal(bytes, golden, sizeof(golden));
	for (length = 0; length <= sizeof(golden) + 1; length++)
		assert_int_equal(local_copy_request_decode(bytes, length, &again),
				 length == sizeof(golden) ? 0 : -EPROTO);
	assert_memory_equal(again.ranges, request.ranges, sizeof(request.ranges[0]));
	/* The largest request fits into a frame. */
	request.key_length = PL_KEY_BLOB_MAX;
	request.count = LOCAL_COPY_RANGES;
	length = local_copy_request_encode(&request, bytes);
	assert_true(length <= PL_FRAME_SMALL_MAX);
	assert_int_equal(local_copy_request_decode(bytes, length, &again), 0);
	bytes[0] = PL_KEY_BLOB_MAX + 1;
	assert_int_equal(local_copy_request_decode(bytes, length + 1, &again), -EPROTO);
	bytes[0] = PL_KEY_BLOB_MAX;
	bytes[2] = 0;
	assert_int_equal(local_copy_request_decode(bytes, LOCAL_COPY_HEADER + PL_KEY_BLOB_MAX, &again), -EPROTO);
	bytes[2] = LOCAL_COPY_RANGES + 1;
	assert_int_equal(local_copy_request_decode(bytes, length + LOCAL_COPY_RANGE, &again), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records),       cmocka_unit_test(test_descriptor_count),
		cmocka_unit_test(test_key_bytes),     cmocka_unit_test(test_invitations),
		cmocka_unit_test(test_copy_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
