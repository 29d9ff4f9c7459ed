/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of authorized identities and of known hosts: syntax, and which line decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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
	assert_int_equal(find("* read\n* write\n", a, ""), PL_ACCESS_READ); /* the first of equal lines */
	assert_int_equal(find("", a, "g"), 0);
	assert_int_equal(find("# nothing\n\n \t\r\n", a, "g"), 0);
}

/* Checks patterns with several '*', also those for which trying all lengths of their texts would take years. */
static void test_patterns(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool fits;
	} cases[] = {
		{ "name:*b*d*", "abcde", true },
		{ "name:*b*d*", "abcd", false }, /* the last '*' stands for at least one character */
		{ "name:*b*c", "abcbc", true },
		{ "name:*b*c", "abcb", false },
		{ "name:a*a", "a", false },
		{ "name:*aab", "aaaab", true },
		{ "name:**", "a", true },
		{ "spiffe://x/*a*/b", "spiffe://x/bab/b", true },
		{ "spiffe://x/*a*/b", "spiffe://x/b/a/b", false },
		{ "spiffe://x/*/*/b*", "spiffe://x/1/2/bc/d", true },
		{ "spiffe://x/*/*/b*", "spiffe://x/1/bc/d", false },
	};
	char pattern[300] = "name:", name[300];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(name, sizeof(name), "%s read\n", cases[i].pattern);
		assert_int_equal(find(name, a, cases[i].name), cases[i].fits ? PL_ACCESS_READ : 0);
	}
	/* Bytes behind the end of the name do not count. */
	assert_int_equal(find("name:*b read\n", a, "a\0b"), 0);
	for (int i = 0; i < 60; i++)
		strcat(pattern, "*a");
	memset(name, 'a', 250);
	strcpy(name + 250, "b");
	strcat(pattern, " read\n");
	assert_int_equal(find(pattern, a, name), 0);
}

static void test_fields(void **state)
{
	struct pl_authorized *list =
		parse(A "\tread  names=a/*,b/ quota=3G clients=4 until=20300228 rate=64K imports=65536 requests=50\t# x\n" B
			" write\n* read until=99991231");
	struct pl_rights rights = PL_RIGHTS_INIT;

	(void)state;
	assert_int_equal(pl_authorized_find(list, a, "", &rights), PL_LISTED);
	assert_string_equal(rights.names, "a/*,b/");
	assert_true(rights.quota == 3ull << 30);
	assert_int_equal(rights.clients, 4);
	assert_true(rights.rate == 65536);
	assert_int_equal(rights.imports, 65536);
	assert_int_equal(rights.requests, 50);
	assert_true(rights.until == 1898553600ull * PL_NS_PER_S); /* 2030-03-01 00:00 UTC */
	assert_int_equal(pl_authorized_find(list, NULL, "x", &rights), PL_LISTED);
	assert_true(rights.until > UINT64_MAX - PL_NS_PER_S); /* the last time that can be told */
	assert_int_equal(pl_authorized_find(list, b, "", &rights), PL_LISTED);
	assert_true(rights.quota == 0 && rights.clients == 0 && rights.until == 0 && !rights.names[0]);
	assert_true(rights.rate == 0 && rights.imports == 0 && rights.requests == 0);
	pl_authorized_free(list);
}

