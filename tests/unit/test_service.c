/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of `peerlane serve`: limits of each value, and refusal of what lies behind a limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The library does not contain this part of the command. */
#include "cmd/transfer/service.c"
#include "cmd/transfer/service_client.c"

#include "base/base.h"

#define HEADER_TYPE 6
#define STATUS_AT 12
/* First byte of the fields behind the header. */
#define FIELDS HEADER

struct encoded {
	uint8_t bytes[SERVICE_ANSWER_MAX];
	size_t length;
};

static struct encoded encode_message(const struct service_message *message)
{
	struct encoded encoded;
	int length = service_encode(message, encoded.bytes, sizeof(encoded.bytes));

	assert_true(length > 0);
	encoded.length = (size_t)length;
	return encoded;
}

static int decode_message(const struct encoded *encoded)
{
	struct service_message message;

	return service_decode(encoded->bytes, encoded->length, &message);
}

static struct service_message request_of(enum service_type type)
{
	return (struct service_message){ .type = type, .request = 7 };
}

static void test_header(void **state)
{
	struct service_message message = request_of(SERVICE_COMMIT);
	struct encoded good = encode_message(&message), bad;

	(void)state;
	assert_int_equal(decode_message(&good), 0);
	for (size_t length = 0; length < good.length; length++) {
		bad = good;
		bad.length = length;
		assert_int_equal(decode_message(&bad), -EPROTO);
	}
	bad = good;
	bad.length++;
	assert_int_equal(decode_message(&bad), -EPROTO);
	/* Each bit of magic and version counts. */
	for (unsigned bit = 0; bit < 8 * HEADER_TYPE; bit++) {
		bad = good;
		bad.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(decode_message(&bad), -EPROTO);
	}
	/* A request has no status. */
	bad = good;
	bad.bytes[STATUS_AT] = 1;
	assert_int_equal(decode_message(&bad), -EPROTO);
}

/* Types without a layout are refused, also if the message has no fields. */
static void test_types(void **state)
{
	struct service_message message = request_of(SERVICE_LIST);
	uint8_t buffer[SERVICE_ANSWER_MAX];

	(void)state;
	for (unsigned type = 0; type <= SERVICE_TYPES; type++) {
		struct encoded header = encode_message(&message);

		header.bytes[HEADER_TYPE] = (uint8_t)type;
		header.bytes[HEADER_TYPE + 1] = ANSWER >> 8;
		header.bytes[STATUS_AT] = 0;
		header.length = HEADER;
		if (type == 0 || type == SERVICE_TYPES)
			assert_int_equal(decode_message(&header), -EPROTO);
		message.type = type;
		assert_int_equal(service_encode(&message, buffer, sizeof(buffer)) > 0, type && type < SERVICE_TYPES);
		message.type = SERVICE_LIST;
	}
	message.status = -EIO;
	assert_int_equal(service_encode(&message, buffer, sizeof(buffer)), -EINVAL);
	message.status = 0;
	message.token_length = sizeof(message.token) + 1;
	assert_int_equal(service_encode(&message, buffer, sizeof(buffer)), -EINVAL);
	message.token_length = sizeof(message.token);
	assert_true(service_encode(&message, buffer, sizeof(buffer)) > 0);
}

/* Each error keeps its code; unknown ones, and unknown numbers, become EIO. */
static void test_statuses(void **state)
{
	static const int codes[] = { -EIO, -ENOENT, -EACCES, -EPERM, -EINVAL, -ENOSPC, -EDQUOT, -ESTALE };
	struct service_message message = { .type = SERVICE_LIST, .answer = true }, decoded;
	struct encoded encoded;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(codes); i++) {
		message.status = codes[i];
		strcpy(message.error.id, "ID");
		encoded = encode_message(&message);
		assert_int_equal(service_decode(encoded.bytes, encoded.length, &decoded), 0);
		assert_int_equal(decoded.status, codes[i]);
		assert_int_equal(decoded.error.code, codes[i]);
		assert_string_equal(decoded.error.id, "ID");
	}
	message.status = -EXFULL;
	encoded = encode_message(&message);
	assert_int_equal(service_decode(encoded.bytes, encoded.length, &decoded), 0);
	assert_int_equal(decoded.status, -EIO);
	encoded.bytes[STATUS_AT] = 0xff;
	assert_int_equal(service_decode(encoded.bytes, encoded.length, &decoded), 0);
	assert_int_equal(decoded.status, -EIO);
}

