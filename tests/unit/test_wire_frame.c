/* SPDX-License-Identifier: BSD-2-Clause */
/* Cursors, frames and status codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/verbs/data/imm_tag.h"
#include "wire/wire.h"

static void test_cursors(void **state)
{
	static const uint8_t golden[] = { 1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 2, 0, 'h', 'i', 'x' };
	uint8_t buffer[sizeof(golden)], byte;
	struct pl_writer writer;
	struct pl_reader reader;
	char text[3];

	(void)state;
	pl_writer_init(&writer, buffer, sizeof(buffer));
	pl_put_u8(&writer, 1);
	pl_put_u16(&writer, 0x0203);
	pl_put_u32(&writer, 0x04050607);
	pl_put_u64(&writer, 0x08090a0b0c0d0e0f);
	pl_put_string(&writer, "hi");
	pl_put_bytes(&writer, "x", 1);
	pl_put_bytes(&writer, NULL, 0);
	assert_false(writer.full);
	assert_ptr_equal(writer.at, writer.end);
	assert_memory_equal(buffer, golden, sizeof(golden));

	pl_reader_init(&reader, buffer, sizeof(buffer));
	assert_int_equal(pl_get_u8(&reader), 1);
	assert_int_equal(pl_get_u16(&reader), 0x0203);
	assert_int_equal(pl_get_u32(&reader), 0x04050607);
	assert_true(pl_get_u64(&reader) == 0x08090a0b0c0d0e0f);
	pl_get_string(&reader, text, sizeof(text));
	assert_string_equal(text, "hi");
	pl_get_bytes(&reader, &byte, 1);
	assert_int_equal(byte, 'x');
	assert_false(reader.bad);
	assert_ptr_equal(reader.at, reader.end);
}

static void test_cursor_failure_is_sticky(void **state)
{
	static const uint8_t bytes[] = { 1, 2, 3 };
	uint8_t buffer[3] = { 9, 9, 9 }, got[2] = { 9, 9 };
	struct pl_writer writer;
	struct pl_reader reader;

	(void)state;
	pl_reader_init(&reader, bytes, sizeof(bytes));
	assert_int_equal(pl_get_u32(&reader), 0);
	assert_true(reader.bad);
	assert_int_equal(pl_get_u8(&reader), 0);
	pl_get_bytes(&reader, got, 2);
	assert_int_equal(got[0] | got[1], 0);
	assert_ptr_equal(reader.at, bytes);

	pl_reader_init(&reader, NULL, 0);
	pl_get_bytes(&reader, NULL, 0);
	assert_false(reader.bad);
	assert_int_equal(pl_get_u8(&reader), 0);
	assert_true(reader.bad);

	pl_writer_init(&writer, buffer, sizeof(buffer));
	pl_put_u32(&writer, 0);
	assert_true(writer.full);
	pl_put_u8(&writer, 0);
	assert_ptr_equal(writer.at, buffer);
	assert_int_equal(buffer[0], 9);
}

static void test_strings(void **state)
{
	static const struct {
		const char *bytes;
		size_t length, size;
		const char *text; /* NULL: malformed */
	} cases[] = {
		{ "\0\0", 2, 1, "" },      { "\3\0abc", 5, 4, "abc" },    { "\3\0abc", 5, 3, NULL },
		{ "\3\0abc", 4, 9, NULL }, { "\3\0a\0c", 5, 9, NULL },    { "\3\0ab\0", 5, 9, NULL },
		{ "\3", 1, 9, NULL },      { "\377\377abc", 5, 9, NULL },
	};
	struct pl_reader reader;
	char text[16];

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		memset(text, 'z', sizeof(text));
		pl_reader_init(&reader, cases[i].bytes, cases[i].length);
		pl_get_string(&reader, text, cases[i].size);
		assert_int_equal(reader.bad, cases[i].text == NULL);
		assert_string_equal(text, cases[i].text ? cases[i].text : "");
		assert_int_equal(text[cases[i].size], 'z');
	}
}

static void test_string_too_long_to_write(void **state)
{
	static char text[UINT16_MAX + 2];
	static uint8_t buffer[UINT16_MAX + 8];
	struct pl_writer writer;

	(void)state;
	memset(text, 'a', UINT16_MAX + 1);
	pl_writer_init(&writer, buffer, sizeof(buffer));
	pl_put_string(&writer, text);
	assert_true(writer.full);
	text[UINT16_MAX] = '\0';
	pl_writer_init(&writer, buffer, sizeof(buffer));
	pl_put_string(&writer, text);
	assert_false(writer.full);
	assert_int_equal(writer.at - writer.begin, 2 + UINT16_MAX);
}

