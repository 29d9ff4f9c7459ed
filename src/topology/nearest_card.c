/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Best card for a GPU or for host memory: it works, is not much slower than another one, is near, and serves no other
 * GPU while an equally good one is free.
 */
#include "topology/build.h"

#include <stdlib.h>

struct candidate {
	struct pl_card_rank rank;
	bool software, slow, best;
};

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->best != right->best)
		return left->best ? -1 : 1;
	if (left->rank.usable != right->rank.usable)
		return left->rank.usable ? -1 : 1;
	if (left->software != right->software)
		return left->software ? 1 : -1;
	if (left->slow != right->slow)
		return left->slow ? 1 : -1;
	if (left->rank.class != right->rank.class)
		return left->rank.class < right->rank.class ? -1 : 1;
	if (left->rank.bandwidth != right->rank.bandwidth)
		return left->rank.bandwidth > right->rank.bandwidth ? -1 : 1;
	return left->rank.card < right->rank.card ? -1 : left->rank.card > right->rank.card;
}

/*
 * True if GPUs may be spread over both cards: each carries at least half of the best one's rate, which two GPUs would
 * get from sharing that.
 */
static bool alike(const struct candidate *a, const struct candidate *b)
{
	return a->rank.usable == b->rank.usable && a->software == b->software && a->slow == b->slow &&
	       a->rank.class == b->rank.class;
}

bool pl_card_rank_alike(const struct pl_topology *topology, const struct pl_card_rank *first,
			const struct pl_card_rank *rank)
{
	return first->usable == rank->usable && first->class == rank->class &&
	       topology->cards[first->card].software == topology->cards[rank->card].software &&
	       (!rank->bandwidth || rank->bandwidth >= first->bandwidth / 2);
}

/* A path with less than half the rate of another one ranks behind it, even if it is shorter. Sorts the best first. */
static void sort(struct candidate *candidates, size_t count)
{
	uint64_t most = 0;

	for (size_t i = 0; i < count; i++)
		if (candidates[i].rank.usable && !candidates[i].software)
			most = PL_MAX(most, candidates[i].rank.bandwidth);
	for (size_t i = 0; i < count; i++)
		candidates[i].slow = candidates[i].rank.bandwidth && candidates[i].rank.bandwidth < most / 2;
	qsort(candidates, count, sizeof(*candidates), compare_candidates);
}

static void of_gpu(const struct pl_topology *topology, size_t gpu, struct candidate *candidates)
{
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_path *path = pl_topology_path(topology, gpu, i);

		candidates[i] = (struct candidate){
			.rank = { (unsigned)i, path->class, path->bandwidth, path->usable },
			.software = topology->cards[i].software,
			.best = path->best,
		};
	}
	sort(candidates, topology->card_count);
}

/* Assignment of cards to GPUs from their equally good cards, with as few GPUs on a card as possible. */
struct match {
	size_t gpus, cards;
	int *good;      /* equally good cards of each GPU, best first; -1 ends a shorter list */
	bool *seen;     /* cards visited */
	int *card;      /* card of each GPU; -1: none yet */
	unsigned *load; /* GPUs of each card */
	unsigned limit; /* most GPUs on a card */
};

static void give_card(struct match *match, size_t gpu, int card)
{
	match->card[gpu] = card;
	match->load[card]++;
}

/* Finds a card for a GPU, and moves other GPUs if necessary. */
static bool place_gpu(struct match *match, size_t gpu)
{
	const int *good = &match->good[gpu * match->cards];

	for (size_t i = 0; i < match->cards && good[i] >= 0; i++) {
		if (match->seen[good[i]] || match->load[good[i]] >= match->limit)
			continue;
		give_card(match, gpu, good[i]);
		return true;
	}
	for (size_t i = 0; i < match->cards && good[i] >= 0; i++) {
		if (match->seen[good[i]])
			continue;
		match->seen[good[i]] = true;
		for (size_t other = 0; other < match->gpus; other++) {
			if (match->card[other] != good[i] || !place_gpu(match, other))
				continue;
			match->load[good[i]]--;
			give_card(match, gpu, good[i]);
			return true;
		}
	}
	return false;
}

static void match_all(struct match *match)
{
	size_t left = match->gpus;

	for (match->limit = 1; left && match->limit <= match->gpus; match->limit++)
		for (size_t gpu = 0; gpu < match->gpus; gpu++) {
			if (match->card[gpu] >= 0)
				continue;
			memset(match->seen, 0, match->cards * sizeof(*match->seen));
			left -= place_gpu(match, gpu);
		}
}

int topology_choose(struct pl_topology *topology)
{
	size_t gpus = topology->gpu_count, cards = topology->card_count;
	struct candidate *candidates = calloc(cards, sizeof(*candidates));
	struct match match = {
		.gpus = gpus,
		.cards = cards,
		.good = calloc(gpus * cards, sizeof(*match.good)),
		.seen = calloc(cards, sizeof(*match.seen)),
		.card = calloc(gpus, sizeof(*match.card)),
		.load = calloc(cards, sizeof(*match.load)),
	};
	int rc = candidates && match.good && match.seen && match.card && match.load ? 0 : -ENOMEM;

	for (size_t gpu = 0; gpu < gpus && rc == 0; gpu++) {
		match.card[gpu] = -1;
		of_gpu(topology, gpu, candidates);
		for (size_t i = 0; i < cards; i++)
			match.good[gpu * cards + i] =
				alike(&candidates[i], &candidates[0]) ? (int)candidates[i].rank.card : -1;
	}
	if (rc == 0)
		match_all(&match);
	for (size_t gpu = 0; gpu < gpus && rc == 0; gpu++)
		if (match.card[gpu] >= 0)
			topology->paths[gpu * cards + (size_t)match.card[gpu]].best = true;
	free(candidates);
	free(match.good);
	free(match.seen);
	free(match.card);
	free(match.load);
	return rc;
}

/* Only RDMA devices: others cannot be opened. */
static int give(const struct pl_topology *topology, const struct candidate *candidates, struct pl_card_rank *ranks)
{
	int count = 0;

	for (size_t i = 0; i < topology->card_count; i++)
		if (topology->cards[candidates[i].rank.card].name[0])
			ranks[count++] = candidates[i].rank;
	return count;
}

int pl_topology_rank_gpu(const struct pl_topology *topology, const char *address, struct pl_card_rank *ranks)
{
	struct candidate *candidates;
	int node = pl_topology_find(topology, address), count;
	size_t gpu = 0;

	while (gpu < topology->gpu_count && topology->gpus[gpu].node != node)
		gpu++;
	if (node < 0 || gpu == topology->gpu_count)
		return -ENOENT;
	candidates = calloc(topology->card_count + 1, sizeof(*candidates));
	if (!candidates)
		return -ENOMEM;
	of_gpu(topology, gpu, candidates);
	count = give(topology, candidates, ranks);
	free(candidates);
	return count;
}

int pl_topology_rank_numa(const struct pl_topology *topology, int numa, struct pl_card_rank *ranks)
{
	struct candidate *candidates = calloc(topology->card_count + 1, sizeof(*candidates));
	int count;

	if (!candidates)
		return -ENOMEM;
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];
		int place = topology_card_numa(topology, card);

		candidates[i] = (struct candidate){
			.rank = { (unsigned)i, numa < 0 || place == numa ? PL_PATH_NODE : PL_PATH_SYS,
				  topology_card_rate(topology, card), topology_card_usable(topology, card) },
			.software = card->software,
		};
	}
	sort(candidates, topology->card_count);
	count = give(topology, candidates, ranks);
	free(candidates);
	return count;
}
