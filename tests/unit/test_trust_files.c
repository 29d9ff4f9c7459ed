/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of authorized identities and of known hosts: syntax, and which line decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/authorized.h"
#include "control/known_hosts.h"

#define A "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define B "SHA256:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"

static uint8_t a[PL_FINGERPRINT], b[PL_FINGERPRINT], c[PL_FINGERPRINT];

static int set_up(void **state)
{
	(void)state;
	memset(a, 0, sizeof(a));
	memset(b, 1, sizeof(b));
	memset(c, 2, sizeof(c));
	return 0;
}

static void test_fingerprints(void **state)
{
	static const char *const wrong[] = {
		"", "SHA256:", "SHA256:AAAA", A "A", "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB", /* bits behind the last byte */
		"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "SHA256: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-",
	};
	uint8_t fingerprint[PL_FINGERPRINT];
	char text[PL_FINGERPRINT_MAX];

	(void)state;
	assert_true(pl_fingerprint_parse(B, strlen(B), fingerprint));
	assert_memory_equal(fingerprint, b, sizeof(b));
	pl_fingerprint_format(fingerprint, text);
	assert_string_equal(text, B);
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++)
		assert_false(pl_fingerprint_parse(wrong[i], strlen(wrong[i]), fingerprint));
}

static struct pl_authorized *parse(const char *text)
{
	struct pl_authorized *list;
	struct pl_error error;

	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error), 0);
	return list;
}

/* Looks an identity up. Returns its access flags; 0: not listed; -1: revoked. */
static int find(const char *text, const uint8_t *fingerprint, const char *name)
{
	struct pl_authorized *list = parse(text);
	struct pl_rights rights = PL_RIGHTS_INIT;
	enum pl_listed listed = pl_authorized_find(list, fingerprint, name, &rights);

	pl_authorized_free(list);
	return listed == PL_LISTED_REVOKED ? -1 : listed == PL_LISTED ? (int)rights.access : 0;
}

static void test_order_of_lines(void **state)
{
	static const char all[] = "* read\n"
				  "spiffe://x/*/b write\n"
				  "name:gpu7.x atomic\n"
				  "name:*.x read,write\n" A " all\n";
	static const char revoked[] = A " all\nrevoked " A "\n* read\n";

	(void)state;
	assert_int_equal(find(all, a, "gpu7.x"), PL_ACCESS_ALL);
	assert_int_equal(find(all, b, "gpu7.x"), PL_ACCESS_ATOMIC);
	assert_int_equal(find(all, b, "gpu8.x"), PL_ACCESS_READ | PL_ACCESS_WRITE);
	assert_int_equal(find(all, b, "spiffe://x/a/b"), PL_ACCESS_WRITE);
	/* A '*' in the middle stands for one segment of the path. */
	assert_int_equal(find(all, b, "spiffe://x/a/a/b"), PL_ACCESS_READ);
	assert_int_equal(find(all, NULL, ""), PL_ACCESS_READ);
	assert_int_equal(find(revoked, a, ""), -1);
	assert_int_equal(find(revoked, b, ""), PL_ACCESS_READ);
	assert_int_equal(find("revoked *\n" A " all\n", a, ""), -1);
	assert_int_equal(find("revoked name:*.x\n* all\n", a, "g.x"), -1);
	assert_int_equal(find(A " all\n", b, ""), 0);
	assert_int_equal(find(A " all\n", NULL, ""), 0);
	assert_int_equal(find("name:g.x all\n", b, ""), 0);
	assert_int_equal(find("name:g.x all\n", b, "g.x.evil"), 0);
	assert_int_equal(find("spiffe://x/* all\n", b, "spiffe://x/a/b"), PL_ACCESS_ALL);
	assert_int_equal(find("spiffe://x/* all\n", b, "spiffe://x/"), 0);
	assert_int_equal(find("spiffe://x/* all\n", b, "spiffe://xx/a"), 0);
	assert_int_equal(find("", a, "g"), 0);
	assert_int_equal(find("# nothing\n\n \t\r\n", a, "g"), 0);
}

