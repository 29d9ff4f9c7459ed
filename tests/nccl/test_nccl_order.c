/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Order of the bytes of a message that a GPU reads before NCCL learns of its end. With the protocols LL and LL128 kernels
 * poll flags in the receive buffer: a flag must not appear before the data that it stands for.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "end_buffer.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

/* Messages of a protocol: lines of this number of words, the last of which has the flag. */
struct form {
	const char *fabric; /* "self": both ends are this process */
	size_t words;
	size_t bytes_max; /* of a message */
	unsigned rounds;
};

/* LL: a word of 4 bytes of data, and the flag above. LL128: 120 bytes of data, and the flag. */
#define LL(fabric) { fabric, 1, (size_t)64 << 10, 800 }
#define LL128(fabric) { fabric, 16, (size_t)600 << 10, 800 }

static uint64_t content_of(size_t index, uint32_t round)
{
	return (index + 1) * 0x9e3779b97f4a7c15ull * round;
}

static uint64_t word_of(const struct form *form, size_t index, uint32_t round)
{
	if (form->words == 1)
		return (uint64_t)round << 32 | (uint32_t)content_of(index, round);
	return index % form->words == form->words - 1 ? round : content_of(index, round);
}

static bool flag_is_set(const struct form *form, uint64_t word, uint32_t round)
{
	return form->words == 1 ? word >> 32 == round : word == round;
}

/* Sizes from one line to the largest message, each of them often. */
static size_t round_bytes(const struct form *form, uint32_t round)
{
	size_t bytes = form->words * sizeof(uint64_t);

	while (bytes < form->bytes_max && round % 16) {
		bytes *= 2;
		round--;
	}
	return bytes < form->bytes_max ? bytes : form->bytes_max;
}

/* -- the reader ----------------------------------------------------------------------------------- */

struct reader {
	const struct form *form;
	const uint64_t *data;
	_Atomic uint32_t round; /* to be read; UINT32_MAX: the end */
	_Atomic uint32_t seen;  /* was read whole */
};

/* Waits for the flag of a line, and checks its data at once. */
static void read_line(const struct reader *reader, size_t line, uint32_t round)
{
	const struct form *form = reader->form;
	const uint64_t *words = reader->data + line * form->words;
	uint64_t flag;

	for (unsigned polls = 1;; polls++) {
		flag = __atomic_load_n(&words[form->words - 1], __ATOMIC_ACQUIRE);
		if (flag_is_set(form, flag, round))
			break;
		/* The writer may need the processor. */
		if (polls % 1024 == 0)
			sched_yield();
	}
	for (size_t i = 0; i + 1 < form->words; i++)
		if (__atomic_load_n(&words[i], __ATOMIC_RELAXED) != word_of(form, line * form->words + i, round))
			check_failed(__FILE__, __LINE__, "round %u: the flag of line %zu came before word %zu", round,
				     line, i);
	if (flag != word_of(form, line * form->words + form->words - 1, round))
		check_failed(__FILE__, __LINE__, "round %u: the flag of line %zu came before its data", round, line);
}

/* Begins at the first line, or at the first of a piece, or anywhere, as the blocks of a kernel do. */
static size_t first_line(size_t lines, size_t line_bytes, uint32_t round)
{
	const size_t piece = ((size_t)256 << 10) / line_bytes;

	switch (round % 4) {
	case 0:
		return piece % lines;
	case 1:
		return 2 * piece % lines;
	case 2:
		return content_of(round, 1) % lines;
	default:
		return 0;
	}
}

static void *run_reader(void *argument)
{
	struct reader *reader = argument;
	const struct form *form = reader->form;
	uint32_t round;

	while ((round = atomic_load(&reader->round)) != UINT32_MAX) {
		size_t lines = round_bytes(form, round) / sizeof(uint64_t) / form->words;
		size_t first = first_line(lines, form->words * sizeof(uint64_t), round);

		if (round == atomic_load(&reader->seen)) {
			sched_yield();
			continue;
		}
		for (size_t i = 0; i < lines; i++)
			read_line(reader, (first + i) % lines, round);
		atomic_store(&reader->seen, round);
	}
	return NULL;
}

static void reader_start(struct reader *reader, pthread_t *thread, const struct form *form, const uint8_t *data)
{
	*reader = (struct reader){ .form = form, .data = (const uint64_t *)(const void *)data };
	check_number(pthread_create(thread, NULL, run_reader, reader), 0);
}

static void reader_await(struct reader *reader, uint32_t round)
{
	struct patience patience;

	patience_begin(&patience, 30);
	while (atomic_load(&reader->seen) != round)
		patience_wait(&patience);
}

static void reader_end(struct reader *reader, pthread_t thread)
{
	atomic_store(&reader->round, UINT32_MAX);
	pthread_join(thread, NULL);
}

