/* SPDX-License-Identifier: BSD-2-Clause */
#include "engine/pace.h"

void pl_pace_note(struct pl_pace *pace, uint64_t now, bool taken)
{
	if (!taken) {
		pace->doublings -= pace->doublings > 0;
		pace->look_at = now + PL_PACE_LOOK_TIME;
		return;
	}
	pace->look_at = now + (PL_PACE_REST_LEAST << pace->doublings);
	atomic_store_explicit(&pace->rest_end, pace->look_at, memory_order_relaxed);
	pace->doublings += pace->doublings < PL_PACE_DOUBLINGS;
}
