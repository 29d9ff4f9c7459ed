/* SPDX-License-Identifier: BSD-2-Clause */
/* Probes run apart: what hangs or crashes in them is said, and harms nobody. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "diag/check/probe.h"

static void answers(FILE *to, const void *argument)
{
	fprintf(to, "good.one 1\ngood.two %s\nbad\n", (const char *)argument);
}

static void hangs(FILE *to, const void *argument)
{
	(void)argument;
	fputs("slow.first 1\n", to);
	for (;;)
		pause();
}

static void crashes(FILE *to, const void *argument)
{
	(void)argument;
	fputs("crash.first 1\n", to);
	signal(SIGABRT, SIG_DFL);
	abort();
}

static void talks_without_end(FILE *to, const void *argument)
{
	(void)argument;
	for (unsigned i = 0;; i++)
		if (fprintf(to, "talk.%u %0500u\n", i, i) < 0)
			return;
}

static void test_probes(void **state)
{
	static const struct pl_probe probes[] = {
		{ "good", answers, "two words" },
		{ "slow", hangs, NULL },
		{ "crash", crashes, NULL },
		{ "talk", talks_without_end, NULL },
	};
	struct pl_facts *facts = pl_facts_new();

	(void)state;
	pl_probe_run(facts, probes, PL_ARRAY_SIZE(probes), 5000 * PL_NS_PER_MS);
	assert_string_equal(pl_facts_get(facts, "good.state"), "done");
	assert_int_equal(pl_facts_number(facts, 0, "good.one"), 1);
	assert_string_equal(pl_facts_get(facts, "good.two"), "two words");
	assert_null(pl_facts_get(facts, "bad"));
	assert_string_equal(pl_facts_get(facts, "slow.state"), "hangs");
	assert_int_equal(pl_facts_number(facts, 0, "slow.first"), 1);
	assert_memory_equal(pl_facts_get(facts, "crash.state"), "crashed with signal ", 20);
	assert_int_equal(pl_facts_number(facts, 0, "crash.first"), 1);
	assert_non_null(pl_facts_get(facts, "talk.state"));
	pl_facts_free(facts);
}

static void test_facts(void **state)
{
	static const char text[] = "a 1\n\n b 2\nc\nd  3 \na 9\nlong x";
	struct pl_facts *facts = pl_facts_new(), *again = pl_facts_new();
	const char *value;
	size_t length;
	char *formatted;

	(void)state;
	pl_facts_parse(facts, text, sizeof(text) - 1);
	assert_string_equal(pl_facts_get(facts, "a"), "1");
	assert_null(pl_facts_get(facts, "b"));
	assert_null(pl_facts_get(facts, "c"));
	assert_string_equal(pl_facts_get(facts, "d"), " 3 ");
	assert_string_equal(pl_facts_get(facts, "lo%s", "ng"), "x");
	assert_int_equal(pl_facts_number(facts, -7, "long"), -7);
	pl_facts_set(facts, "e", "two\nlines");
	formatted = pl_facts_format(facts, &length);
	pl_facts_parse(again, formatted, length);
	free(formatted);
	assert_string_equal(pl_facts_get(again, "e"), "two lines");
	assert_string_equal(pl_facts_at(again, 0, &value), "a");
	assert_null(pl_facts_at(again, 4, &value));
	pl_facts_free(facts);
	pl_facts_free(again);
}

/* The whole of it, on whatever machine this is. */
static void test_all(void **state)
{
	struct pl_facts *facts = pl_facts_new();

	(void)state;
	pl_probe_all(facts, 3 * PL_NS_PER_S);
	assert_string_equal(pl_facts_get(facts, "system.name"), "Linux");
	assert_non_null(pl_facts_get(facts, "limit.memlock"));
	assert_non_null(pl_facts_get(facts, "verbs.state"));
	assert_non_null(pl_facts_get(facts, "cuda.state"));
	pl_facts_free(facts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_probes),
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