/* A name has at most SERVICE_NAME_MAX bytes, and no NUL. */
static void test_strings(void **state)
{
	struct service_message message = request_of(SERVICE_LIST), decoded;
	struct encoded good, bad;

	(void)state;
	memset(message.name, 'n', SERVICE_NAME_MAX);
	good = encode_message(&message);
	assert_int_equal(service_decode(good.bytes, good.length, &decoded), 0);
	assert_string_equal(decoded.name, message.name);
	/* One byte more, with its length. */
	bad = good;
	bad.bytes[bad.length++] = 'n';
	bad.bytes[FIELDS] = (uint8_t)((SERVICE_NAME_MAX + 1) & 0xff);
	bad.bytes[FIELDS + 1] = (SERVICE_NAME_MAX + 1) >> 8;
	assert_int_equal(decode_message(&bad), -EPROTO);
	bad = good;
	bad.bytes[FIELDS + 2 + 5] = 0;
	assert_int_equal(decode_message(&bad), -EPROTO);
}

static void test_tokens(void **state)
{
	struct service_message message = { .type = SERVICE_OPEN, .answer = true, .token_length = PL_TOKEN_MAX };
	struct encoded good = encode_message(&message), bad = good;
	size_t at = good.length - PL_TOKEN_MAX - 1;

	(void)state;
	assert_int_equal(decode_message(&good), 0);
	assert_int_equal(bad.bytes[at], PL_TOKEN_MAX);
	bad.bytes[at]++;
	bad.length++;
	assert_int_equal(decode_message(&bad), -EPROTO);
}

/* Limits of values that no field's size implies. */
static void test_values(void **state)
{
	struct service_message message = { .type = SERVICE_OPEN, .answer = true, .mode = FILE_MODE_MAX,
					   .kind = SERVICE_KINDS - 1, .flags = SERVICE_FLAGS };
	struct service_message list = { .type = SERVICE_LIST, .answer = true, .more = 1 };
	struct encoded encoded = encode_message(&message);

	(void)state;
	assert_int_equal(decode_message(&encoded), 0);
	message.mode++;
	encoded = encode_message(&message);
	assert_int_equal(decode_message(&encoded), -EPROTO);
	message.mode--;
	message.kind++;
	encoded = encode_message(&message);
	assert_int_equal(decode_message(&encoded), -EPROTO);
	message.kind--;
	message.flags++;
	encoded = encode_message(&message);
	assert_int_equal(decode_message(&encoded), -EPROTO);
	encoded = encode_message(&list);
	assert_int_equal(decode_message(&encoded), 0);
	list.more++;
	encoded = encode_message(&list);
	assert_int_equal(decode_message(&encoded), -EPROTO);
}

static int decode_entry(uint8_t kind, const char *name)
{
	struct service_message list = { .type = SERVICE_LIST, .answer = true };
	struct service_entry entry = { .kind = SERVICE_FILE, .size = 1, .name = "name" }, again;
	uint8_t bytes[sizeof(entry)];
	struct encoded encoded;
	size_t length = 0, offset = 0;
	int rc;

	assert_true(service_entry_put(&entry, bytes, sizeof(bytes), &length));
	bytes[0] = kind;
	if (!name[0]) {
		length -= strlen(entry.name);
		bytes[length - 2] = 0;
	}
	list.entries = bytes;
	list.entries_length = length;
	encoded = encode_message(&list);
	rc = service_decode(encoded.bytes, encoded.length, &list);
	if (rc == 0) {
		assert_true(service_entry_next(&list, &offset, &again));
		assert_string_equal(again.name, name);
		assert_false(service_entry_next(&list, &offset, &again));
	}
	return rc;
}

