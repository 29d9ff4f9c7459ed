/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/ordered_copy.h"
#include "support/cases.h"
#include "support/check.h"

#define ROOM 1024

/* Copies all bytes, and none beside them, for all alignments. */
static void case_bytes(void *unused)
{
	static _Alignas(128) uint8_t from[ROOM], to[ROOM], expected[ROOM];

	(void)unused;
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (uint8_t)(i * 7 + i / 256 + 1);
	for (size_t offset = 0; offset < 130; offset++) {
		for (size_t length = 0; length < 420; length += length < 40 ? 1 : 19) {
			size_t shift = (offset * 5 + length) % 17;

			memset(to, 0, ROOM);
			memset(expected, 0, ROOM);
			memcpy(expected + offset, from + shift, length);
			pl_copy_ordered(to + offset, from + shift, length);
			check(!memcmp(to, expected, ROOM));
		}
	}
}

/* -- the order of stores -------------------------------------------------------------------------- */

#define WORDS 16u /* of a line */
#define PAGES 8u

static uint64_t *source, *destination;
static size_t page, unreadable; /* bytes; number of a page of the source */
static unsigned faults;

/* Every line whose last word is there must be there as a whole. */
static void check_lines(size_t bytes)
{
	for (size_t line = 0; line < bytes / sizeof(uint64_t); line += WORDS)
		for (size_t word = 0; destination[line + WORDS - 1] && word < WORDS; word++)
			check_number(destination[line + word], 1);
}

/* The copy has come to the unreadable page: shows which stores it did before. */
static void look_at_destination(int number)
{
	(void)number;
	faults++;
	check_lines(PAGES * page);
	check_number(mprotect((char *)source + unreadable * page, page, PROT_READ | PROT_WRITE), 0);
}

static void *map_pages(void)
{
	void *pages = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(pages != MAP_FAILED);
	return pages;
}

/* No line has its last word before its other words, wherever the copy stands. */
static void case_order(void *unused)
{
	struct sigaction action = { .sa_handler = look_at_destination };

	(void)unused;
	page = (size_t)sysconf(_SC_PAGESIZE);
	source = map_pages();
	destination = map_pages();
	check_number(sigaction(SIGSEGV, &action, NULL), 0);
	for (size_t i = 0; i < PAGES * page / sizeof(uint64_t); i++)
		source[i] = 1;
	/* The source is shifted by whole words, so that a line of the destination lies in two pages of the source. */
	for (size_t shift = 0; shift < WORDS; shift++) {
		for (unreadable = 0; unreadable < PAGES; unreadable++) {
			memset(destination, 0, PAGES * page);
			check_number(mprotect((char *)source + unreadable * page, page, PROT_NONE), 0);
			pl_copy_ordered(destination, source + shift, (PAGES - 1) * page);
			check_lines(PAGES * page);
			check_number(mprotect((char *)source + unreadable * page, page, PROT_READ | PROT_WRITE), 0);
		}
	}
	check(faults >= WORDS * (PAGES - 1));
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "bytes", case_bytes, NULL, 20 },
		{ "order", case_order, NULL, 30 },
	};

	return cases_run("ordered_copy", cases, PL_ARRAY_SIZE(cases));
}
