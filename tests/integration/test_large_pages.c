/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that no other process maps lies in large pages: regions over sockets, and frames that a subscriber reads. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define LARGE_PAGE ((size_t)2 << 20)
#define SLOT ((size_t)1 << 20)
#define SLOTS 4u

static const struct setting over_tcp = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};
static const struct setting over_local = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct pages {
	bool shared, large; /* mapped from a file; large pages were asked for */
};

/* Returns what the kernel says of the mapping that has the address. */
static struct pages pages_at(const void *address)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	struct pages pages = { 0 };
	bool here = false;
	char line[512];

	check(file);
	while (fgets(line, sizeof(line), file)) {
		unsigned long begin, end;
		char permissions[8];

		if (sscanf(line, "%lx-%lx %7s", &begin, &end, permissions) == 3) {
			here = begin <= (uintptr_t)address && (uintptr_t)address < end;
			pages.shared |= here && strchr(permissions, 's');
		} else if (here && !strncmp(line, "VmFlags:", 8)) {
			pages.large = strstr(line, " hg");
		}
	}
	fclose(file);
	return pages;
}

static void check_pages(const void *address, bool large)
{
	struct pages pages = pages_at(address);

	check_number(pages.shared, !large);
	/* A kernel without large pages has no such flag. */
	check_number(pages.large, large && access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0);
}

static void check_region(struct pl_context *context, size_t length, bool large)
{
	struct pl_region *region;
	struct pl_error error;
	const char *bytes;

	check_ok(pl_region_allocate(context, length, PL_ACCESS_ALL, &region, &error), &error);
	bytes = pl_region_address(region);
	check_pages(bytes, large);
	check(!large || (uintptr_t)bytes % LARGE_PAGE == 0);
	for (size_t i = 0; i < length; i++)
		check(bytes[i] == 0);
	pl_region_deregister(region);
}

static void test_regions(void *argument)
{
	bool tcp = argument == &over_tcp;
	struct pl_context *context = context_open(argument);
	struct pl_region *region;
	struct pl_error error;

	check_region(context, LARGE_PAGE, tcp);
	check_region(context, 3 * LARGE_PAGE + 1, tcp);
	/* Less would waste a page. */
	check_region(context, LARGE_PAGE - 5000, false);
	check(pl_region_allocate(context, (size_t)1 << 46, PL_ACCESS_LOCAL, &region, &error) == -ENOMEM);
	check_text(error.id, "NO-MEMORY");
	check(pl_region_allocate(context, SIZE_MAX - 5000, PL_ACCESS_LOCAL, &region, &error) == -ENOMEM);
	pl_close(context);
}

/* The publisher's process writes pushed frames, so that it may map their memory. */
static void check_frames(struct scenario_environment *environment, struct pl_publisher *publisher, bool push)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_error error;

	options.overflow = PL_OVERFLOW_BLOCK;
	options.push = push;
	check_ok(pl_subscriber_open(environment->near_peer, "pages", &options, AMPLE_TIME, &subscriber, &error),
		 &error);
	publish_filled(publisher, SLOT);
	check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), 1);
	check_number(pl_frame_query(frame, &info), 0);
	pattern_check(info.data, SLOT, info.sequence, 0);
	check_pages(info.data, !push || environment->setting == &over_tcp);
	pl_frame_release(frame);
	pl_subscriber_close(subscriber);
}

static void test_frames(void *argument)
{
	struct scenario_environment environment;
	struct pl_publisher *publisher;

	environment_open(&environment, argument);
	publisher = open_blocking_publisher(environment.far, "pages", SLOT, SLOTS);
	check_frames(&environment, publisher, false);
	check_frames(&environment, publisher, true);
	pl_publisher_close(publisher);
	environment_close(&environment);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "regions tcp", test_regions, &over_tcp, 20 },
		{ "regions local", test_regions, &over_local, 20 },
		{ "frames tcp", test_frames, &over_tcp, 20 },
		{ "frames local", test_frames, &over_local, 20 },
	};

	return cases_run("large-pages", cases, sizeof(cases) / sizeof(cases[0]));
}
