/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Placement of written bytes. The acknowledgement of a write says nothing about memory: in the mood "order" the bytes
 * come later, and from the end. A read of the card pushes all bytes before it. A completion entry for a receive pushes
 * those for host memory, and not those for a GPU. In the mood "read-order" no completion of a read pushes them either.
 */
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

/* Unit in which a card writes. */
#define LINE 64u
#define HELD_MOST (3 * CARD_MILLISECOND)

struct held {
	struct held *next;
	uint8_t *to;
	uint32_t length;
	bool gpu;
	const struct ibv_context *context; /* of the card that writes them */
	uint8_t bytes[];
};

static struct held *first, **last = &first;

/* Writes lines from the end, or every third line first. */
static void place_unordered(uint8_t *to, const uint8_t *from, uint32_t length)
{
	uint32_t lines = (length + LINE - 1) / LINE, step = lines % 3 ? 3 : 1, line = lines;

	for (uint32_t i = 0; i < lines; i++) {
		uint32_t offset;

		line = (line + lines - step) % lines;
		offset = line * LINE;
		card_copy(to + offset, from + offset, length - offset < LINE ? length - offset : LINE);
	}
}

/* Places bytes of a card, or of all for NULL; without `gpu` those for host memory. */
static void place_held(const struct ibv_context *context, bool gpu)
{
	struct held **at = &first;

	while (*at) {
		struct held *held = *at;

		if ((held->gpu && !gpu) || (context && held->context != context)) {
			at = &held->next;
			continue;
		}
		place_unordered(held->to, held->bytes, held->length);
		*at = held->next;
		free(held);
	}
	last = at;
}

void card_place_held(bool gpu)
{
	place_held(NULL, gpu);
}

void card_place_pushed(const struct ibv_context *context)
{
	place_held(context, true);
}

/* tests/libcuda: the GPU's driver flushes writes of cards. */
void standin_card_flush(void)
{
	pthread_mutex_lock(&card_lock);
	card_place_held(true);
	pthread_mutex_unlock(&card_lock);
}

static void place_late(void *argument)
{
	(void)argument;
	card_place_held(true);
}

void card_place(const struct card_place *place)
{
	/* Later bytes for the same memory must not overtake. */
	if (!first && !card_happens(CARD_ORDER))
		card_copy(place->to, place->from, place->length);
	else
		card_place_later(place);
}

void card_place_later(const struct card_place *place)
{
	struct held *held = malloc(sizeof(*held) + place->length);

	if (!held)
		abort();
	*held = (struct held){
		.to = place->to, .length = place->length, .gpu = place->mr->map, .context = place->mr->base.context
	};
	card_copy_shared(held->bytes, place->from, place->length);
	*last = held;
	last = &held->next;
	card_after(card_random(HELD_MOST), place_late, &first);
}
