/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include <cmocka.h>

#include "base/address.h"

static void test_accepted(void **state)
{
	static const struct {
		const char *text, *default_port, *host, *port;
	} cases[] = {
		{ "gpu1:7471", NULL, "gpu1", "7471" },
		{ "gpu-1.example_x.org", "5", "gpu-1.example_x.org", "5" },
		{ "gpu1:1", "5", "gpu1", "1" },
		{ "10.0.0.1:0", NULL, "10.0.0.1", "0" },
		{ "10.0.0.1:65535", NULL, "10.0.0.1", "65535" },
		{ "h:00080", NULL, "h", "80" },
		{ ":7471", NULL, "", "7471" },
		{ "[::1]:7471", NULL, "::1", "7471" },
		{ "[::]", "9", "::", "9" },
		{ "[fe80::1%eth0.5]:1", NULL, "fe80::1%eth0.5", "1" },
		{ "[::ffff:1.2.3.4]:1", NULL, "::ffff:1.2.3.4", "1" },
	};
	struct pl_address_text out;
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		assert_int_equal(pl_address_parse(cases[i].text, cases[i].default_port, &out, &error), 0);
		assert_string_equal(out.host, cases[i].host);
		assert_string_equal(out.port, cases[i].port);
	}
}

static void test_refused_addresses(void **state)
{
	static const struct {
		const char *text, *default_port;
	} cases[] = {
		{ NULL, "5" },          { "", "5" },
		{ "host", NULL },       { "host:", "5" },
		{ ":", "5" },           { "host:65536", "5" },
		{ "host:99999", "5" },  { "host:000001", "5" },
		{ "host:-1", "5" },     { "host:+1", "5" },
		{ "host: 1", "5" },     { "host:1 ", "5" },
		{ "host:http", "5" },   { "host:0x1", "5" },
		{ "host:1:2", "5" },    { "::1", "5" },
		{ "fe80::1:2", "5" },   { "[::1", "5" },
		{ "[::1]7", "5" },      { "[::1]:", "5" },
		{ "[]:1", "5" },        { "[1.2.3.4]:1", "5" },
		{ "[host]:1", "5" },    { "[::1%]:1", "5" },
		{ "[::1%a b]:1", "5" }, { "[::1%a%b]:1", "5" },
		{ "[[::1]]:1", "5" },   { "ho st:1", "5" },
		{ "host/x:1", "5" },    { "h\xc3\xb6st:1", "5" },
		{ "host]:1", "5" },     { "host", "http" },
		{ "host", "" },         { "[12345:12345:12345:12345:12345:12345:12345:12345:1]:1", "5" },
	};
	struct pl_address_text out;
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		memset(&error, 0, sizeof(error));
		if (pl_address_parse(cases[i].text, cases[i].default_port, &out, &error) != -EINVAL)
			fail_msg("case %zu", i);
		assert_int_equal(error.code, -EINVAL);
		assert_string_equal(error.id, "ADDRESS-SYNTAX");
		assert_true(error.message[0] && error.hint[0]);
		assert_int_equal(pl_address_parse(cases[i].text, cases[i].default_port, &out, NULL), -EINVAL);
	}
}

static void test_longest_host(void **state)
{
	struct pl_address_text out;
	char text[300];

	(void)state;
	memset(text, 'h', sizeof(text));
	strcpy(text + sizeof(out.host) - 1, ":1");
	assert_int_equal(pl_address_parse(text, NULL, &out, NULL), 0);
	assert_int_equal(strlen(out.host), sizeof(out.host) - 1);
	memset(text, 'h', sizeof(text));
	strcpy(text + sizeof(out.host), ":1");
	assert_int_equal(pl_address_parse(text, NULL, &out, NULL), -EINVAL);
}

static struct sockaddr_storage v4(const char *host, uint16_t port)
{
	struct sockaddr_storage storage = { 0 };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
	memcpy(&storage, &address, sizeof(address));
	return storage;
}

static struct sockaddr_storage v6(const char *host, uint16_t port, uint32_t scope)
{
	struct sockaddr_storage storage = { 0 };
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = scope };

	assert_int_equal(inet_pton(AF_INET6, host, &address.sin6_addr), 1);
	memcpy(&storage, &address, sizeof(address));
	return storage;
}

static void assert_format(const struct sockaddr_storage *address, const char *expected)
{
	char text[PL_ADDRESS_FORMAT_MAX];
	size_t needed = strlen(expected) + 1;

	assert_int_equal(pl_address_format((const struct sockaddr *)address, text, sizeof(text)), 0);
	assert_string_equal(text, expected);
	assert_int_equal(pl_address_format((const struct sockaddr *)address, text, needed), 0);
	assert_int_equal(pl_address_format((const struct sockaddr *)address, text, needed - 1), -ENOBUFS);
	assert_int_equal(strlen(text), needed - 2);
	assert_int_equal(pl_address_format((const struct sockaddr *)address, NULL, 0), -ENOBUFS);
}

static void test_format(void **state)
{
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	struct sockaddr_storage address;
	char text[8] = "x";

	(void)state;
	address = v4("1.2.3.4", 5), assert_format(&address, "1.2.3.4:5");
	address = v4("255.255.255.255", 65535), assert_format(&address, "255.255.255.255:65535");
	address = v6("::1", 5, 0), assert_format(&address, "[::1]:5");
	address = v6("fe80::1", 5, 2), assert_format(&address, "[fe80::1%2]:5");
	address = v6("::ffff:1.2.3.4", 5, 0);
	assert_format(&address, "1.2.3.4:5");
	address = v6("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65535, UINT32_MAX);
	assert_format(&address, "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535");
	assert_int_equal(pl_address_format((struct sockaddr *)&local, text, sizeof(text)), -EAFNOSUPPORT);
	assert_string_equal(text, "");
}

static void test_loopback(void **state)
{
	static const struct {
		const char *host;
		bool loopback;
	} v4s[] = {
		{ "127.0.0.1", true }, { "127.255.255.255", true }, { "128.0.0.1", false },
		{ "126.0.0.127", false }, { "0.0.0.0", false },
	}, v6s[] = {
		{ "::1", true }, { "::", false }, { "::2", false }, { "::ffff:127.0.0.9", true },
		{ "::ffff:10.0.0.127", false }, { "::127.0.0.1", false }, { "fe80::1", false },
	};
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	struct sockaddr_storage address;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(v4s); i++) {
		address = v4(v4s[i].host, 1);
		assert_int_equal(pl_address_is_loopback((struct sockaddr *)&address), v4s[i].loopback);
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(v6s); i++) {
		address = v6(v6s[i].host, 1, 0);
		assert_int_equal(pl_address_is_loopback((struct sockaddr *)&address), v6s[i].loopback);
	}
	assert_false(pl_address_is_loopback((struct sockaddr *)&local));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted),     cmocka_unit_test(test_refused_addresses),
		cmocka_unit_test(test_longest_host), cmocka_unit_test(test_format),
		cmocka_unit_test(test_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