static void test_wrong_lines(void **state)
{
	static const char *const wrong[] = {
		"rubbish\n",
		"SHA256:short read\n",
		A "\n",
		A " \n",
		A " raed\n",
		A " read quota\n",
		A " read quota=\n",
		A " read quota=0\n",
		A " read quota=-1\n",
		A " read quota=1X\n",
		A " read quota=1KK\n",
		A " read quota=99999999999G\n",
		A " read quota=99999999999999999999\n",
		A " read clients=65537\n",
		A " read until=20300230\n",
		A " read until=20301301\n",
		A " read until=2030jan1\n",
		A " read until=2030128x\n",
		A " read until=2030022\n",
		A " read until=20300228x\n",
		A " read names=\n",
		/* Later words are right. */
		A " raed quota=1G\n",
		A " read quota=0 clients=1\n",
		A " read unknown=1 quota=1G clients=1\n",
		A " read rate=65535\n",
		A " read rate=63K\n",
		A " read rate=\n",
		A " read rate=-1\n",
		A " read rate=1GB\n",
		A " read rate=16777216T\n",
		A " read imports=0\n",
		A " read imports=65537\n",
		A " read imports=1x\n",
		A " read requests=0\n",
		A " read requests=1000001\n",
		A " read requests=1.5\n",
		A " read unknown=1\n",
		"revoked\n",
		"revoked " A " read\n",
		"revoked what\n",
		"name: read\n",
		A " read x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1 x=1\n",
	};
	struct pl_authorized *list;
	struct pl_error error;
	char text[300];

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		snprintf(text, sizeof(text), "* read\n\n%s* read\n", wrong[i]);
		if (pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error) != -EINVAL)
			fail_msg("accepted: %s", wrong[i]);
		assert_string_equal(error.id, "AUTHORIZED-SYNTAX");
		assert_string_equal(error.object, "list:3");
		assert_null(list);
	}
}

/* Checks that the message names the field and its values, and that long lines and names are refused. */
static void test_messages_of_wrong_lines(void **state)
{
	struct pl_authorized *list;
	struct pl_error error;
	char text[300], line[4096];

	(void)state;
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", A " read until=2027-12-31\n", &list, &error),
			 -EINVAL);
	assert_string_equal(error.message, "until= takes a day, YYYYMMDD; it is: '2027-12-31'");
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", A " read rate=1K\n", &list, &error),
			 -EINVAL);
	assert_string_equal(error.message, "rate= takes bytes a second, at least 64K; it is: '1K'");
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", A " read clients=0\n", &list, &error),
			 -EINVAL);
	assert_string_equal(error.message, "clients= takes 1 to 65536; it is: '0'");
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", line, &list, &error), -EINVAL);
	snprintf(text, sizeof(text), "name:%.*s read\n", 256, line);
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error), -EINVAL);
}

/* Parses one line: `head`, then `count` times `filler`, then `tail`. Returns the status. */
static int parse_long(const char *head, char filler, size_t count, const char *tail)
{
	char *text = calloc(1, strlen(head) + count + strlen(tail) + 1);
	struct pl_authorized *list;
	struct pl_error error;
	int rc;

	assert_non_null(text);
	strcpy(text, head);
	memset(text + strlen(head), filler, count);
	strcat(text, tail);
	rc = pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error);
	pl_authorized_free(list);
	free(text);
	return rc;
}

/* Checks the largest accepted value of each field, and the least refused one. */
static void test_limits(void **state)
{
	static const char *const good[] = {
		A " read quota=1", A " read quota=9", A " read quota=01", A " read quota=18014398509481983K",
		A " read clients=65536",
		A " read quota=18446744073709551615", A " read until=19700101",
	};
	static const size_t names = sizeof(((struct pl_rights *)NULL)->names);
	struct pl_authorized *list;
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(good); i++) {
		assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", good[i], &list, &error), 0);
		pl_authorized_free(list);
	}
	assert_int_equal(parse_long(A " read quota=18014398509481984K", ' ', 0, ""), -EINVAL);
	assert_int_equal(parse_long(A " read quota=:", ' ', 0, ""), -EINVAL);
	assert_int_equal(parse_long(A " read until=19691231", ' ', 0, ""), -EINVAL);
	assert_int_equal(parse_long(A " read names=", 'n', names - 1, ""), 0);
	assert_int_equal(parse_long(A " read names=", 'n', names, ""), -EINVAL);
	assert_int_equal(parse_long("name:", 'n', 255, " read"), 0);
	assert_int_equal(parse_long("name:", 'n', 256, " read"), -EINVAL);
	assert_int_equal(parse_long("spiffe://", 'n', 256 - 9, " read"), -EINVAL);
	assert_int_equal(parse_long("# ", 'n', 2045, ""), 0);
	assert_int_equal(parse_long("# ", 'n', 2046, ""), -EINVAL);
}

