/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: what an intruder with a valid connection, and the program of a listening or connecting context, do in turn
 * (context/step.h). Each input has a connection of its own. Afterwards: memory that the intruder may not write is
 * unchanged, no secret byte has reached it, all operations have ended, and an honest peer of the same context writes and
 * reads within 1 s. Memory of the context is limited. A context ends after 512 inputs, without memory or descriptors left.
 */
#include <string.h>

#include "context/intruder.h"

#define INPUTS_OF_CONTEXT 512u
#define STEPS_MAX 2048u
#define REPEAT_MAX 1100u /* more than the window of messages */
#define LANES_MAX 4u

/* Function of libFuzzer; NULL without it. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

/* A context and the intruder, without a key and with one. */
struct ring {
	bool open;
	struct world world;
	struct intruder intruder;
};

static struct ring *get_ring(bool keyed)
{
	static struct ring rings[2];

	return &rings[keyed];
}

static void end_ring(struct ring *ring)
{
	if (!ring->open)
		return;
	intruder_end(&ring->intruder);
	world_close(&ring->world);
	ring->open = false;
}

static void end_rings(void)
{
	end_ring(get_ring(false));
	end_ring(get_ring(true));
}

static struct ring *begin_ring(bool keyed)
{
	static bool registered;
	struct ring *ring = get_ring(keyed);

	if (!registered)
		atexit(end_rings);
	registered = true;
	if (!ring->open) {
		world_open(&ring->world, keyed);
		intruder_prepare(&ring->intruder, &ring->world);
		ring->open = true;
	}
	return ring;
}

static void run_steps(struct intruder *intruder, const uint8_t *data, size_t size)
{
	unsigned done = 0, repeat = 1;

	for (size_t at = 0; at + STEP_SIZE <= size && done < STEPS_MAX; at += STEP_SIZE) {
		struct fuzz_step step;

		memcpy(&step, data + at, STEP_SIZE);
		if (step.op % STEP_OPS == STEP_REPEAT) {
			repeat = 1 + (unsigned)(step_value(&step) % REPEAT_MAX);
			continue;
		}
		for (; repeat && done < STEPS_MAX; repeat--, done++)
			intruder_step(intruder, &step);
		repeat = 1;
		intruder_settle(intruder);
		world_check_limits(intruder->world);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_Static_assert(sizeof(struct fuzz_step) == STEP_SIZE, "a step has no padding");
	struct ring *ring;

	if (size < STEP_HEAD)
		return 0;
	ring = begin_ring(data[0] & FUZZ_KEYED);
	world_begin(&ring->world);
	/* An intruder that reads nothing reads the answers to its opening. */
	REQUIRE(intruder_connect(&ring->intruder, data[0], 1 + data[1] % LANES_MAX));
	run_steps(&ring->intruder, data + STEP_HEAD, size - STEP_HEAD);
	intruder_read(&ring->intruder);
	intruder_disconnect(&ring->intruder);
	world_end(&ring->world);
	if (ring->world.inputs == INPUTS_OF_CONTEXT)
		end_ring(ring);
	return 0;
}

/* -- mutations of the list of steps ------------------------------------------------------------------ */

static uint64_t next_number(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

static size_t insert_step(uint8_t *steps, size_t count, size_t count_max, size_t at, uint64_t *state)
{
	if (count == count_max)
		return count;
	memmove(steps + (at + 1) * STEP_SIZE, steps + at * STEP_SIZE, (count - at) * STEP_SIZE);
	for (unsigned i = 0; i < STEP_SIZE; i++)
		steps[at * STEP_SIZE + i] = (uint8_t)next_number(state);
	/* Half of them repeat another step. */
	if (count && next_number(state) % 2)
		memcpy(steps + at * STEP_SIZE, steps + (next_number(state) % count) * STEP_SIZE, STEP_SIZE);
	return count + 1;
}

static size_t remove_step(uint8_t *steps, size_t count, size_t at)
{
	if (at >= count)
		return count;
	memmove(steps + at * STEP_SIZE, steps + (at + 1) * STEP_SIZE, (count - at - 1) * STEP_SIZE);
	return count - 1;
}

static void swap_steps(uint8_t *steps, size_t first, size_t second)
{
	uint8_t saved[STEP_SIZE];

	memcpy(saved, steps + first * STEP_SIZE, STEP_SIZE);
	memmove(steps + first * STEP_SIZE, steps + second * STEP_SIZE, STEP_SIZE);
	memcpy(steps + second * STEP_SIZE, saved, STEP_SIZE);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
	uint64_t state = seed;
	uint8_t *steps = data + STEP_HEAD;
	size_t count, count_max, at;

	if (size < STEP_HEAD || size_max < STEP_HEAD + STEP_SIZE)
		return LLVMFuzzerMutate(data, size, size_max);
	count = (size - STEP_HEAD) / STEP_SIZE;
	count_max = (size_max - STEP_HEAD) / STEP_SIZE;
	next_number(&state);
	at = next_number(&state) % (count + 1);
	switch (next_number(&state) % 8) {
	case 0:
		LLVMFuzzerMutate(data, STEP_HEAD, STEP_HEAD);
		break;
	case 1:
	case 2:
		count = insert_step(steps, count, count_max, at, &state);
		break;
	case 3:
		count = remove_step(steps, count, at);
		break;
	case 4:
		if (count)
			swap_steps(steps, at % count, next_number(&state) % count);
		break;
	default:
		if (count)
			LLVMFuzzerMutate(steps + (at % count) * STEP_SIZE, STEP_SIZE, STEP_SIZE);
	}
	return STEP_HEAD + count * STEP_SIZE;
}
