/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moods: faults that happen by chance. STANDIN_MOOD lists them with their chances in 10,000: "rnr:500,status:20".
 * STANDIN_SEED makes the chances repeatable. STANDIN_FAULTS limits the number of each fault (default: no limit).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

#define CERTAIN 10000u

static const char *const names[CARD_FAULTS] = {
	[CARD_ORDER] = "order",
	[CARD_RNR] = "rnr",
	[CARD_LATE] = "late",
	[CARD_CHANNEL] = "channel",
	[CARD_SLOW] = "slow",
	[CARD_ROUTE_LATE] = "route-late",
	[CARD_ROUTE_LOST] = "route-lost",
	[CARD_PATH_LOST] = "path-lost",
	[CARD_LOST] = "lost",
	[CARD_DOUBLED] = "doubled",
	[CARD_STALE] = "stale",
	[CARD_WRONG_NUMBER] = "wrong-number",
	[CARD_STATUS] = "status",
	[CARD_REFUSE] = "refuse",
	[CARD_EVENTS] = "events",
	[CARD_BAD_READS] = "bad-reads",
	[CARD_NO_SRQ] = "no-srq",
	[CARD_TAKEN] = "taken",
	[CARD_NO_LAST] = "no-last",
	[CARD_UNDELIVERED] = "undelivered",
	[CARD_DEREG] = "dereg",
	[CARD_DESTROY] = "destroy",
	[CARD_DEALLOC] = "dealloc",
	[CARD_CGROUP] = "cgroup",
	[CARD_UNANSWERED] = "unanswered",
	[CARD_READ_ORDER] = "read-order",
	[CARD_POLL] = "poll",
	[CARD_POLL_BEHIND] = "poll-behind",
};

static struct {
	pthread_once_t once;
	uint32_t chances[CARD_FAULTS];
	unsigned most;
	uint64_t state;
	unsigned next[CARD_FAULTS]; /* next chances at which it happens */
} mood = { .once = PTHREAD_ONCE_INIT };

static void mood_add(const char *text, size_t length)
{
	size_t name = strcspn(text, ":,");
	char *end;

	for (size_t i = 0; i < CARD_FAULTS; i++) {
		if (strlen(names[i]) != name || strncmp(names[i], text, name))
			continue;
		mood.chances[i] = name < length ? (uint32_t)strtoul(text + name + 1, &end, 10) : CERTAIN;
		return;
	}
	fprintf(stderr, "stand-in card: STANDIN_MOOD has the unknown fault %.*s\n", (int)length, text);
	abort();
}

static void mood_read(void)
{
	const char *text = getenv("STANDIN_MOOD"), *seed = getenv("STANDIN_SEED"), *most = getenv("STANDIN_FAULTS");

	mood.state = (seed ? strtoull(seed, NULL, 10) : 1) * 0x9e3779b97f4a7c15ull + 1;
	mood.most = most ? (unsigned)strtoul(most, NULL, 10) : UINT32_MAX;
	while (text && *text) {
		size_t length = strcspn(text, ",");

		mood_add(text, length);
		text += length + (text[length] == ',');
	}
}

/* xorshift64*; the caller holds the lock. */
uint32_t card_random(uint32_t below)
{
	pthread_once(&mood.once, mood_read);
	mood.state ^= mood.state >> 12;
	mood.state ^= mood.state << 25;
	mood.state ^= mood.state >> 27;
	return below ? (uint32_t)((mood.state * 0x2545f4914f6cdd1dull >> 32) % below) : 0;
}

bool card_happens(enum card_fault fault)
{
	pthread_once(&mood.once, mood_read);
	if (mood.next[fault]) {
		mood.next[fault]--;
		card_counts.faults[fault]++;
		return true;
	}
	if (!mood.chances[fault] || card_counts.faults[fault] >= mood.most || card_random(CERTAIN) >= mood.chances[fault])
		return false;
	card_counts.faults[fault]++;
	return true;
}

void standin_card_faults(enum card_fault fault, unsigned count)
{
	pthread_mutex_lock(&card_lock);
	mood.next[fault] = count;
	pthread_mutex_unlock(&card_lock);
}
