/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages: form, limits and exact bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/control_body.h"

#define BUFFER_SIZE (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)
#define SOFTWARE_AT 60 /* offset in the body of a HELLO */

static void fill_message(uint8_t *to, size_t length, uint8_t first)
{
	for (size_t i = 0; i < length; i++)
		to[i] = (uint8_t)(first + i);
}

static struct pl_control sample(enum pl_control_type type)
{
	struct pl_control message = { .type = type };

	switch (type) {
	case PL_CONTROL_HELLO:
		message.hello = (struct pl_hello){
			.version_min = 1,
			.version_max = 2,
			.capabilities = 0x1122334455667788,
			.lanes = 4,
			.eager_max = 8192,
			.window = 64,
			.flags = PL_HELLO_ENCRYPT_DATA,
			.software = "pl 1",
			.fabric_count = 2,
			.fabrics = { { "tcp", 2, { 0xaa, 0xbb } }, { .name = "local" } },
		};
		fill_message(message.hello.boot_id, 16, 0x10);
		fill_message(message.hello.context_id, 16, 0x20);
		break;
	case PL_CONTROL_REJECT:
		message.reject = (struct pl_reject){ PL_WIRE_VERSION, "PROTOCOL-VERSION", "no" };
		break;
	case PL_CONTROL_IMPORT:
		message.import = (struct pl_import){ .request = 7, .grant = 0x0102030405060708 };
		fill_message(message.import.secret, 16, 0x30);
		break;
	case PL_CONTROL_IMPORTED:
		message.imported = (struct pl_imported){
			.request = 7, .length = 4096, .rights = PL_ACCESS_ALL, .key_length = 3, .key = { 1, 2, 3 }
		};
		break;
	case PL_CONTROL_RELEASE:
		message.release = (struct pl_release){ .key_length = 3, .key = { 1, 2, 3 } };
		break;
	case PL_CONTROL_LANES:
		message.lanes = 16;
		break;
	case PL_CONTROL_MESSAGE:
		message.message = (struct pl_control_message){ 9, 4, (const uint8_t *)"text" };
		break;
	case PL_CONTROL_STREAM: /* test_stream_message.c has the bodies */
		message.message = (struct pl_control_message){ 0, 4, (const uint8_t *)"text" };
		break;
	case PL_CONTROL_RAIL: /* test_wire_rail.c */
	case PL_CONTROL_RAILS:
	case PL_CONTROL_BYE:
		break;
	}
	return message;
}

/* Encodes a message, which must succeed. */
static size_t encode(const struct pl_control *message, uint8_t *buffer)
{
	int length = pl_control_encode(message, buffer, BUFFER_SIZE);

	assert_true(length >= PL_CONTROL_HEADER);
	return (size_t)length;
}

/* Compares bytes, not structures, whose padding is undefined.  The golden bytes below tie both together. */
static void assert_round_trip(const struct pl_control *message)
{
	uint8_t buffer[BUFFER_SIZE], again[BUFFER_SIZE];
	struct pl_control decoded;
	size_t length = encode(message, buffer);
	uint32_t body_length;
	uint16_t type;

	assert_int_equal(pl_control_header_decode(buffer, &type, &body_length), 0);
	assert_int_equal(type, message->type);
	assert_int_equal(body_length, length - PL_CONTROL_HEADER);
	assert_int_equal(control_decode_exact(type, buffer + PL_CONTROL_HEADER, body_length, &decoded), 0);
	assert_int_equal(encode(&decoded, again), length);
	assert_memory_equal(again, buffer, length);
}

static void test_round_trips(void **state)
{
	(void)state;
	for (unsigned type = PL_CONTROL_HELLO; type <= PL_CONTROL_BYE; type++) {
		struct pl_control message = sample(type);

		assert_round_trip(&message);
	}
}

