/* SPDX-License-Identifier: BSD-2-Clause */
/* Parts of `peerlane fleet`: names of hosts, launchers, documents among noise, and usual values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/fleet/judge.h"
#include "cmd/fleet/launch.h"

/* -- names of hosts -------------------------------------------------------------------------------- */

/* Returns the names, joined by blanks. */
static const char *join_names(const struct host_list *list)
{
	static char text[4096];

	text[0] = '\0';
	for (size_t i = 0; i < list->count; i++) {
		strcat(text, i ? " " : "");
		strcat(text, list->names[i]);
	}
	return text;
}

static void test_expressions(void **state)
{
	static const struct {
		const char *expression, *names;
	} cases[] = {
		{ "node7", "node7" },
		{ "a,b c\td\n,,", "a b c d" },
		{ "node[1-3]", "node1 node2 node3" },
		{ "node[008-010,099-101]", "node008 node009 node010 node099 node100 node101" },
		{ "node[9-11].site", "node9 node10 node11.site" },
		{ "n[1,3]-ib[0-1],x", "n1-ib0 n1-ib1 n3-ib0 n3-ib1 x" },
		{ "root@fe80::1:2", "root@fe80::1:2" },
		{ "[1-2]", "1 2" },
		{ "b[01]a", "b01a" },
		{ "", "" },
	};
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct host_list list = { .count = 0 };

		assert_int_equal(host_list_add(&list, cases[i].expression, &error), 0);
		if (strchr(cases[i].names, '.'))
			assert_string_equal(list.names[2], "node11.site");
		else
			assert_string_equal(join_names(&list), cases[i].names);
		host_list_free(&list);
	}
}

static void test_wrong_expressions(void **state)
{
	static const char *const wrong[] = {
		"a[",
		"a[]",
		"a[1",
		"a[1-]",
		"a[-1]",
		"a[2-1]",
		"a[1-2",
		"a[x]",
		"a[1,]",
		"a[1--2]",
		"a[1]]",
		"a]",
		"a[1[2]]",
		"-o",
		".hidden",
		"a/b",
		"a;b",
		"a$b",
		"a[0-1]/",
		"[0-1],-x",
		"a[1 -2]",
		"a[1234567890]",
		"a[1-1234567890]",
		"a[1][1][1][1][1][1][1][1][1]",
		"[+1]",
	};
	char name[300];
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		struct host_list list = { .count = 0 };

		assert_int_equal(host_list_add(&list, wrong[i], &error), -EINVAL);
		assert_string_equal(error.id, "FLEET-HOSTS");
		host_list_free(&list);
	}
	for (size_t length = FLEET_NAME_MAX; length <= FLEET_NAME_MAX + 1; length++) {
		struct host_list list = { .count = 0 };

		memset(name, 'a', length);
		name[length] = '\0';
		assert_int_equal(host_list_add(&list, name, &error), length > FLEET_NAME_MAX ? -EINVAL : 0);
		memcpy(name + length - 3, "[1]", 4);
		assert_int_equal(host_list_add(&list, name, &error), 0);
		memcpy(name + length - 3, "[1000]", 7);
		assert_int_equal(host_list_add(&list, name, &error), length > FLEET_NAME_MAX - 1 ? -EINVAL : 0);
		host_list_free(&list);
	}
}

static void test_number_of_hosts_is_limited(void **state)
{
	struct host_list list = { .count = 0 };
	struct pl_error error;

	(void)state;
	assert_int_equal(host_list_add(&list, "a[1-128]b[1-128]", &error), 0);
	assert_int_equal(list.count, FLEET_HOSTS_MAX);
	assert_int_equal(host_list_add(&list, "c", &error), -E2BIG);
	host_list_free(&list);
	assert_int_equal(host_list_add(&list, "a[1-999999999]", &error), -E2BIG);
	assert_int_equal(list.count, FLEET_HOSTS_MAX);
	host_list_free(&list);
}

