/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peermem_walk [broken]: runs a region's life and the freeing of its memory in every order of their points
 * (standin.h).  With "broken" the module is a copy with a defect, which the program must detect.
 */
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "rig.h"

#define LENGTH (2 * GPU_PAGE)

struct step {
	const struct rig *rig;
	char *memory;
	bool reached;
};

static void *live(void *argument)
{
	struct step *step = argument;
	struct core_region region = { .address = (uintptr_t)step->memory, .length = LENGTH };

	ioctl(step->rig->gpu, GPU_ROLE, ROLE_REGION);
	/* The module may refuse the region. */
	ioctl(step->rig->core, CORE_CYCLE, &region);
	step->reached = ioctl(step->rig->gpu, GPU_ROLE_DONE) == 1;
	return NULL;
}

static void *free_it(void *argument)
{
	struct step *step = argument;

	ioctl(step->rig->gpu, GPU_ROLE, ROLE_FREER);
	rig_free(step->rig, step->memory);
	step->reached = ioctl(step->rig->gpu, GPU_ROLE_DONE) == 1;
	return NULL;
}

/* Runs both tasks in one order.  Returns true if both tasks reached their points. */
static bool run_order(const struct rig *rig, uint32_t region, uint32_t freer)
{
	struct gpu_walk order = { .region = region, .freer = freer };
	struct step one = { .rig = rig, .memory = rig_map(rig, LENGTH, 0) }, other = one;
	pthread_t threads[2];

	REQUIRE(ioctl(rig->gpu, GPU_WALK, &order) == 0);
	REQUIRE(pthread_create(&threads[0], NULL, live, &one) == 0);
	REQUIRE(pthread_create(&threads[1], NULL, free_it, &other) == 0);
	REQUIRE(pthread_join(threads[0], NULL) == 0);
	REQUIRE(pthread_join(threads[1], NULL) == 0);
	munmap(one.memory, LENGTH);
	return one.reached && other.reached;
}

int main(int count, char **arguments)
{
	bool broken = count > 1 && !strcmp(arguments[1], "broken");
	int orders = 0, reached = 0, violations = 0;
	uint32_t region, freer;
	struct rig rig;

	rig_open(&rig);
	for (region = POINT_BEGIN; region < POINT_REGION_END; region++) {
		for (freer = POINT_FREE; freer < POINT_FREE_END; freer++) {
			int now;

			reached += run_order(&rig, region, freer);
			orders++;
			/* No region is left here, so counters other than zero are wrong. */
			now = ioctl(rig.gpu, GPU_VIOLATIONS) + !!rig_counter("regions") + !!rig_counter("bytes");
			if (now != violations)
				printf("violations: %d, region at %u, freeing at %u\n", now - violations, region,
				       freer);
			violations = now;
			/* Stops at the first violation: the next could crash the machine. */
			if (broken && violations)
				return 0;
			if (!broken && (violations || ioctl(rig.gpu, GPU_PINS) || ioctl(rig.core, CORE_REGIONS)))
				return 1;
		}
	}
	printf("%d orders, in %d of them both tasks reached their points; overtaken %lld, revoked %lld, early %lld\n",
	       orders, reached, rig_counter("overtaken"), rig_counter("revoked"), rig_counter("revoked_early"));
	/* Some pairs cannot occur: a point of a callback needs a pinned region. */
	REQUIRE(broken || reached > orders / 3);
	if (!broken)
		rig_require_clean(&rig);
	return broken;
}
