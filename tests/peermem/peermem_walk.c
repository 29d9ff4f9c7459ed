/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peermem_walk [broken]: frees memory at every point of a region's life, and has the region go on at every point of the
 * freeing.  With "broken" the module is a copy that must be found out.
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
	/* It may be refused. */
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

/* Returns whether both came to their points. */
static bool walk(const struct rig *rig, uint32_t region, uint32_t freer)
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

			reached += walk(&rig, region, freer);
			orders++;
			/* Whatever the module counts of nothing is counted wrongly. */
			now = ioctl(rig.gpu, GPU_VIOLATIONS) + !!rig_counter("regions") + !!rig_counter("bytes");
			if (now != violations)
				printf("violations: %d, region at %u, freeing at %u\n", now - violations, region,
				       freer);
			violations = now;
			/* One is enough to know, and the next may be worse. */
			if (broken && violations)
				return 0;
			if (!broken && (violations || ioctl(rig.gpu, GPU_PINS) || ioctl(rig.core, CORE_REGIONS)))
				return 1;
		}
	}
	printf("%d orders, in %d of them both came to their points; overtaken %lld, revoked %lld, early %lld\n", orders,
	       reached, rig_counter("overtaken"), rig_counter("revoked"), rig_counter("revoked_early"));
	/* Not every pair of points can be met: one of a callback needs a region. */
	REQUIRE(broken || reached > orders / 3);
	if (!broken)
		rig_require_clean(&rig);
	return broken;
}
