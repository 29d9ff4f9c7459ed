/* SPDX-License-Identifier: BSD-2-Clause */
/* Random words: one system call draws 64, each of which is returned once. */
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/random_words.h"
#include "support/cases.h"
#include "support/check.h"

static atomic_int calls;

/* Replaces that of the C library in this program. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
	atomic_fetch_add(&calls, 1);
	return syscall(SYS_getrandom, buffer, length, flags);
}

static void drawn_together(void *unused)
{
	struct pl_random_words random = { .count = 0 };
	int before = atomic_load(&calls);

	(void)unused;
	for (int draw = 1; draw <= 2; draw++) {
		for (unsigned left = PL_ARRAY_SIZE(random.words); left--;) {
			uint32_t word;

			check_number(pl_random_word(&random, &word), 0);
			check_number(random.count, left);
			check_number(word, random.words[left]);
		}
		check_number(atomic_load(&calls) - before, draw);
	}
}

static const struct test_case cases[] = {
	{ "drawn-together", drawn_together, NULL, 10 },
};

int main(void)
{
	return cases_run("random-words", cases, sizeof(cases) / sizeof(cases[0]));
}
