/* SPDX-License-Identifier: BSD-2-Clause */
/* Random words, many of which one system call draws. The owner's lock protects them. */
#ifndef PL_RANDOM_WORDS_H
#define PL_RANDOM_WORDS_H

#include "base/base.h"

struct pl_random_words {
	uint32_t words[64];
	unsigned count; /* words not used yet */
};

/* Stores a word that was drawn for this call alone. Returns 0 or the errno of pl_random(). */
static inline int pl_random_word(struct pl_random_words *random, uint32_t *word)
{
	if (!random->count) {
		int rc = pl_random(random->words, sizeof(random->words));

		if (rc < 0)
			return rc;
		random->count = PL_ARRAY_SIZE(random->words);
	}
	*word = random->words[--random->count];
	return 0;
}

#endif