static void test_fields(void **state)
{
	struct pl_control decoded, message = sample(PL_CONTROL_HELLO);
	uint8_t buffer[BUFFER_SIZE];
	size_t length = encode(&message, buffer);

	(void)state;
	assert_int_equal(
		control_decode_exact(PL_CONTROL_HELLO, buffer + PL_CONTROL_HEADER, length - PL_CONTROL_HEADER, &decoded), 0);
	assert_int_equal(decoded.type, PL_CONTROL_HELLO);
	assert_int_equal(decoded.hello.version_min, 1);
	assert_int_equal(decoded.hello.version_max, 2);
	assert_memory_equal(decoded.hello.boot_id, message.hello.boot_id, 16);
	assert_memory_equal(decoded.hello.context_id, message.hello.context_id, 16);
	assert_true(decoded.hello.capabilities == 0x1122334455667788);
	assert_int_equal(decoded.hello.lanes, 4);
	assert_int_equal(decoded.hello.eager_max, 8192);
	assert_int_equal(decoded.hello.window, 64);
	assert_int_equal(decoded.hello.flags, PL_HELLO_ENCRYPT_DATA);
	assert_string_equal(decoded.hello.software, "pl 1");
	assert_int_equal(decoded.hello.fabric_count, 2);
	assert_string_equal(decoded.hello.fabrics[0].name, "tcp");
	assert_int_equal(decoded.hello.fabrics[0].blob_length, 2);
	assert_int_equal(decoded.hello.fabrics[0].blob[1], 0xbb);
	assert_string_equal(decoded.hello.fabrics[1].name, "local");
	assert_int_equal(decoded.hello.fabrics[1].blob_length, 0);
}

static void test_truncated_and_trailing(void **state)
{
	(void)state;
	for (unsigned type = PL_CONTROL_HELLO; type <= PL_CONTROL_BYE; type++) {
		struct pl_control decoded, message = sample(type);
		uint8_t buffer[BUFFER_SIZE] = { 0 };
		size_t length = encode(&message, buffer), body = length - PL_CONTROL_HEADER;

		for (size_t cut = 0; cut < body; cut++)
			assert_int_equal(control_decode_exact((uint16_t)type, buffer + PL_CONTROL_HEADER, cut, &decoded),
					 -EPROTO);
		for (size_t more = 1; more < 4; more++)
			assert_int_equal(
				control_decode_exact((uint16_t)type, buffer + PL_CONTROL_HEADER, body + more, &decoded),
				-EPROTO);
		for (size_t size = 0; size < length; size++)
			assert_int_equal(pl_control_encode(&message, buffer, size), -ENOBUFS);
	}
}

static void assert_golden(const struct pl_control *message, const uint8_t *bytes, size_t length)
{
	uint8_t buffer[BUFFER_SIZE];

	assert_int_equal(encode(message, buffer), length);
	assert_memory_equal(buffer, bytes, length);
}

/* clang-format off: bytes, a line for each field or group of them */
static void test_golden_hello(void **state)
{
	static const uint8_t
		hello[] = {
			'P',  'L',  'C',  '1',  1,    0,    0,    0,    86,   0,    0,    0, /* header */
			1,    0,    2,    0,                                                 /* versions */
			0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d,
			0x1e, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b,
			0x2c, 0x2d, 0x2e, 0x2f, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* capabilities */
			4,    0,    0,    0,    0,    0x20, 0,    0,    64,   0,    0,    0,    1,    0,
			0,    0,                                     /* streams to flags */
			4,    0,    'p',  'l',  ' ',  '1',  2,    0, /* software, fabrics */
			3,    0,    't',  'c',  'p',  2,    0,    0xaa, 0xbb, 5,    0,    'l',  'o',  'c',
			'a',  'l',  0,    0,
		};
	struct pl_control message = sample(PL_CONTROL_HELLO);

	(void)state;
	assert_golden(&message, hello, sizeof(hello));
}