static void test_entries(void **state)
{
	struct service_message none = { .type = SERVICE_LIST, .answer = true };
	struct service_entry entry;
	size_t offset = 0;

	(void)state;
	assert_int_equal(decode_entry(SERVICE_FILE, "name"), 0);
	assert_int_equal(decode_entry(SERVICE_MEMORY, "name"), 0);
	assert_int_equal(decode_entry(SERVICE_KINDS, "name"), -EPROTO);
	assert_int_equal(decode_entry(SERVICE_FILE, ""), -EPROTO);
	assert_false(service_entry_next(&none, &offset, &entry));
}

static int decode_file(bool answer, const struct service_file *file)
{
	struct service_message message = { .type = SERVICE_PUT_SMALL, .answer = answer };
	struct service_file copy = *file, again;
	uint8_t bytes[2 * sizeof(copy)];
	struct cursor cursor = { .at = bytes, .end = bytes + sizeof(bytes), .writing = true };
	struct encoded encoded;
	size_t offset = 0;
	int rc;

	code_file(&cursor, &copy);
	message.files = bytes;
	message.files_length = (size_t)(cursor.at - bytes);
	encoded = encode_message(&message);
	rc = service_decode(encoded.bytes, encoded.length, &message);
	if (rc == 0) {
		assert_true(service_file_next(&message, &offset, &again));
		assert_string_equal(again.name, file->name);
		assert_int_equal(again.status, file->status);
		assert_int_equal(again.error.code, file->status);
		assert_false(service_file_next(&message, &offset, &again));
	}
	return rc;
}

static void test_files(void **state)
{
	struct service_file file = { .mode = FILE_MODE_MAX, .name = "name" };

	(void)state;
	assert_int_equal(decode_file(false, &file), 0);
	assert_int_equal(decode_file(true, &file), 0);
	file.mode++;
	assert_int_equal(decode_file(false, &file), -EPROTO);
	file.mode--;
	file.name[0] = '\0';
	assert_int_equal(decode_file(false, &file), -EPROTO);
	/* Only an answer has files that failed. */
	file.name[0] = 'n';
	file.status = -ENOSPC;
	assert_int_equal(decode_file(true, &file), 0);
	assert_int_equal(decode_file(false, &file), -EPROTO);
}

static int decode_two_ranges(uint64_t offset, uint64_t length, uint64_t next_offset, uint64_t next_length)
{
	const struct service_range ranges[] = { { offset, length }, { next_offset, next_length } };
	struct service_message message = { .type = SERVICE_DATA, .answer = true };
	uint8_t bytes[2 * SERVICE_RANGE];
	struct encoded encoded;
	size_t used = 0;

	for (size_t i = 0; i < 2; i++)
		assert_true(service_range_put(&ranges[i], bytes, sizeof(bytes), &used));
	assert_false(service_range_put(&ranges[0], bytes, sizeof(bytes), &used));
	message.ranges = bytes;
	message.ranges_length = used;
	encoded = encode_message(&message);
	return decode_message(&encoded);
}

static void test_ranges(void **state)
{
	(void)state;
	assert_int_equal(decode_two_ranges(0, 10, 20, 5), 0);
	assert_int_equal(decode_two_ranges(0, 10, 10, 5), 0);
	assert_int_equal(decode_two_ranges(0, 10, 9, 5), -EPROTO);
	assert_int_equal(decode_two_ranges(0, 0, 10, 5), -EPROTO);
	assert_int_equal(decode_two_ranges(0, 10, 20, 0), -EPROTO);
	assert_int_equal(decode_two_ranges(0, 10, 20, UINT64_MAX - 20), 0);
	assert_int_equal(decode_two_ranges(0, 10, 20, UINT64_MAX - 19), -EPROTO);
}