/* Checks that a field may be there once in a line, in any place and whatever its values, and that the error names it. */
static void test_repeated_fields(void **state)
{
	static const char *const fields[][2] = {
		{ "names=", "a/*" }, { "quota=", "1G" },   { "until=", "20300228" }, { "rate=", "1M" },
		{ "clients=", "4" }, { "imports=", "50" }, { "requests=", "7" },
	};
	struct pl_authorized *list;
	struct pl_error error;
	char all[200] = "", text[400], fact[100];

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(fields); i++) {
		size_t length = strlen(all);

		snprintf(all + length, sizeof(all) - length, " %s%s", fields[i][0], fields[i][1]);
	}
	/* Lines of their own may have equal fields. */
	snprintf(text, sizeof(text), A " read%s\n" B " read%s\n", all, all);
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error), 0);
	pl_authorized_free(list);
	for (size_t i = 0; i < PL_ARRAY_SIZE(fields); i++) {
		const char *const second[] = { fields[i][1], "wrong" };

		for (size_t k = 0; k < PL_ARRAY_SIZE(second); k++) {
			snprintf(text, sizeof(text), "* read\n" A " read%s %s%s\n", all, fields[i][0], second[k]);
			assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error),
					 -EINVAL);
			assert_null(list);
			assert_string_equal(error.id, "AUTHORIZED-SYNTAX");
			assert_string_equal(error.object, "list:2");
			snprintf(fact, sizeof(fact), "%s is there twice; the second is: '%s'", fields[i][0], second[k]);
			assert_string_equal(error.message, fact);
		}
	}
}

/* Checks the error of a line with this number of words. */
static const char *error_of_words(unsigned count, struct pl_error *error)
{
	char text[400] = A " read";
	struct pl_authorized *list;

	for (unsigned i = 2; i < count; i++)
		strcat(text, " quota=1");
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, error), -EINVAL);
	return error->message;
}

static void test_most_words(void **state)
{
	struct pl_error error;

	(void)state;
	assert_non_null(strstr(error_of_words(16, &error), "twice"));
	assert_string_equal(error_of_words(17, &error), "too many words: 'quota=1'");
}

static void test_most_lines(void **state)
{
	static const char line[] = "* read\n";
	size_t most = 65536, length = strlen(line);
	char *text = malloc((most + 1) * length + 1);
	struct pl_authorized *list;
	struct pl_error error;

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i <= most; i++)
		memcpy(text + i * length, line, length + 1);
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error), -EINVAL);
	assert_string_equal(error.object, "list:65537");
	strcpy(text + most * length, "\n#\n"); /* lines without words do not count */
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, "list", text, &list, &error), 0);
	pl_authorized_free(list);
	free(text);
}

static int find_host(const char *text, const char *address, const uint8_t *fingerprint, unsigned *line)
{
	struct pl_error error;

	return pl_known_hosts_find("hosts", text, address, fingerprint, line, &error);
}

/* Errors about a long path have its end: the name of the file, and the line. */
static void test_errors_in_long_paths(void **state)
{
	struct pl_authorized *list;
	struct pl_error error;
	char path[300], text[] = "\nwrong\n", hosts[] = "wrong\n";
	uint8_t fingerprint[PL_FINGERPRINT] = { 0 };
	unsigned line;

	(void)state;
	memset(path, 'x', sizeof(path));
	memcpy(path + sizeof(path) - sizeof("/list"), "/list", sizeof("/list"));
	assert_int_equal(pl_authorized_parse(&pl_system_allocator, path, text, &list, &error), -EINVAL);
	assert_non_null(strstr(error.object, "x/list:2"));
	assert_int_equal(pl_known_hosts_find(path, hosts, "[h]:1", fingerprint, &line, &error), -EINVAL);
	assert_non_null(strstr(error.object, "x/list:1"));
}