static void test_golden_others(void **state)
{
	static const uint8_t reject[] = {
		'P', 'L', 'C', '1', 2,   0,   0,   0,   26,  0,   0,   0,   10,  0,   0,   0, 16, 0,   'P',
		'R', 'O', 'T', 'O', 'C', 'O', 'L', '-', 'V', 'E', 'R', 'S', 'I', 'O', 'N', 2, 0,  'n', 'o',
	};
	static const uint8_t import[] = {
		'P',  'L',  'C',  '1',  3,    0,    0,    0,    32,   0,    0,    0,    7,    0,    0,
		0,    0,    0,    0,    0,    8,    7,    6,    5,    4,    3,    2,    1,    0x30, 0x31,
		0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f,
	};
	static const uint8_t imported[] = {
		'P', 'L', 'C', '1', 4,    0, 0, 0, 29, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0,
		0,   0,   0,   0,   0x10, 0, 0, 0, 0,  0, 0, 7, 0, 0, 0, 3, 0, 1, 2, 3,
	};
	static const uint8_t release[] = { 'P', 'L', 'C', '1', 5, 0, 0, 0, 5, 0, 0, 0, 3, 0, 1, 2, 3 };
	static const uint8_t lanes[] = { 'P', 'L', 'C', '1', 6, 0, 0, 0, 4, 0, 0, 0, 16, 0, 0, 0 };
	static const uint8_t bye[] = { 'P', 'L', 'C', '1', 7, 0, 0, 0, 0, 0, 0, 0 };
	static const struct {
		enum pl_control_type type;
		const uint8_t *bytes;
		size_t length;
	} all[] = {
		{ PL_CONTROL_REJECT, reject, sizeof(reject) },       { PL_CONTROL_IMPORT, import, sizeof(import) },
		{ PL_CONTROL_IMPORTED, imported, sizeof(imported) }, { PL_CONTROL_RELEASE, release, sizeof(release) },
		{ PL_CONTROL_LANES, lanes, sizeof(lanes) },          { PL_CONTROL_BYE, bye, sizeof(bye) },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++) {
		struct pl_control message = sample(all[i].type);

		assert_golden(&message, all[i].bytes, all[i].length);
	}
}

/* clang-format on */

static void test_header(void **state)
{
	static const uint8_t good[PL_CONTROL_HEADER] = { 'P', 'L', 'C', '1', 0xff, 0xff, 0, 0, 0x20, 0x20, 0, 0 };
	uint8_t header[PL_CONTROL_HEADER];
	uint32_t length;
	uint16_t type;

	(void)state;
	assert_int_equal(pl_control_header_decode(good, &type, &length), 0);
	assert_int_equal(type, 0xffff); /* unknown; the decoder of the body refuses it */
	assert_int_equal(length, PL_CONTROL_BODY_MAX);
	for (size_t bit = 0; bit < 8 * PL_CONTROL_HEADER; bit++) {
		size_t byte = bit / 8;
		bool longer = byte >= 8 && !(good[byte] & 1 << bit % 8);
		int expected = byte < 4 || byte == 6 || byte == 7 ? -EPROTO : longer ? -EMSGSIZE : 0;

		memcpy(header, good, sizeof(header));
		header[byte] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_control_header_decode(header, &type, &length), expected);
	}
	memcpy(header, good, sizeof(header));
	header[4] = header[5] = 0;
	assert_int_equal(pl_control_header_decode(header, &type, &length), -EPROTO);
}

static void test_unknown_types(void **state)
{
	static const uint16_t types[] = { 0, PL_CONTROL_STREAM + 1, 0x0101, 0xffff };
	uint8_t body[4] = { 0 }, buffer[64];
	struct pl_control message;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(types); i++) {
		assert_int_equal(control_decode_exact(types[i], body, sizeof(body), &message), -ENOMSG);
		message = (struct pl_control){ .type = types[i] };
		assert_int_equal(pl_control_encode(&message, buffer, sizeof(buffer)), -EINVAL);
	}
	assert_int_equal(pl_control_decode(PL_CONTROL_BYE, NULL, 0, &message), 0);
	assert_int_equal(pl_control_decode(PL_CONTROL_HELLO, NULL, 0, &message), -EPROTO);
}

static void test_body_too_long(void **state)
{
	static const uint8_t body[PL_CONTROL_BODY_MAX + 1];
	struct pl_control message;

	(void)state;
	assert_int_equal(control_decode_exact(PL_CONTROL_HELLO, body, PL_CONTROL_BODY_MAX + 1, &message), -EMSGSIZE);
	assert_int_equal(control_decode_exact(PL_CONTROL_LANES, body, PL_CONTROL_BODY_MAX, &message), -EPROTO);
	/* An unknown type is named first. */
	assert_int_equal(control_decode_exact(PL_CONTROL_HELLO - 1, body, PL_CONTROL_BODY_MAX + 1, &message), -ENOMSG);
	assert_int_equal(control_decode_exact(PL_CONTROL_STREAM + 1, body, PL_CONTROL_BODY_MAX + 1, &message), -ENOMSG);
}