static int decode_clients(const uint64_t *numbers, size_t count)
{
	struct service_message message = { .type = SERVICE_WATCH, .answer = true };
	struct service_client client = { .address = "[::1]:1", .fabric = "tcp", .identity = "i", .name = "model" };
	uint8_t bytes[400];
	struct encoded encoded;
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		client.number = numbers[i];
		assert_true(service_client_put(&client, bytes, sizeof(bytes), &used));
	}
	message.clients = bytes;
	message.clients_length = used;
	encoded = encode_message(&message);
	return decode_message(&encoded);
}

/* The numbers of clients descend, so that a listing ends. */
static void test_clients(void **state)
{
	(void)state;
	assert_int_equal(decode_clients((uint64_t[]){ 7, 3, 1 }, 3), 0);
	assert_int_equal(decode_clients(NULL, 0), 0);
	assert_int_equal(decode_clients((uint64_t[]){ 3, 3 }, 2), -EPROTO);
	assert_int_equal(decode_clients((uint64_t[]){ 3, 4 }, 2), -EPROTO);
	assert_int_equal(decode_clients((uint64_t[]){ 1, 0 }, 2), -EPROTO);
}

/* EXTENT has the staged bytes for servers that take them; clients of earlier versions repeat the handle alone. */
static void test_staged(void **state)
{
	static const uint8_t golden[] = { 'P', 'V',  'S', '1', 2, 0, 4, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0,
					  0,   0x80, 5,   0,   0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0 };
	struct service_message extent = { .type = SERVICE_EXTENT,
					  .request = 7,
					  .done = 5,
					  .staged = 3,
					  .has_staged = true },
			       decoded;
	struct encoded encoded;

	(void)state;
	extent.handle = 1;
	encoded = encode_message(&extent);
	assert_int_equal(encoded.length, sizeof(golden) - 8);
	extent.handle |= SERVICE_HANDLE_STAGED;
	encoded = encode_message(&extent);
	assert_int_equal(encoded.length, sizeof(golden));
	assert_memory_equal(encoded.bytes, golden, sizeof(golden));
	assert_int_equal(service_decode(encoded.bytes, encoded.length, &decoded), 0);
	assert_true(decoded.has_staged && decoded.staged == 3 && decoded.done == 5);
	for (encoded.length = sizeof(golden) - 9; encoded.length <= sizeof(golden) + 1; encoded.length++)
		assert_int_equal(decode_message(&encoded),
				 encoded.length == sizeof(golden) || encoded.length == sizeof(golden) - 8 ? 0
													  : -EPROTO);
	encoded.length = sizeof(golden) - 8;
	assert_int_equal(service_decode(encoded.bytes, encoded.length, &decoded), 0);
	assert_false(decoded.has_staged);
	/* Without the bit, the field is one too many. */
	encoded.length = sizeof(golden);
	encoded.bytes[FIELDS + 3] = 0;
	assert_int_equal(decode_message(&encoded), -EPROTO);
}

/* Clients have the bytes by route if the answer says so. */
static void test_routes(void **state)
{
	struct service_client client = { .number = 4, .routes = true, .direct = 10, .staged = UINT64_MAX }, again;
	struct service_message message = { .type = SERVICE_WATCH, .answer = true, .more = SERVICE_MORE_ROUTES },
			       decoded;
	uint8_t bytes[400];
	struct encoded encoded;
	size_t offset = 0;

	(void)state;
	message.clients = bytes;
	assert_true(service_client_put(&client, bytes, sizeof(bytes), &message.clients_length));
	encoded = encode_message(&message);
	assert_int_equal(service_decode(encoded.bytes, encoded.length, &decoded), 0);
	assert_true(service_client_next(&decoded, &offset, &again));
	assert_true(again.routes && again.direct == 10 && again.staged == UINT64_MAX);
	assert_false(service_client_next(&decoded, &offset, &again));
	message.more = 0;
	encoded = encode_message(&message);
	assert_int_equal(decode_message(&encoded), -EPROTO);
	message.more = SERVICE_MORE_SUMS << 1;
	encoded = encode_message(&message);
	assert_int_equal(decode_message(&encoded), -EPROTO);
}

