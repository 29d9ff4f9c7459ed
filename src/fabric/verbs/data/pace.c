/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limit of the bytes that a rail has under way.
 *
 * Usually there is no limit. But a device sends again all packets after a lost or overtaken one, some devices wait for
 * a timeout first, and after a few attempts the connection breaks. So a broken connection gets a limit, and its rate is
 * measured. At a poor rate one packet is sent at a time, so that none can be overtaken. From time to time a higher
 * limit is tried, less often after each failure; a limit that is at least as fast is kept, and the next one tried.
 */
#include "fabric/verbs/verbs.h"

/* Bytes under way after a connection broke. */
#define LIMIT_FIRST (64u << 10)
#define LIMIT_GROWTH 4
/* Time of one measurement, and number of measurements at one packet before a higher limit is tried. */
#define SPELL (250 * PL_NS_PER_MS)
#define PATIENCE_FIRST 4
#define PATIENCE_MAX 64
/* A rate below this is poor, in bytes per second, while no good rate is known. */
#define RATE_POOR (512u << 10)
#define PACKET_DEFAULT 1024u

static void begin_spell(struct verbs_pace *pace, uint64_t now)
{
	pace->began = now;
	pace->bytes = 0;
}

/* Keeps this limit as the highest good one; its rate is not known yet. */
static void settle_limit(struct verbs_pace *pace, uint32_t bytes)
{
	pace->base = bytes;
	pace->rate = 0;
	pace->patience = PATIENCE_FIRST;
}

static void set_limit(struct verbs_pace *pace, uint32_t bytes)
{
	pace->limit = bytes;
	pace->spells = 0;
}

void verbs_pace_open(struct verbs_pace *pace)
{
	*pace = (struct verbs_pace){ .limit = VERBS_UNLIMITED, .packet = PACKET_DEFAULT };
	settle_limit(pace, PACKET_DEFAULT);
}

void verbs_pace_connect(struct verbs_pace *pace, enum ibv_mtu mtu)
{
	if (mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096)
		pace->packet = 128u << mtu;
	pace->base = PL_MAX(pace->base, pace->packet);
}

void verbs_pace_broke(struct verbs_pace *pace, uint64_t now)
{
	if (pace->limit != VERBS_UNLIMITED)
		return;
	settle_limit(pace, pace->packet);
	set_limit(pace, LIMIT_FIRST);
	begin_spell(pace, now);
}

static void grow_limit(struct verbs_pace *pace)
{
	if (pace->limit < VERBS_CHUNK) {
		set_limit(pace, pace->limit * LIMIT_GROWTH);
		return;
	}
	set_limit(pace, VERBS_UNLIMITED);
}

/* Updates the rate of the good limit, and decides whether to try a higher one. */
static void keep_limit(struct verbs_pace *pace, uint64_t rate)
{
	if (pace->base > pace->packet && rate < pace->rate / 2) {
		settle_limit(pace, pace->packet);
		set_limit(pace, pace->packet);
		return;
	}
	pace->rate = rate;
	if (++pace->spells >= pace->patience)
		set_limit(pace, pace->base * LIMIT_GROWTH);
}

/* Judges a higher limit. A rate one eighth lower may be chance. */
static void judge_limit(struct verbs_pace *pace, uint64_t rate)
{
	if (rate >= (pace->rate ? pace->rate - pace->rate / 8 : RATE_POOR)) {
		if (pace->rate) {
			settle_limit(pace, pace->limit);
			pace->rate = rate;
		}
		grow_limit(pace);
		return;
	}
	if (pace->rate)
		pace->patience = (uint8_t)PL_MIN(2u * pace->patience, PATIENCE_MAX);
	set_limit(pace, pace->base);
}

void verbs_pace_done(struct verbs_pace *pace, uint64_t bytes, bool idle, uint64_t now)
{
	uint64_t rate;

	pace->bytes += bytes;
	if (now - pace->began < SPELL) {
		/* A low demand does not make the limit slow. */
		if (idle)
			begin_spell(pace, now);
		return;
	}
	rate = pace->bytes * PL_NS_PER_S / (now - pace->began);
	begin_spell(pace, now);
	if (pace->limit == pace->base)
		keep_limit(pace, rate);
	else
		judge_limit(pace, rate);
}
