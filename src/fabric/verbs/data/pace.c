/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much a rail has under way.
 *
 * As a rule there is no limit.  But devices send again all that follows a packet that is lost or overtaken,
 * some wait for a time-out before they do, and after a few times in vain the connection breaks.  So after one broke,
 * less is under way, and its rate is looked at.  If that is poor, packets go one at a time: nothing can overtake
 * anything then.  Now and then some more are tried, rarer each time it comes to nothing; what goes at least as
 * fast is kept, and still more is tried.
 */
#include "fabric/verbs/verbs.h"

/* After a connection broke. */
#define LIMIT_FIRST (64u << 10)
#define LIMIT_GROWTH 4
/* How long a rate is measured, and in how many such times at one packet nothing else is tried. */
#define SPELL (250 * PL_NS_PER_MS)
#define PATIENCE_FIRST 4
#define PATIENCE_MAX 64
/* Bytes per second that are few, before it is known what goes well. */
#define RATE_POOR (512u << 10)
#define PACKET_DEFAULT 1024u

static void begin_spell(struct verbs_pace *pace, uint64_t now)
{
	pace->began = now;
	pace->bytes = 0;
}

/* The most that is known to go well; its rate is not known yet. */
static void settle(struct verbs_pace *pace, uint32_t bytes)
{
	pace->base = bytes;
	pace->rate = 0;
	pace->patience = PATIENCE_FIRST;
}

static void limit(struct verbs_pace *pace, uint32_t bytes)
{
	pace->limit = bytes;
	pace->spells = 0;
}

void verbs_pace_open(struct verbs_pace *pace)
{
	*pace = (struct verbs_pace){ .limit = VERBS_UNLIMITED, .packet = PACKET_DEFAULT };
	settle(pace, PACKET_DEFAULT);
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
	settle(pace, pace->packet);
	limit(pace, LIMIT_FIRST);
	begin_spell(pace, now);
}

static void grow(struct verbs_pace *pace)
{
	if (pace->limit < VERBS_CHUNK) {
		limit(pace, pace->limit * LIMIT_GROWTH);
		return;
	}
	limit(pace, VERBS_UNLIMITED);
}

/* At what went well: how well it does now, and whether it is time to try more. */
static void keep(struct verbs_pace *pace, uint64_t rate)
{
	if (pace->base > pace->packet && rate < pace->rate / 2) {
		settle(pace, pace->packet);
		limit(pace, pace->packet);
		return;
	}
	pace->rate = rate;
	if (++pace->spells >= pace->patience)
		limit(pace, pace->base * LIMIT_GROWTH);
}

/* More than that was tried.  An eighth less may be chance. */
static void judge(struct verbs_pace *pace, uint64_t rate)
{
	if (rate >= (pace->rate ? pace->rate - pace->rate / 8 : RATE_POOR)) {
		if (pace->rate) {
			settle(pace, pace->limit);
			pace->rate = rate;
		}
		grow(pace);
		return;
	}
	if (pace->rate)
		pace->patience = (uint8_t)PL_MIN(2u * pace->patience, PATIENCE_MAX);
	limit(pace, pace->base);
}

void verbs_pace_done(struct verbs_pace *pace, uint64_t bytes, bool idle, uint64_t now)
{
	uint64_t rate;

	pace->bytes += bytes;
	if (now - pace->began < SPELL) {
		/* What nobody asked for does not make it slow. */
		if (idle)
			begin_spell(pace, now);
		return;
	}
	rate = pace->bytes * PL_NS_PER_S / (now - pace->began);
	begin_spell(pace, now);
	if (pace->limit == pace->base)
		keep(pace, rate);
	else
		judge(pace, rate);
}