/* Checks that messages with all fields at their largest fit and survive a round trip. */
static void test_largest_messages(void **state)
{
	struct pl_control message;

	(void)state;
	memset(&message, 0, sizeof(message));
	message.type = PL_CONTROL_HELLO;
	message.hello.version_max = UINT16_MAX;
	message.hello.capabilities = UINT64_MAX;
	memset(message.hello.software, 's', sizeof(message.hello.software) - 1);
	memset(message.hello.program, 'p', sizeof(message.hello.program) - 1);
	message.hello.fabric_count = PL_FABRICS_MAX;
	for (unsigned i = 0; i < PL_FABRICS_MAX; i++) {
		memset(message.hello.fabrics[i].name, 'a' + (int)i, PL_FABRIC_NAME_MAX - 1);
		message.hello.fabrics[i].blob_length = PL_FABRIC_BLOB_MAX;
		memset(message.hello.fabrics[i].blob, 0xff, PL_FABRIC_BLOB_MAX);
	}
	message.hello.fabrics[0].name[0] = '!';
	message.hello.fabrics[0].name[1] = '~';
	assert_round_trip(&message);

	memset(&message, 0, sizeof(message));
	message.type = PL_CONTROL_REJECT;
	message.reject.code = INT32_MAX;
	memset(message.reject.id, 'i', sizeof(message.reject.id) - 1);
	memset(message.reject.message, 'm', sizeof(message.reject.message) - 1);
	assert_round_trip(&message);

	memset(&message, 0, sizeof(message));
	message.type = PL_CONTROL_IMPORTED;
	message.imported.length = UINT64_MAX;
	message.imported.key_length = PL_KEY_BLOB_MAX;
	memset(message.imported.key, 0xff, PL_KEY_BLOB_MAX);
	assert_round_trip(&message);

	memset(&message, 0, sizeof(message));
	message.type = PL_CONTROL_RELEASE;
	message.release.key_length = PL_KEY_BLOB_MAX;
	assert_round_trip(&message);
}

static void assert_refused(const struct pl_control *message)
{
	uint8_t buffer[BUFFER_SIZE];

	assert_int_equal(pl_control_encode(message, buffer, sizeof(buffer)), -EINVAL);
}

static struct pl_control failed_import(int32_t status)
{
	return (struct pl_control){ .type = PL_CONTROL_IMPORTED, .imported = { .request = 1, .status = status } };
}

static void test_encoder_refuses(void **state)
{
	struct pl_control m;

	(void)state;
	m = sample(PL_CONTROL_HELLO), m.hello.version_min = 3, assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.flags = 3, assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.flags = 4, assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.fabric_count = 0, assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.fabric_count = PL_FABRICS_MAX + 1, assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.fabrics[1].name[0] = '\0', assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.fabrics[1].blob_length = PL_FABRIC_BLOB_MAX + 1, assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), memset(m.hello.software, 'x', sizeof(m.hello.software)), assert_refused(&m);
	m = sample(PL_CONTROL_HELLO), memset(m.hello.fabrics[0].name, 'x', PL_FABRIC_NAME_MAX), assert_refused(&m);
	m = sample(PL_CONTROL_REJECT), m.reject.code = 0, assert_refused(&m);
	m = sample(PL_CONTROL_REJECT), m.reject.code = -1, assert_refused(&m);
	m = sample(PL_CONTROL_REJECT), memset(m.reject.id, 'x', sizeof(m.reject.id)), assert_refused(&m);
	m = sample(PL_CONTROL_REJECT), memset(m.reject.message, 'x', sizeof(m.reject.message)), assert_refused(&m);
	m = sample(PL_CONTROL_IMPORTED), m.imported.status = PL_WIRE_EXPIRED, assert_refused(&m);
	m = sample(PL_CONTROL_IMPORTED), m.imported.status = -1, assert_refused(&m);
	m = sample(PL_CONTROL_IMPORTED), m.imported.rights = PL_ACCESS_ALL + 1, assert_refused(&m);
	m = sample(PL_CONTROL_IMPORTED), m.imported.key_length = PL_KEY_BLOB_MAX + 1, assert_refused(&m);
	m = sample(PL_CONTROL_RELEASE), m.release.key_length = PL_KEY_BLOB_MAX + 1, assert_refused(&m);
	m = sample(PL_CONTROL_LANES), m.lanes = 0, assert_refused(&m);
	m = sample(PL_CONTROL_LANES), m.lanes = 17, assert_refused(&m);
	/* A failed import has no length, no rights and no key. */
	m = failed_import(PL_WIRE_EXPIRED), m.imported.length = 1, assert_refused(&m);
	m = failed_import(PL_WIRE_EXPIRED), m.imported.rights = PL_ACCESS_READ, assert_refused(&m);
	m = failed_import(PL_WIRE_EXPIRED), m.imported.key_length = 1, assert_refused(&m);
	m = failed_import(-1), assert_refused(&m);
}