static void test_frame_golden(void **state)
{
	static const uint8_t golden[PL_FRAME_HEADER] = {
		1,  0x80, 0,  0,  4,  3,  2,  1,  8,  7,  6,  0,  12, 11, 10, 9,
		20, 19,   18, 17, 16, 15, 14, 13, 28, 27, 26, 25, 24, 23, 22, 21,
	};
	const struct pl_frame frame = {
		.type = PL_FRAME_WRITE,
		.flags = 0x80,
		.ack = 0x01020304,
		.length = 0x00060708,
		.cookie = 0x090a0b0c,
		.key = 0x0d0e0f1011121314,
		.offset = 0x15161718191a1b1c,
	};
	struct pl_frame decoded;
	uint8_t buffer[PL_FRAME_HEADER];

	(void)state;
	memset(buffer, 0xee, sizeof(buffer));
	pl_frame_encode(&frame, buffer);
	assert_memory_equal(buffer, golden, sizeof(golden));
	memset(&decoded, 0, sizeof(decoded));
	assert_int_equal(pl_frame_decode(buffer, &decoded), 0);
	assert_int_equal(decoded.type, frame.type);
	assert_int_equal(decoded.flags, frame.flags);
	assert_int_equal(decoded.ack, frame.ack);
	assert_int_equal(decoded.length, frame.length);
	assert_int_equal(decoded.cookie, frame.cookie);
	assert_true(decoded.key == frame.key);
	assert_true(decoded.offset == frame.offset);
}

static void test_frame_limits(void **state)
{
	static const struct {
		uint8_t type;
		uint32_t limit, payload;
	} types[] = {
		{ PL_FRAME_WRITE, PL_FRAME_BULK_MAX, PL_FRAME_BULK_MAX },
		{ PL_FRAME_READ, PL_FRAME_BULK_MAX, 0 },
		{ PL_FRAME_DATA, PL_FRAME_BULK_MAX, PL_FRAME_BULK_MAX },
		{ PL_FRAME_ATOMIC, 16, 16 },
		{ PL_FRAME_VALUE, 0, 0 },
		{ PL_FRAME_FAIL, 0, 0 },
		{ PL_FRAME_ACK, 0, 0 },
		{ PL_FRAME_EAGER, PL_FRAME_SMALL_MAX, PL_FRAME_SMALL_MAX },
		{ PL_FRAME_RENDEZVOUS, PL_FRAME_SMALL_MAX, PL_FRAME_SMALL_MAX },
		{ PL_FRAME_FINISH, 0, 0 },
		{ PL_FRAME_NOTIFY, PL_FRAME_NOTIFY_MAX, PL_FRAME_NOTIFY_MAX },
		{ PL_FRAME_CREDIT, 0, 0 },
		{ PL_FRAME_FENCE, 0, 0 },
		{ PL_FRAME_FENCED, 0, 0 },
		{ PL_FRAME_ASK_KEY, 0, 0 },
		{ PL_FRAME_KEY, 0, 0 },
		{ PL_FRAME_FLUSH, 0, 0 },
		{ PL_FRAME_FLUSHED, 0, 0 },
		{ PL_FRAME_SKIP, 0, 0 },
		{ PL_FRAME_COPY, PL_FRAME_SMALL_MAX, PL_FRAME_SMALL_MAX },
		{ PL_FRAME_COPIED, 0, 0 },
	};
	uint8_t buffer[PL_FRAME_HEADER];

	(void)state;
	assert_int_equal(PL_ARRAY_SIZE(types), PL_FRAME_TYPE_END - 1);
	for (size_t i = 0; i < PL_ARRAY_SIZE(types); i++) {
		struct pl_frame decoded, frame = { .type = types[i].type, .length = types[i].limit };

		pl_frame_encode(&frame, buffer);
		assert_int_equal(pl_frame_decode(buffer, &decoded), 0);
		assert_int_equal(pl_frame_payload(&decoded), types[i].payload);
		frame.length++;
		pl_frame_encode(&frame, buffer);
		assert_int_equal(pl_frame_decode(buffer, &decoded), -EMSGSIZE);
		frame.length = UINT32_MAX;
		pl_frame_encode(&frame, buffer);
		assert_int_equal(pl_frame_decode(buffer, &decoded), -EMSGSIZE);
		frame.length = 0;
		pl_frame_encode(&frame, buffer);
		assert_int_equal(pl_frame_decode(buffer, &decoded), types[i].type == PL_FRAME_ATOMIC ? -EPROTO : 0);
	}
}

static void test_frame_refuses(void **state)
{
	uint8_t buffer[PL_FRAME_HEADER];
	struct pl_frame decoded, frame = { .type = PL_FRAME_NOTIFY };

	(void)state;
	for (unsigned bit = 0; bit < 16; bit++) {
		pl_frame_encode(&frame, buffer);
		buffer[2 + bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_frame_decode(buffer, &decoded), -EPROTO);
	}
	for (unsigned type = 0; type < 256; type++) {
		pl_frame_encode(&frame, buffer);
		buffer[0] = (uint8_t)type;
		if (type == 0 || type >= PL_FRAME_TYPE_END)
			assert_int_equal(pl_frame_decode(buffer, &decoded), -EPROTO);
	}
}

