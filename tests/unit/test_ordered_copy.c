/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "base/ordered_copy.h"
#include "base/prefetch.h"
#include "support/cases.h"
#include "support/check.h"

#define ROOM 4096

static size_t next_length(size_t length)
{
	/* Up to some lines, and about the length from which a copy loads its destination ahead. */
	if (length < 40)
		return length + 1;
	return length < 420 || length > 1000 ? length + 19 : 1001;
}

/* Copies all bytes, and none beside them, for all alignments. */
static void case_bytes(void *unused)
{
	static _Alignas(128) uint8_t from[ROOM], to[ROOM], expected[ROOM];

	(void)unused;
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (uint8_t)(i * 7 + i / 256 + 1);
	for (size_t offset = 0; offset < 130; offset++) {
		for (size_t length = 0; length < 1700; length = next_length(length)) {
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

/* A line whose first words are read late has no last word until then, in short copies and in long ones. */
static void case_first_line(void *unused)
{
	struct sigaction action = { .sa_handler = look_at_destination };
	size_t lengths[] = { WORDS * sizeof(uint64_t), 0 };

	(void)unused;
	page = lengths[1] = (size_t)sysconf(_SC_PAGESIZE);
	source = map_pages();
	destination = map_pages();
	check_number(sigaction(SIGSEGV, &action, NULL), 0);
	for (size_t i = 0; i < PAGES * page / sizeof(uint64_t); i++)
		source[i] = 1;
	unreadable = 0;
	for (size_t words = 1; words < WORDS; words++) {
		for (size_t i = 0; i < PL_ARRAY_SIZE(lengths); i++) {
			memset(destination, 0, PAGES * page);
			check_number(mprotect(source, page, PROT_NONE), 0);
			pl_copy_ordered(destination, source + page / sizeof(uint64_t) - words, lengths[i]);
		}
	}
	check_number(faults, (WORDS - 1) * PL_ARRAY_SIZE(lengths));
}

/* Prefetching changes nothing, beside the range and within it, and needs no memory there. */
static void case_prefetch(void *unused)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 3 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	check(pages != MAP_FAILED);
	check_number(mprotect(pages + size, size, PROT_READ | PROT_WRITE), 0);
	memset(pages + size, 1, size);
	pl_copy_prefetch(pages, 3 * size);
	pl_copy_prefetch(pages + 2 * size - 1, 1);
	pl_copy_prefetch(NULL, 0);
	for (size_t i = 0; i < size; i++)
		check_number(pages[size + i], 1);
	check_number(munmap(pages, 3 * size), 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "bytes", case_bytes, NULL, 60 },
		{ "order", case_order, NULL, 30 },
		{ "first-line", case_first_line, NULL, 30 },
		{ "prefetch", case_prefetch, NULL, 20 },
	};

	return cases_run("ordered_copy", cases, PL_ARRAY_SIZE(cases));
}