/* WATCH has the sums by route if the answer says so, before the clients. */
static void test_sums_of_routes(void **state)
{
	static const uint8_t golden[] = { 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
					  0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0 };
	struct service_message message = {
		.type = SERVICE_WATCH, .answer = true, .more = SERVICE_MORE_ROUTES, .done = 1, .direct = 7, .staged = 5
	};
	struct encoded encoded = encode_message(&message);

	(void)state;
	assert_int_equal(encoded.length, FIELDS + sizeof(golden) - 16);
	message.more |= SERVICE_MORE_SUMS;
	encoded = encode_message(&message);
	assert_int_equal(encoded.length, FIELDS + sizeof(golden));
	assert_memory_equal(encoded.bytes + FIELDS, golden, sizeof(golden));
	assert_int_equal(service_decode(encoded.bytes, encoded.length, &message), 0);
	assert_true(message.direct == 7 && message.staged == 5 && message.done == 1);
	encoded.length--;
	assert_int_equal(decode_message(&encoded), -EPROTO);
}

/* A message has no fields of other types, even if the caller sets them. */
static void test_other_fields(void **state)
{
	static const uint8_t bytes[100];
	struct service_message message = request_of(SERVICE_COMMIT);
	size_t length = encode_message(&message).length;

	(void)state;
	message.entries = message.files = message.ranges = message.clients = bytes;
	message.entries_length = sizeof(bytes);
	assert_int_equal(encode_message(&message).length, length);
	message.entries_length = 0;
	message.files_length = sizeof(bytes);
	assert_int_equal(encode_message(&message).length, length);
	message.files_length = 0;
	message.ranges_length = sizeof(bytes);
	assert_int_equal(encode_message(&message).length, length);
	message.ranges_length = 0;
	message.clients_length = sizeof(bytes);
	assert_int_equal(encode_message(&message).length, length);
}

static void test_names(void **state)
{
	static const char *const good[] = { "a", "a/b", "...", "..a", ".a", "a/...", "a/.b/c..", "a.." };
	static const char *const bad[] = { "", ".", "..", "/", "/a", "a/", "a//b", "a/.", "a/..", "./a", "../a", "a/../b" };
	char name[SERVICE_NAME_MAX + 2];

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(good); i++)
		assert_true(service_name_valid(good[i]));
	for (size_t i = 0; i < PL_ARRAY_SIZE(bad); i++)
		assert_false(service_name_valid(bad[i]));
	memset(name, 'n', sizeof(name));
	name[SERVICE_NAME_MAX + 1] = '\0';
	assert_false(service_name_valid(name));
	name[SERVICE_NAME_MAX] = '\0';
	assert_true(service_name_valid(name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),         cmocka_unit_test(test_types),
		cmocka_unit_test(test_statuses),       cmocka_unit_test(test_strings),
		cmocka_unit_test(test_tokens),         cmocka_unit_test(test_values),
		cmocka_unit_test(test_entries),        cmocka_unit_test(test_files),
		cmocka_unit_test(test_ranges),         cmocka_unit_test(test_names),
		cmocka_unit_test(test_other_fields),   cmocka_unit_test(test_clients),
		cmocka_unit_test(test_staged),         cmocka_unit_test(test_routes),
		cmocka_unit_test(test_sums_of_routes),
	};

	return cmocka_run_group_tests_name("service", tests, NULL, NULL);
}