static void test_status(void **state)
{
	static const struct {
		uint32_t status;
		int code;
		const char *id;
	} all[] = {
		{ PL_WIRE_UNKNOWN_KEY, -EACCES, "GRANT-UNKNOWN" },
		{ PL_WIRE_EXPIRED, -EACCES, "GRANT-EXPIRED" },
		{ PL_WIRE_RANGE, -EACCES, "GRANT-RANGE" },
		{ PL_WIRE_RIGHTS, -EACCES, "GRANT-RIGHTS" },
		{ PL_WIRE_MISALIGNED, -EINVAL, "ATOMIC-MISALIGNED" },
		{ PL_WIRE_UNSUPPORTED, -ENOTSUP, "PEER-UNSUPPORTED" },
		{ PL_WIRE_CANCELED, -ECANCELED, "PEER-CANCELED" },
		{ PL_WIRE_TOO_LONG, -EMSGSIZE, "MESSAGE-TOO-LONG" },
		{ PL_WIRE_NEEDS_KEY, -EACCES, "AUTH-NEEDS-KEY" },
		{ PL_WIRE_VERSION, -EPROTO, "PROTOCOL-VERSION" },
		{ PL_WIRE_NO_FABRIC, -EPROTO, "FABRIC-NONE" },
		{ PL_WIRE_BUSY, -EBUSY, "PEER-BUSY" },
		{ PL_WIRE_INTERNAL, -EPROTO, "PEER-INTERNAL" },
		{ PL_WIRE_MEMORY, -EFAULT, "PEER-MEMORY" },
		{ PL_WIRE_NO_KEY, -EACCES, "AUTH-NO-KEY" },
		{ PL_WIRE_WRONG_KEY, -EACCES, "AUTH-KEY-MISMATCH" },
		{ PL_WIRE_REFUSED, -EACCES, "IDENTITY-REFUSED" },
		{ PL_WIRE_SELF, -EPERM, "SELF-CONNECTION" },
		{ PL_WIRE_TOKEN_RIGHTS, -EACCES, "IDENTITY-RIGHTS" },
		{ PL_WIRE_IMPORTS, -EBUSY, "IDENTITY-IMPORTS" },
		{ PL_WIRE_IMPORTS + 1, -EPROTO, "PEER-INTERNAL" },
		{ UINT32_MAX, -EPROTO, "PEER-INTERNAL" },
	};
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++) {
		assert_int_equal(pl_wire_errno(all[i].status), all[i].code);
		assert_int_equal(pl_wire_fail(NULL, all[i].status, NULL, NULL), all[i].code);
		assert_int_equal(pl_wire_fail(&error, all[i].status, "import", "host:1"), all[i].code);
		assert_int_equal(error.code, all[i].code);
		assert_string_equal(error.id, all[i].id);
		assert_string_equal(error.call, "import");
		assert_string_equal(error.object, "host:1");
		assert_true(error.message[0] && error.hint[0]);
	}
	assert_int_equal(pl_wire_errno(PL_WIRE_OK), 0);
	assert_int_equal(pl_wire_fail(&error, PL_WIRE_OK, NULL, NULL), -EPROTO);
	assert_string_equal(error.id, "PEER-INTERNAL");
}

static void test_bare(void **state)
{
	static const struct {
		uint64_t tag;
		uint32_t number, received;
	} all[] = {
		{ 0, 1, 0 },
		{ 65535, 2, 1 },
		{ 7, 0x10000, 0xffff },
		{ 7, 0, 0xffffffff },
		{ 7, 0xffffffff, 2 }, /* number repeated */
		{ 7, 0x20005, 0x1fff0 },
	};
	struct pl_frame frame = { .type = PL_FRAME_EAGER, .key = VERBS_BARE_TAGS }, decoded;
	uint32_t immediate;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++) {
		frame.key = all[i].tag;
		frame.ack = all[i].number;
		assert_true(verbs_bare_encode(&frame, &immediate));
		assert_int_equal(verbs_bare_decode(immediate, all[i].received, 12, &decoded), 0);
		assert_int_equal(decoded.type, PL_FRAME_EAGER);
		assert_true(decoded.key == all[i].tag);
		assert_int_equal(decoded.ack, all[i].number);
		assert_int_equal(decoded.length, 12);
	}
	assert_int_equal(verbs_bare_decode(0, 0, PL_FRAME_SMALL_MAX, &decoded), 0);
	assert_int_equal(verbs_bare_decode(0, 0, PL_FRAME_SMALL_MAX + 1, &decoded), -EPROTO);
	frame.key = VERBS_BARE_TAGS;
	assert_false(verbs_bare_encode(&frame, &immediate));
	frame = (struct pl_frame){ .type = PL_FRAME_RENDEZVOUS };
	assert_false(verbs_bare_encode(&frame, &immediate));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cursors),       cmocka_unit_test(test_cursor_failure_is_sticky),
		cmocka_unit_test(test_strings),       cmocka_unit_test(test_string_too_long_to_write),
		cmocka_unit_test(test_frame_golden),  cmocka_unit_test(test_frame_limits),
		cmocka_unit_test(test_frame_refuses), cmocka_unit_test(test_status),
		cmocka_unit_test(test_bare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