static void test_fields(void **state)
{
	struct pl_authorized *list =
		parse(A "\tread  names=a/*,b/ quota=3G clients=4 until=20300228\t# comment read\n" B " write");
	struct pl_rights rights = PL_RIGHTS_INIT;

	(void)state;
	assert_int_equal(pl_authorized_find(list, a, "", &rights), PL_LISTED);
	assert_string_equal(rights.names, "a/*,b/");
	assert_true(rights.quota == 3ull << 30);
	assert_int_equal(rights.clients, 4);
	assert_true(rights.until == 1898553600ull * PL_NS_PER_S); /* 2030-03-01 00:00 UTC */
	assert_int_equal(pl_authorized_find(list, b, "", &rights), PL_LISTED);
	assert_true(rights.quota == 0 && rights.clients == 0 && rights.until == 0 && !rights.names[0]);
	pl_authorized_free(list);
}

static void test_wrong_lines(void **state)
{
	static const char *const wrong[] = {
		"rubbish\n", "SHA256:short read\n", A "\n", A " \n", A " raed\n", A " read quota\n", A " read quota=\n",
		A " read quota=0\n", A " read quota=-1\n", A " read quota=1X\n", A " read quota=1KK\n",
		A " read quota=99999999999G\n", A " read quota=99999999999999999999\n", A " read clients=65537\n",
		A " read until=20300230\n", A " read until=2030022\n", A " read until=20300228x\n", A " read names=\n",
		A " read rate=1G\n", A " read unknown=1\n", "revoked\n", "revoked " A " read\n", "revoked what\n",
		"name: read\n", A " read x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1\n",
	};
	struct pl_authorized *list;
	struct pl_error error;
	char text[300], line[4096];

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		snprintf(text, sizeof(text), "* read\n\n%s* read\n", wrong[i]);
		if (pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error) != -EINVAL)
			fail_msg("accepted: %s", wrong[i]);
		assert_string_equal(error.id, "AUTHORIZED-SYNTAX");
		assert_string_equal(error.object, "list:3");
		assert_null(list);
	}
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", line, &list, &error), -EINVAL);
	snprintf(text, sizeof(text), "name:%.*s read\n", 256, line);
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error), -EINVAL);
}

static int find_host(const char *text, const char *address, const uint8_t *fingerprint, unsigned *line)
{
	struct pl_error error;

	return pl_known_hosts_find("hosts", text, address, fingerprint, line, &error);
}

static void test_known_hosts(void **state)
{
	static const char text[] = "# hosts\n"
				   "[h]:1,[10.0.0.1]:1 " A " comment\n"
				   "[h]:1 " B "\n"
				   "[*.x]:2 " A "\n"
				   "@revoked * SHA256:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n"
				   "[h]:9 SHA256:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n";
	static const char *const wrong[] = { "[h]:1\n", "[h]:1 x\n", "@revoked *\n", "@cert-authority * " A "\n",
					     "@revoked @revoked " A "\n" };
	struct pl_error error;
	unsigned line;

	(void)state;
	assert_int_equal(find_host(text, "[h]:1", a, &line), PL_HOST_KNOWN);
	assert_int_equal(line, 2);
	assert_int_equal(find_host(text, "[H]:1", b, &line), PL_HOST_KNOWN);
	assert_int_equal(line, 3);
	assert_int_equal(find_host(text, "[10.0.0.1]:1", b, &line), PL_HOST_CHANGED);
	assert_int_equal(line, 2);
	assert_int_equal(find_host(text, "[h]:2", a, &line), PL_HOST_UNKNOWN);
	assert_int_equal(find_host(text, "[g.x]:2", a, &line), PL_HOST_KNOWN);
	assert_int_equal(find_host(text, "[g.x]:2", b, &line), PL_HOST_CHANGED);
	/* A bracket begins an address, not a set of characters. */
	assert_int_equal(find_host(text, "h:1", a, &line), PL_HOST_UNKNOWN);
	assert_int_equal(find_host(text, "[h]:9", c, &line), PL_HOST_REVOKED);
	assert_int_equal(line, 5);
	assert_int_equal(find_host("", "[h]:1", a, &line), PL_HOST_UNKNOWN);
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		assert_int_equal(pl_known_hosts_find("hosts", wrong[i], "[h]:1", a, &line, &error), -EINVAL);
		assert_string_equal(error.id, "KNOWN-HOSTS-SYNTAX");
		assert_string_equal(error.object, "hosts:1");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fingerprints),   cmocka_unit_test(test_order_of_lines),
		cmocka_unit_test(test_fields),         cmocka_unit_test(test_wrong_lines),
		cmocka_unit_test(test_known_hosts),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