/* -- messages ------------------------------------------------------------------------------------- */

static void fill_message(const struct form *form, uint8_t *data, uint32_t round)
{
	uint64_t *words = (uint64_t *)(void *)data;

	for (size_t i = 0; i < round_bytes(form, round) / sizeof(uint64_t); i++)
		words[i] = word_of(form, i, round);
}

static void check_message(const struct form *form, const uint8_t *data, uint32_t round)
{
	const uint64_t *words = (const uint64_t *)(const void *)data;

	for (size_t i = 0; i < round_bytes(form, round) / sizeof(uint64_t); i++)
		check_number(words[i], word_of(form, i, round));
}

static const struct form *used_form;

static void order_receiver(struct end *end)
{
	const struct form *form = used_form;
	struct reader reader;
	pthread_t thread;

	end_open(end, false);
	reader_start(&reader, &thread, form, end->data);
	for (uint32_t round = 1; round <= form->rounds; round++) {
		void *request;

		atomic_store(&reader.round, round);
		request = driver_must_receive(&end->driver, end->comm, end->data, form->bytes_max, end->memory);
		check_number(driver_finish(&end->driver, request), round_bytes(form, round));
		check_message(form, end->data, round);
		reader_await(&reader, round);
	}
	reader_end(&reader, thread);
	end_close(end, false);
}

static void order_between_processes(const struct form *form)
{
	struct end end;

	used_form = form;
	use_fabric(form->fabric);
	end_start_child(&end, order_receiver);
	end_open(&end, true);
	for (uint32_t round = 1; round <= form->rounds; round++) {
		fill_message(form, end.data, round);
		driver_finish(&end.driver, driver_must_send(&end.driver, end.comm, end.data, round_bytes(form, round),
							    end.memory));
	}
	end_close(&end, true);
	check_path(form->fabric);
	check_number(process_wait(end.other), 0);
}

static void order_in_process(const struct form *form)
{
	struct driver driver;
	struct reader reader;
	pthread_t thread;
	struct line line;

	driver_open(&driver, 11);
	line_connect(&line, &driver, 0, 0);
	line.from = aligned_alloc(4096, form->bytes_max);
	line.to = aligned_alloc(4096, form->bytes_max);
	check(line.from && line.to);
	memset(line.to, 0, form->bytes_max);
	line.from_memory = driver_register(&driver, line.sender, line.from, form->bytes_max);
	line.to_memory = driver_register(&driver, line.receiver, line.to, form->bytes_max);
	reader_start(&reader, &thread, form, line.to);
	for (uint32_t round = 1; round <= form->rounds; round++) {
		size_t bytes = round_bytes(form, round);
		void *receive, *send;

		fill_message(form, line.from, round);
		atomic_store(&reader.round, round);
		receive = driver_must_receive(&driver, line.receiver, line.to, form->bytes_max, line.to_memory);
		send = driver_must_send(&driver, line.sender, line.from, bytes, line.from_memory);
		driver_finish(&driver, send);
		check_number(driver_finish(&driver, receive), bytes);
		check_message(form, line.to, round);
		reader_await(&reader, round);
	}
	reader_end(&reader, thread);
	driver_close_send(&driver, line.sender);
	driver_close_receive(&driver, line.receiver);
	free(line.from);
	free(line.to);
	driver_close(&driver);
}

static void case_order(void *argument)
{
	const struct form *form = argument;

#ifdef __SANITIZE_THREAD__
	fprintf(stderr, "the reader looks at bytes that are being written, which ThreadSanitizer reports\n");
	exit(SKIPPED);
#endif
	if (!strcmp(form->fabric, "self"))
		order_in_process(form);
	else
		order_between_processes(form);
}

int main(void)
{
	static const struct form forms[] = {
		LL("self"),    LL("local"),    LL("denied"),	LL("tcp"),    LL("encrypted"),
		LL128("self"), LL128("local"), LL128("denied"), LL128("tcp"), LL128("encrypted"),
	};
	static const struct test_case cases[] = {
		{ "LL_self", case_order, &forms[0], 60 },	 { "LL_local", case_order, &forms[1], 60 },
		{ "LL_denied", case_order, &forms[2], 60 },	 { "LL_tcp", case_order, &forms[3], 60 },
		{ "LL_encrypted", case_order, &forms[4], 60 },	 { "LL128_self", case_order, &forms[5], 60 },
		{ "LL128_local", case_order, &forms[6], 60 },	 { "LL128_denied", case_order, &forms[7], 60 },
		{ "LL128_tcp", case_order, &forms[8], 60 }, { "LL128_encrypted", case_order, &forms[9], 60 },
	};

	return cases_run("nccl_order", cases, sizeof(cases) / sizeof(cases[0]));
}