static void test_known_hosts(void **state)
{
	static const char text[] = "# hosts\n"
				   "[h]:1,[10.0.0.1]:1 " A " comment\n"
				   "[h]:1 " B "\n"
				   "[*.x]:2 " A "\n"
				   "@revoked * SHA256:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n"
				   "[h]:9 SHA256:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n";
	static const char *const wrong[] = { "[h]:1\n", "[h]:1 x\n", "@revoked\n", "@revoked *\n",
					     "@cert-authority * " A "\n",
					     "@revoked @revoked " A "\n" };
	struct pl_error error;
	char comment[4097];
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
	assert_int_equal(find_host("[h]:1] " A "\n", "h", a, &line), PL_HOST_UNKNOWN);
	/* The first of equal lines is named. */
	assert_int_equal(find_host("\n[h]:1 " A "\n[h]:1 " A "\n", "[h]:1", a, &line), PL_HOST_KNOWN);
	assert_int_equal(line, 2);
	memset(comment, '#', sizeof(comment));
	comment[4096] = '\0';
	assert_int_equal(find_host(comment, "[h]:1", a, &line), -EINVAL);
	comment[4095] = '\0';
	assert_int_equal(find_host(comment, "[h]:1", a, &line), PL_HOST_UNKNOWN);
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		assert_int_equal(pl_known_hosts_find("hosts", wrong[i], "[h]:1", a, &line, &error), -EINVAL);
		assert_string_equal(error.id, "KNOWN-HOSTS-SYNTAX");
		assert_string_equal(error.object, "hosts:1");
	}
}

/* -- adding known hosts ---------------------------------------------------------------------------------- */

static char folder[32];