static void test_lines(void **state)
{
	char text[] = "# all\nn[1-2] # first\n\nn3,n4\r\n#n5\n", wrong[] = "a\nb c\n\nd[\n";
	struct host_list list = { .count = 0 };
	struct pl_error error;

	(void)state;
	assert_int_equal(host_list_add_lines(&list, text, "file", &error), 0);
	assert_string_equal(join_names(&list), "n1 n2 n3 n4");
	assert_int_equal(host_list_add_lines(&list, wrong, "file", &error), -EINVAL);
	assert_string_equal(error.object, "file:4");
	host_list_free(&list);
}

static void test_repeated_and_excluded_hosts(void **state)
{
	struct host_list list = { .count = 0 }, without = { .count = 0 };
	struct pl_error error;
	size_t repeated;

	(void)state;
	assert_int_equal(host_list_add(&list, "n[3-1],x", &error), -EINVAL);
	assert_int_equal(host_list_add(&list, "n3,n1,n2,n3,n1,n1", &error), 0);
	assert_int_equal(host_list_reduce(&list, &without, &repeated, &error), 0);
	assert_string_equal(join_names(&list), "n3 n1 n2");
	assert_int_equal(repeated, 3);
	assert_int_equal(host_list_add(&without, "n9,n1,n[20-21]", &error), 0);
	assert_int_equal(host_list_reduce(&list, &without, &repeated, &error), 0);
	assert_string_equal(join_names(&list), "n3 n2");
	assert_int_equal(repeated, 0);
	host_list_free(&list);
	host_list_free(&without);
}

static void test_folded_names(void **state)
{
	static const struct {
		const char *names, *folded;
	} cases[] = {
		{ "node7", "node7" },
		{ "node003 node005 node004 node007", "node[003-005,007]" },
		{ "n9 n10 n11", "n[9-11]" },
		{ "n099 n100", "n[099-100]" },
		{ "n1 n01 n2 n02", "n[1,01,2,02]" },
		{ "b a", "a,b" },
		{ "n1-ib0 n2-ib0", "n[1-2]-ib0" },
		{ "n1-ib0 n1-ib1 n2-ib0 n2-ib1", "n1-ib[0-1],n2-ib[0-1]" },
		{ "n1.site n2.site m", "m,n[1-2].site" },
		{ "10.0.0.1 10.0.0.2 10.0.1.1", "10.0.0.[1-2],10.0.1.1" },
		{ "n1234567890123 n1234567890124", "n1234567890123,n1234567890124" },
		{ "", "" },
	};
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct host_list list = { .count = 0 };
		char *folded;

		assert_int_equal(host_list_add(&list, cases[i].names, &error), 0);
		folded = host_list_fold((const char *const *)list.names, list.count);
		assert_string_equal(folded, cases[i].folded);
		free(folded);
		host_list_free(&list);
	}
}

/* -- launchers ------------------------------------------------------------------------------------- */

/* Returns the words for host h7, each in <>. */
static const char *launch_words(const char *line)
{
	static const char *const command[] = { "/opt/peer lane", "check", "--expect", "driver=58*,it's", NULL };
	static char text[4096];
	struct launch launch;
	struct pl_error error;
	char **words;

	assert_int_equal(launch_parse(&launch, line, &error), 0);
	words = launch_make_words(&launch, "h7", command);
	assert_non_null(words);
	text[0] = '\0';
	for (size_t i = 0; words[i]; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "<%s>", words[i]);
	launch_free_words(words);
	launch_free(&launch);
	return text;
}

#define WORDS "</opt/peer lane><check><--expect><driver=58*,it's>"
#define QUOTED "'/opt/peer lane' check --expect 'driver=58*,it'\\''s'"