/* Refuses one fabric too many, also if the bytes behind the last fabric look like another one. */
static void test_too_many_fabrics(void **state)
{
	struct {
		struct pl_control message;
		struct pl_fabric_advert behind;
	} larger = { .message = sample(PL_CONTROL_HELLO) };
	struct pl_hello *hello = &larger.message.hello;

	(void)state;
	hello->fabric_count = PL_FABRICS_MAX;
	for (unsigned i = 0; i < PL_FABRICS_MAX; i++)
		strcpy(hello->fabrics[i].name, "tcp");
	memcpy((char *)hello + offsetof(struct pl_hello, fabrics) + sizeof(hello->fabrics), "tcp", sizeof("tcp"));
	assert_round_trip(&larger.message);
	hello->fabric_count++;
	assert_refused(&larger.message);
}

static void test_least_and_most(void **state)
{
	uint8_t header[PL_CONTROL_HEADER];
	struct pl_control m;

	(void)state;
	m = sample(PL_CONTROL_LANES), m.lanes = 1, assert_round_trip(&m);
	m = sample(PL_CONTROL_LANES), m.lanes = 16, assert_round_trip(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.flags = PL_HELLO_CLEAR_DATA, assert_round_trip(&m);
	m = sample(PL_CONTROL_HELLO), m.hello.version_min = m.hello.version_max, assert_round_trip(&m);
	m = sample(PL_CONTROL_REJECT), m.reject.code = 1, assert_round_trip(&m);
	m = sample(PL_CONTROL_BYE);
	assert_int_equal(pl_control_encode(&m, header, sizeof(header)), PL_CONTROL_HEADER);
	assert_int_equal(pl_control_encode(&m, header, sizeof(header) - 1), -ENOBUFS);
}

/* Replaces one byte of a well-formed body and checks the status of the decoder. */
static void test_decoder_refuses(void **state)
{
	static const struct {
		enum pl_control_type type;
		size_t at;
		uint8_t value;
		int expected;
	} cases[] = {
		{ PL_CONTROL_HELLO, 0, 3, -EPROTO },                   /* version_min over version_max */
		{ PL_CONTROL_HELLO, 56, 3, -EPROTO },                  /* an unknown flag */
		{ PL_CONTROL_HELLO, SOFTWARE_AT, 32, -EPROTO },        /* software one too long */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 1, 0xff, -EPROTO },  /* software far too long */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 3, 0, -EPROTO },     /* a NUL in the software */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 6, 0, -EPROTO },     /* no fabric */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 6, 5, -EPROTO },     /* too many fabrics */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 7, 0xff, -EPROTO },  /* far too many fabrics */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 10, 0, -EPROTO },    /* a NUL in a fabric's name */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 10, ' ', -EPROTO },  /* a space in a fabric's name */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 10, 0xe4, -EPROTO }, /* a byte that is not ASCII */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 10, 0x7f, -EPROTO }, /* the byte behind the last printable one */
		{ PL_CONTROL_HELLO, SOFTWARE_AT + 13, 0x7f, -EPROTO }, /* a blob longer than the rest of the body */
		{ PL_CONTROL_REJECT, 0, 0, -EPROTO },                  /* code 0 */
		{ PL_CONTROL_REJECT, 3, 0x80, -EPROTO },               /* a negative code */
		{ PL_CONTROL_REJECT, 4, 24, -EPROTO },                 /* id one too long */
		{ PL_CONTROL_REJECT, 6, 0, -EPROTO },                  /* a NUL in the id */
		{ PL_CONTROL_REJECT, 24, 0, -EPROTO },                 /* a NUL in the message */
		{ PL_CONTROL_IMPORTED, 8, 1, -EPROTO },                /* a failure with a key */
		{ PL_CONTROL_IMPORTED, 11, 0x80, -EPROTO },            /* a negative status */
		{ PL_CONTROL_IMPORTED, 20, 8, -EPROTO },               /* an unknown right */
		{ PL_CONTROL_IMPORTED, 24, PL_KEY_BLOB_MAX + 1, -EMSGSIZE },
		{ PL_CONTROL_IMPORTED, 24, 4, -EPROTO },
		{ PL_CONTROL_IMPORTED, 24, 2, -EPROTO },
		{ PL_CONTROL_RELEASE, 0, PL_KEY_BLOB_MAX + 1, -EMSGSIZE },
		{ PL_CONTROL_RELEASE, 1, 0xff, -EMSGSIZE },
		{ PL_CONTROL_LANES, 0, 0, -EPROTO },
		{ PL_CONTROL_LANES, 0, 17, -EPROTO },
		{ PL_CONTROL_LANES, 3, 1, -EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct pl_control decoded, message = sample(cases[i].type);
		uint8_t buffer[BUFFER_SIZE];
		size_t length = encode(&message, buffer);

		buffer[PL_CONTROL_HEADER + cases[i].at] = cases[i].value;
		if (control_decode_exact((uint16_t)cases[i].type, buffer + PL_CONTROL_HEADER, length - PL_CONTROL_HEADER,
				 &decoded) != cases[i].expected)
			fail_msg("case %zu", i);
	}
}

