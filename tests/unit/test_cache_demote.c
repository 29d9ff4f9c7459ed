/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/cache_demote.h"
#include "support/cases.h"
#include "support/check.h"

#define ROOM 1024

/* Ranges of any alignment keep their bytes. */
static void same_bytes(void *unused)
{
	static uint8_t bytes[ROOM], expected[ROOM];

	(void)unused;
	for (size_t i = 0; i < ROOM; i++)
		expected[i] = (uint8_t)(i * 7 + i / 256 + 1);
	memcpy(bytes, expected, ROOM);
	for (size_t offset = 0; offset < 130; offset += 13)
		for (size_t length = 0; length < 420; length += 19)
			pl_cache_demote(bytes + offset, length);
	check(!memcmp(bytes, expected, ROOM));
}

/* Lines beside the range are not touched: their page may not exist. */
static void page_without_neighbours(void *unused)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	check(pages != MAP_FAILED);
	check_number(mprotect(pages + page, page, PROT_READ | PROT_WRITE), 0);
	memset(pages + page, 1, page);
	pl_cache_demote(pages + page, page);
	pl_cache_demote(pages + page, 1);
	pl_cache_demote(pages + 2 * page - 1, 1);
	check_number(pages[2 * page - 1], 1);
	check_number(munmap(pages, 3 * page), 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "same-bytes", same_bytes, NULL, 10 },
		{ "page-without-neighbours", page_without_neighbours, NULL, 10 },
	};

	return cases_run("cache-demote", cases, PL_ARRAY_SIZE(cases));
}