static void test_launchers(void **state)
{
	(void)state;
	assert_string_equal(launch_words("srun -w {host} -N1"), "<srun><-w><h7><-N1>" WORDS);
	assert_string_equal(launch_words("a 'b c' \"d '{host}\" e\\ f '' \"g\\\"h\" 'i\\j'"),
			    "<a><b c><d 'h7><e f><><g\"h><i\\j>" WORDS);
	assert_string_equal(launch_words("x-{host}-{host}"), "<x-h7-h7>" WORDS);
	assert_string_equal(launch_words("rsh {host} {command}"), "<rsh><h7><" QUOTED ">");
	assert_string_equal(launch_words("ssh {host}"),
			    "<ssh><-n><-T><-x><-a><-o><BatchMode=yes><-o><ConnectTimeout=10><-o><ServerAliveInterval=5>"
			    "<-o><ServerAliveCountMax=3><-o><LogLevel=ERROR><h7><" QUOTED ">");
	assert_string_equal(
		launch_words("/usr/bin/ssh -ologlevel=QUIET -o 'batchmode no' -o ConnectTimeout=1 "
			     "-o ServerAliveInterval=1 -oServerAliveCountMax=1 -p 2 {host} sudo"),
		"</usr/bin/ssh><-n><-T><-x><-a><-ologlevel=QUIET><-o><batchmode no><-o><ConnectTimeout=1><-o>"
		"<ServerAliveInterval=1><-oServerAliveCountMax=1><-p><2><h7><sudo><" QUOTED ">");
}

static void test_wrong_launchers(void **state)
{
	static const char *const wrong[] = {
		"", " ", "ssh", "ssh host", "ssh '{host}", "ssh \"{host}", "ssh {HOST}", "ssh {ho''st }"
	};
	struct launch launch;
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		assert_int_equal(launch_parse(&launch, wrong[i], &error), -EINVAL);
		assert_string_equal(error.id, "FLEET-LAUNCH");
	}
}

/* -- documents among noise ------------------------------------------------------------------------- */

static enum answer_outcome outcome_of(const char *text)
{
	struct answer answer = { .document = NULL };
	enum answer_outcome outcome;

	answer_read(&answer, FLEET_CHECK, text, strlen(text));
	outcome = answer.outcome;
	assert_true(outcome == ANSWER_DOCUMENT ? answer.document && !*answer.reason
					       : !answer.document && *answer.reason);
	answer_free(&answer);
	return outcome;
}

#define HEAD "\"format\": 1, \"kind\": \"check\", \"version\": \"0.1.0\""

static void test_documents(void **state)
{
	static const struct {
		const char *text;
		enum answer_outcome outcome;
	} cases[] = {
		{ "{" HEAD ", \"checks\": []}", ANSWER_DOCUMENT },
		{ "hello {\"format\": {\n {}{ \"format\" }\n{ \n\t" HEAD ", \"checks\": []} bye { \"format\": 1",
		  ANSWER_DOCUMENT },
		{ "{\"a\": {" HEAD ", \"checks\": []}}", ANSWER_DOCUMENT },
		{ "{" HEAD ", \"x\": \"} \\\" {\", \"checks\": []}", ANSWER_DOCUMENT },
		{ " \n{\"checks\": [], " HEAD "}\r\n\t", ANSWER_DOCUMENT },
		{ "{\"a\": {}, " HEAD ", \"checks\": []}", ANSWER_DOCUMENT },
		{ "{\"checks\": [], \"kind\": \"check\", \"format\": 2}", ANSWER_OTHER_FORMAT },
		{ "{\"checks\": [], \"kind\": \"check\", \"format\": \"1\"}", ANSWER_NO_DOCUMENT },
		{ "{\"checks\": [], \"kind\": \"check\"}", ANSWER_NO_DOCUMENT },
		{ "{\"a\": 0, \"error\": {}}", ANSWER_FAILED },
		{ "{\"a\": 0, \"error\": null, \"out\": {" HEAD ", \"checks\": []}}", ANSWER_DOCUMENT },
		{ "{\"a\": 0, \"kind\": \"result\", \"out\": {" HEAD ", \"checks\": []}}", ANSWER_DOCUMENT },
		{ "{\"a\": 0, \"format\": 1, \"kind\": 2, \"out\": {" HEAD ", \"checks\": []}}", ANSWER_DOCUMENT },
		{ "{\"home\": 93}", ANSWER_NO_DOCUMENT },
		{ "{\"checks\": [], \"kind\"", ANSWER_NO_DOCUMENT },
		{ "{" HEAD ", \"checks\": [", ANSWER_TRUNCATED },
		{ "{" HEAD ", \"checks\": []", ANSWER_TRUNCATED },
		{ "{" HEAD ", \"checks\": \"}", ANSWER_TRUNCATED },
		{ "{" HEAD ", \"checks\": \"\\", ANSWER_TRUNCATED },
		{ "{" HEAD ", \"checks\": []]", ANSWER_NO_DOCUMENT },
		{ "{" HEAD ", \"checks\": [}}", ANSWER_NO_DOCUMENT },
		{ "{" HEAD ", \"checks\": [\"\xff\"]}", ANSWER_NO_DOCUMENT },
		{ "{" HEAD ", \"checks\": {}}", ANSWER_NO_DOCUMENT },
		{ "{" HEAD "}", ANSWER_NO_DOCUMENT },
		{ "{\"format\": 1, \"kind\": \"topo\", \"gpus\": []}", ANSWER_NO_DOCUMENT },
		{ "{\"format\": 2, \"kind\": \"check\", \"checks\": []}", ANSWER_OTHER_FORMAT },
		{ "{\"format\": \"1\", \"kind\": \"check\", \"checks\": []}", ANSWER_OTHER_FORMAT },
		{ "{\"version\": \"9\", \"kind\": \"check\", \"checks\": []}", ANSWER_OTHER_FORMAT },
		{ "{\"error\": {\"message\": \"no\"}}", ANSWER_FAILED },
		{ "{\"error\": {}}", ANSWER_FAILED },
		{ "", ANSWER_NO_DOCUMENT },
		{ "{", ANSWER_NO_DOCUMENT },
		{ "{\"format\"", ANSWER_NO_DOCUMENT },
	};
	char deep[400] = "{" HEAD ", \"checks\": [";

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++)
		assert_int_equal(outcome_of(cases[i].text), cases[i].outcome);
	memset(deep + strlen(deep), '[', 40);
	memset(deep + strlen(deep), ']', 41);
	strcat(deep, "}");
	assert_int_equal(outcome_of(deep), ANSWER_NO_DOCUMENT);
}

