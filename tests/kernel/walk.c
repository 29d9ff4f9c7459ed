/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Order of two tasks, enforced at points of the stand-ins: see standin.h. */
#include <linux/export.h>
#include <linux/jiffies.h>
#include <linux/sched.h>

#include "standin_internal.h"

/* Longest wait for the other task: 20 ms.  A task that is not blocked comes to its point within that time. */
#define LIMIT (HZ / 50)

static struct {
	struct gpu_walk at;
	struct task_struct *region;
	struct task_struct *freer;
	bool region_there;
	bool region_done;
	bool freer_there;
	bool freer_done;
} walk;

void standin_walk_set(const struct gpu_walk *set)
{
	memset(&walk, 0, sizeof(walk));
	walk.at = *set;
}

/* Spins until one of two flags is set, or LIMIT is over.  Does not sleep: the task must look preempted, not blocked. */
static void spin_until_either(const bool *one, const bool *other)
{
	unsigned long end = jiffies + LIMIT;

	while (!READ_ONCE(*one) && !READ_ONCE(*other) && time_before(jiffies, end)) {
		cpu_relax();
		cond_resched();
	}
}

void standin_point(enum standin_point point)
{
	if (point < POINT_REGION_END && current == READ_ONCE(walk.region) && point == walk.at.region) {
		WRITE_ONCE(walk.region_there, true);
		spin_until_either(&walk.freer_there, &walk.freer_done);
	}
	if (point >= POINT_FREE && current == READ_ONCE(walk.freer)) {
		if (point == POINT_FREE)
			spin_until_either(&walk.region_there, &walk.region_done);
		if (point == walk.at.freer) {
			WRITE_ONCE(walk.freer_there, true);
			spin_until_either(&walk.region_done, &walk.region_done);
		}
	}
}
EXPORT_SYMBOL(standin_point);

void standin_walk_role(enum standin_role role)
{
	if (role == ROLE_REGION)
		WRITE_ONCE(walk.region, current);
	else if (role == ROLE_FREER)
		WRITE_ONCE(walk.freer, current);
}

int standin_walk_done(void)
{
	if (current == walk.region) {
		WRITE_ONCE(walk.region_done, true);
		WRITE_ONCE(walk.region, NULL);
		return walk.region_there;
	}
	if (current == walk.freer) {
		WRITE_ONCE(walk.freer_done, true);
		WRITE_ONCE(walk.freer, NULL);
		return walk.freer_there;
	}
	return -EINVAL;
}
