/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether what is under way gets anywhere.
 *
 * Where packets overtake each other, devices that take them in order only send all that is under way again and again,
 * which need not break the connection.  If nothing is done for a while, and meanwhile the device counts packets
 * that it sent again, the connection is broken from here, so that less is under way on the next (pace.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "fabric/verbs/verbs.h"

/* How often it is looked, and how many packets more were sent again than loss of a few in a hundred makes. */
#define SPELL (250 * PL_NS_PER_MS)
#define MANY 32
/* Then requests are so small that some are done between two looks. */
#define CHUNK (512u << 10)

static uint64_t read_counter(const struct verbs_rail *rail, const char *name)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/hw_counters/%s", rail->device->name,
		 rail->id->port_num, name);
	pl_read_head(path, text, sizeof(text));
	return strtoull(text, NULL, 10);
}

/* How often the port had to send something again because it arrived out of order; 0 if the device does not count. */
static uint64_t sent_again(const struct verbs_rail *rail)
{
	static const char *const names[] = {
		"rcvd_seq_err", "completer_retry_err",   /* soft-RoCE: writes, reads */
		"packet_seq_err", "implied_nak_seq_err", /* mlx5 */
	};
	uint64_t sum = 0;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(names); i++)
		sum += read_counter(rail, names[i]);
	return sum;
}

void verbs_watch_begin(struct verbs_rail *rail)
{
	rail->watch_done = rail->completed;
	rail->watch_stalled = false;
	pl_timer_set(rail->endpoint->base.peer->home, &rail->watch, pl_now() + SPELL);
}

void verbs_watch_look(struct pl_timer *timer)
{
	struct verbs_rail *rail = pl_container_of(timer, struct verbs_rail, watch);
	uint64_t now = pl_now(), again;

	/* The next request begins it anew. */
	if (rail->link != VERBS_UP || rail->posted_bytes < VERBS_WATCH_BYTES || rail->pace.limit != VERBS_UNLIMITED)
		return;
	if (rail->completed != rail->watch_done) {
		verbs_watch_begin(rail);
		return;
	}
	again = sent_again(rail);
	if (rail->watch_stalled && again - rail->watch_again >= MANY) {
		rail->chunk = PL_MIN(rail->chunk, CHUNK);
		verbs_pace_broke(&rail->pace, now);
		verbs_fail(rail);
		return;
	}
	rail->watch_stalled = true;
	rail->watch_again = again;
	pl_timer_set(rail->endpoint->base.peer->home, timer, now + SPELL);
}