/* Noise that looks like documents takes bounded time, and hides a document behind it. */
static void test_noise_is_bounded(void **state)
{
	size_t size = 4u << 20;
	char *text = malloc(size + 64);
	struct answer answer = { .document = NULL };

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i < size; i += 9)
		memcpy(text + i, "{\"error\":", 9);
	answer_read(&answer, FLEET_CHECK, text, size / 9 * 9);
	assert_int_equal(answer.outcome, ANSWER_TRUNCATED);
	answer_free(&answer);
	free(text);
}

/* -- comparison ---------------------------------------------------------------------------------- */

/* Launchers name the host in their messages; a name within another word is another name. */
static void test_own_name_in_messages(void **state)
{
	static const struct {
		const char *text, *host, *expected;
	} cases[] = {
		{ "connect to host n1 port 22", "n1", "connect to host HOST port 22" },
		{ "n1: n12, n1-ib0 and xn1 answer, n1.cluster and n1", "n1",
		  "HOST: n12, n1-ib0 and xn1 answer, HOST.cluster and HOST" },
		{ "n1n1", "n1", "n1n1" },
		{ "", "n1", "" },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		char buffer[200] = "";
		FILE *file = fmemopen(buffer, sizeof(buffer), "w");

		assert_non_null(file);
		fleet_write_without_host(file, cases[i].text, cases[i].host);
		fclose(file);
		assert_string_equal(buffer, cases[i].expected);
	}
}

static void test_usual_counts(void **state)
{
	(void)state;
	assert_true(fleet_is_usual(1, 1));
	assert_false(fleet_is_usual(1, 2));
	assert_true(fleet_is_usual(2, 3));
	assert_false(fleet_is_usual(1, 3));
	assert_true(fleet_is_usual(3, 4));
	assert_false(fleet_is_usual(2, 4));
	assert_false(fleet_is_usual(4, 6));
	assert_true(fleet_is_usual(160, 200));
	assert_false(fleet_is_usual(159, 200));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_expressions),
		cmocka_unit_test(test_wrong_expressions),
		cmocka_unit_test(test_number_of_hosts_is_limited),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_repeated_and_excluded_hosts),
		cmocka_unit_test(test_folded_names),
		cmocka_unit_test(test_launchers),
		cmocka_unit_test(test_wrong_launchers),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_noise_is_bounded),
		cmocka_unit_test(test_own_name_in_messages),
		cmocka_unit_test(test_usual_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