static void test_blob_over_limit(void **state)
{
	struct pl_control decoded, message = sample(PL_CONTROL_HELLO);
	uint8_t buffer[BUFFER_SIZE];
	uint8_t *length_of_blob;
	size_t length;

	(void)state;
	message.hello.fabric_count = 1;
	message.hello.fabrics[0].blob_length = PL_FABRIC_BLOB_MAX;
	length = encode(&message, buffer);
	length_of_blob = buffer + length - PL_FABRIC_BLOB_MAX - 2;
	length_of_blob[0] = 1; /* 257 */
	buffer[length] = 0;
	assert_int_equal(
		control_decode_exact(PL_CONTROL_HELLO, buffer + PL_CONTROL_HEADER, length + 1 - PL_CONTROL_HEADER, &decoded),
		-EMSGSIZE);
}

static void test_extensions_are_skipped(void **state)
{
	static const uint8_t extensions[] = { 7, 0, 0, 0, 9, 0x80, 3, 0, 'a', 'b', 'c' };
	struct pl_control decoded, message = sample(PL_CONTROL_HELLO);
	uint8_t buffer[BUFFER_SIZE], *body = buffer + PL_CONTROL_HEADER;
	size_t length = encode(&message, buffer) - PL_CONTROL_HEADER;

	(void)state;
	memcpy(body + length, extensions, sizeof(extensions));
	for (size_t more = 0; more <= sizeof(extensions); more++) {
		bool whole = more == 0 || more == 4 || more == sizeof(extensions);

		assert_int_equal(control_decode_exact(PL_CONTROL_HELLO, body, length + more, &decoded), whole ? 0 : -EPROTO);
	}
}

static void test_message(void **state)
{
	static uint8_t payload[PL_FRAME_SMALL_MAX + 1];
	static const size_t lengths[] = { 0, 1, PL_FRAME_SMALL_MAX };
	struct pl_control decoded,
		message = { .type = PL_CONTROL_MESSAGE, .message = { 0x0102030405060708, 0, payload } };
	uint8_t buffer[BUFFER_SIZE + 1], *body = buffer + PL_CONTROL_HEADER;

	(void)state;
	memset(payload, 0x5a, sizeof(payload));
	for (size_t i = 0; i < PL_ARRAY_SIZE(lengths); i++) {
		message.message.length = (uint16_t)lengths[i];
		assert_int_equal(encode(&message, buffer), PL_CONTROL_HEADER + 8 + lengths[i]);
		assert_int_equal(body[0], 8);
		assert_int_equal(control_decode_exact(PL_CONTROL_MESSAGE, body, 8 + lengths[i], &decoded), 0);
		assert_true(decoded.message.tag == message.message.tag);
		assert_int_equal(decoded.message.length, lengths[i]);
	}
	/* control_decode_exact() frees the bytes that `payload` points to, so the last ones are compared here. */
	assert_int_equal(pl_control_decode(PL_CONTROL_MESSAGE, body, 8 + PL_FRAME_SMALL_MAX, &decoded), 0);
	assert_memory_equal(decoded.message.payload, payload, PL_FRAME_SMALL_MAX);
	for (size_t length = 0; length < 8; length++)
		assert_int_equal(control_decode_exact(PL_CONTROL_MESSAGE, body, length, &decoded), -EPROTO);
	assert_int_equal(pl_control_decode(PL_CONTROL_MESSAGE, body, 8 + PL_FRAME_SMALL_MAX + 1, &decoded), -EMSGSIZE);
	message.message.length = PL_FRAME_SMALL_MAX + 1;
	assert_refused(&message);
}