static void write_hosts(const char *text)
{
	FILE *file = fopen("hosts", "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void assert_hosts(const char *expected)
{
	char text[1000] = "";
	FILE *file = fopen("hosts", "r");

	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(text, expected);
}

static int add_host(const char *path, const char *address)
{
	struct pl_error error;
	unsigned line;
	int known, rc = pl_known_hosts_add(&pl_system_allocator, path, address, a, &known, &line, &error);

	if (rc < 0)
		assert_string_equal(error.id, "SYSTEM");
	return rc;
}

static int add_host_failing(const char *path, const char *address)
{
	struct pl_error error;
	unsigned line;
	int known, rc = pl_known_hosts_add(&pl_system_allocator, path, address, a, &known, &line, &error);

	assert_string_equal(error.id, "FILE-UNSAFE");
	assert_non_null(strstr(error.object, ".new"));
	return rc;
}

static int enter_folder(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/known-hosts-XXXXXX");
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	(void)state;
	unlink("hosts");
	unlink("hosts.lock");
	return chdir("/") || rmdir(folder);
}

static void test_add_host(void **state)
{
	(void)state;
	assert_int_equal(add_host("hosts", "[h]:1"), 0);
	assert_hosts("[h]:1 " A "\n");
	assert_int_equal(add_host("hosts", "[h]:2"), 0);
	assert_hosts("[h]:1 " A "\n[h]:2 " A "\n");
	write_hosts("[h]:1 " B); /* without an end of line */
	assert_int_equal(add_host("hosts", "[h]:2"), 0);
	assert_hosts("[h]:1 " B "\n[h]:2 " A "\n");
	write_hosts("");
	assert_int_equal(add_host("hosts", "[h]:3"), 0);
	assert_hosts("[h]:3 " A "\n");
	/* Another process was faster, with this identity or with another. */
	assert_int_equal(add_host("hosts", "[h]:3"), 0);
	assert_hosts("[h]:3 " A "\n");
	write_hosts("[h]:3 " B "\n");
	assert_int_equal(add_host("hosts", "[h]:3"), 0);
	assert_hosts("[h]:3 " B "\n");
}

/* The file may be shared: its mode stays, and a symbolic link to it. */
static void test_add_host_to_shared_file(void **state)
{
	struct stat file;

	(void)state;
	write_hosts("[h]:1 " B "\n");
	assert_int_equal(chmod("hosts", 0644), 0);
	assert_int_equal(symlink("hosts", "link"), 0);
	assert_int_equal(add_host("link", "[h]:2"), 0);
	assert_hosts("[h]:1 " B "\n[h]:2 " A "\n");
	assert_int_equal(lstat("link", &file), 0);
	assert_true(S_ISLNK(file.st_mode));
	assert_int_equal(stat("hosts", &file), 0);
	assert_int_equal(file.st_mode & 0777, 0644);
	assert_int_equal(unlink("link"), 0);
	/* Only a privileged process may set any group. */
	if (geteuid() != 0 || chown("hosts", 0, 12345) < 0)
		return;
	assert_int_equal(add_host("hosts", "[h]:3"), 0);
	assert_int_equal(stat("hosts", &file), 0);
	assert_int_equal(file.st_uid, 0);
	assert_int_equal(file.st_gid, 12345);
	assert_int_equal(file.st_mode & 0777, 0644);
}

/* Checks that a failed write leaves the file as it was. */
static void test_add_host_to_full_disk(void **state)
{
	struct rlimit limit, small;

	(void)state;
	write_hosts("[h]:1 " B "\n");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = 60;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(add_host("hosts", "[h]:2"), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_hosts("[h]:1 " B "\n");
	assert_int_equal(access("hosts.new", F_OK), -1);
}

/* Checks that a FIFO in the place of the new file stays, and that nothing waits for its other end. */
static void test_add_host_beside_fifo(void **state)
{
	char byte;
	int reader;

	(void)state;
	write_hosts("[h]:1 " B "\n");
	assert_int_equal(mkfifo("hosts.new", 0600), 0);
	assert_int_equal(add_host_failing("hosts", "[h]:2"), -EACCES);
	reader = open("hosts.new", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_int_equal(add_host_failing("hosts", "[h]:2"), -EACCES);
	assert_int_equal(read(reader, &byte, 1), 0);
	close(reader);
	assert_hosts("[h]:1 " B "\n");
	assert_int_equal(unlink("hosts.new"), 0);
	assert_int_equal(add_host("hosts", "[h]:2"), 0);
}

static void *release_lock(void *argument)
{
	usleep(100000);
	close(*(int *)argument);
	return NULL;
}

/* Waits for another process's lock, and gives up after 5 s. */
static void test_add_host_beside_others(void **state)
{
	int fd = open("hosts.lock", O_RDWR | O_CREAT, 0600);
	pthread_t thread;
	uint64_t began;

	(void)state;
	write_hosts("[h]:1 " B "\n");
	assert_int_equal(flock(fd, LOCK_EX), 0);
	began = pl_now();
	assert_int_equal(add_host("hosts", "[h]:2"), -ETIMEDOUT);
	assert_true(pl_now() - began >= 5 * PL_NS_PER_S);
	assert_hosts("[h]:1 " B "\n");
	assert_int_equal(pthread_create(&thread, NULL, release_lock, &fd), 0);
	assert_int_equal(add_host("hosts", "[h]:2"), 0);
	pthread_join(thread, NULL);
	assert_hosts("[h]:1 " B "\n[h]:2 " A "\n");
}

static void test_add_host_with_long_path(void **state)
{
	char path[4097] = "";
	size_t length = 4090; /* the lock's path has 4,095 bytes, the most of a system call */

	(void)state;
	for (size_t i = 0; i + 5 < length; i++)
		path[i] = i % 2 && i + 6 < length ? '/' : '.';
	strcpy(path + length - 6, "/hosts");
	assert_int_equal(add_host(path, "[h]:1"), 0);
	/* The path of an existing file is shortened. */
	assert_int_equal(unlink("hosts"), 0);
	memmove(path + 2, path + 1, length);
	path[1] = '/';
	assert_int_equal(add_host(path, "[h]:1"), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fingerprints),
		cmocka_unit_test(test_order_of_lines),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_wrong_lines),
		cmocka_unit_test(test_messages_of_wrong_lines),
		cmocka_unit_test(test_errors_in_long_paths),
		cmocka_unit_test(test_known_hosts),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_repeated_fields),
		cmocka_unit_test(test_most_words),
		cmocka_unit_test(test_most_lines),
		cmocka_unit_test_setup_teardown(test_add_host, enter_folder, leave_folder),
		cmocka_unit_test_setup_teardown(test_add_host_to_shared_file, enter_folder, leave_folder),
		cmocka_unit_test_setup_teardown(test_add_host_to_full_disk, enter_folder, leave_folder),
		cmocka_unit_test_setup_teardown(test_add_host_beside_fifo, enter_folder, leave_folder),
		cmocka_unit_test_setup_teardown(test_add_host_beside_others, enter_folder, leave_folder),
		cmocka_unit_test_setup_teardown(test_add_host_with_long_path, enter_folder, leave_folder),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