static void test_stream_has_no_tag(void **state)
{
	struct pl_control decoded, message = sample(PL_CONTROL_STREAM);
	uint8_t buffer[BUFFER_SIZE], *body = buffer + PL_CONTROL_HEADER;

	(void)state;
	assert_int_equal(encode(&message, buffer), PL_CONTROL_HEADER + 4);
	assert_memory_equal(body, "text", 4);
	assert_int_equal(buffer[4], 11);
	assert_int_equal(pl_control_decode(PL_CONTROL_STREAM, body, 4, &decoded), 0);
	assert_int_equal(decoded.message.length, 4);
	assert_int_equal(decoded.message.tag, 0);
	assert_int_equal(pl_control_decode(PL_CONTROL_STREAM, body, PL_FRAME_SMALL_MAX + 1, &decoded), -EMSGSIZE);
}

static void test_program_is_an_extension(void **state)
{
	struct pl_control decoded, message = sample(PL_CONTROL_HELLO);
	uint8_t buffer[BUFFER_SIZE], *body = buffer + PL_CONTROL_HEADER;
	size_t without = encode(&message, buffer), length;

	(void)state;
	strcpy(message.hello.program, "some program");
	length = encode(&message, buffer);
	assert_int_equal(length, without + 4 + 12);
	assert_int_equal(control_decode_exact(PL_CONTROL_HELLO, body, length - PL_CONTROL_HEADER, &decoded), 0);
	assert_string_equal(decoded.hello.program, "some program");
	body[length - PL_CONTROL_HEADER - 1] = 0x1b;
	assert_int_equal(control_decode_exact(PL_CONTROL_HELLO, body, length - PL_CONTROL_HEADER, &decoded), 0);
	assert_string_equal(decoded.hello.program, "some progra?");
	/* 32 characters are too many, and a length beyond the message is refused. */
	body[length - PL_CONTROL_HEADER - 14] = 32;
	assert_int_equal(control_decode_exact(PL_CONTROL_HELLO, body, length - PL_CONTROL_HEADER + 20, &decoded), -EPROTO);
	body[length - PL_CONTROL_HEADER - 14] = 13;
	assert_int_equal(control_decode_exact(PL_CONTROL_HELLO, body, length - PL_CONTROL_HEADER, &decoded), -EPROTO);
	memset(message.hello.program, 'x', sizeof(message.hello.program));
	assert_refused(&message);
}

static void test_text_is_harmless(void **state)
{
	struct pl_control decoded, message = sample(PL_CONTROL_REJECT);
	uint8_t buffer[BUFFER_SIZE], *body = buffer + PL_CONTROL_HEADER;
	size_t length;

	(void)state;
	strcpy(message.reject.message, "a\x1b[2Jb\xc2\x9b\n\x7f~");
	length = encode(&message, buffer);
	assert_int_equal(control_decode_exact(PL_CONTROL_REJECT, body, length - PL_CONTROL_HEADER, &decoded), 0);
	assert_string_equal(decoded.reject.message, "a?[2Jb????~");
}

static void test_failed_import(void **state)
{
	struct pl_control message;

	(void)state;
	memset(&message, 0, sizeof(message));
	message.type = PL_CONTROL_IMPORTED;
	message.imported.request = UINT64_MAX;
	message.imported.status = 999; /* a later version may know more */
	assert_round_trip(&message);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_truncated_and_trailing),
		cmocka_unit_test(test_golden_hello),
		cmocka_unit_test(test_golden_others),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_unknown_types),
		cmocka_unit_test(test_body_too_long),
		cmocka_unit_test(test_largest_messages),
		cmocka_unit_test(test_encoder_refuses),
		cmocka_unit_test(test_too_many_fabrics),
		cmocka_unit_test(test_least_and_most),
		cmocka_unit_test(test_decoder_refuses),
		cmocka_unit_test(test_blob_over_limit),
		cmocka_unit_test(test_extensions_are_skipped),
		cmocka_unit_test(test_message),
		cmocka_unit_test(test_stream_has_no_tag),
		cmocka_unit_test(test_program_is_an_extension),
		cmocka_unit_test(test_text_is_harmless),
		cmocka_unit_test(test_failed_import),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
