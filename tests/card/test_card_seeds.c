/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random operations over the stand-in card in a mood, by seed. The seed chooses the card, the number of cards and of rails,
 * the memory at each end (of the host, or of a stand-in GPU), the faults and the operations.
 *
 *   test_card_seeds FIRST COUNT          runs these seeds
 *   test_card_seeds --minutes MINUTES    runs seeds from the clock on, and prints one that fails
 *   test_card_seeds --list FIRST COUNT   prints what the seeds choose
 *
 * Whatever the card does, each operation ends once, in time, and with a name if it failed; the bytes are right at the
 * moment that was promised; the connections are not more than the faults explain; and nothing is left at the end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "card/card.h"
#include "card/settings.h"
#include "support/environment.h"
#include "support/gpu.h"

#define OPERATIONS 120u
#define SLOTS 8u
#define SLOT 32768u /* messages above 8 KiB are read through a memory window */
/* Seeds below this one leave out the last mood, whose operations last for seconds. */
#define COMMON 1000u
#define LIMIT 15 /* seconds, times slowness() */
#define TIMEOUT (10 * slowness() * SECOND)

static const struct setting *const seed_settings[] = { &card_manual, &card_threads };

/* Faults, with the most of each; 0: no limit. Connections that a fault may cost: none, or a few. */
static const struct mood {
	const char *faults, *most;
	bool breaks;
} moods[] = {
	{ "order:5000", NULL, false },
	{ "rnr:1000,late:500", NULL, false },
	{ "late:2000,channel:2000,route-late:5000", NULL, false },
	{ "events:1000,late:200", NULL, false },
	{ "slow:5000,order:2000,rnr:200", NULL, false },
	{ "route-late:9000,late:500", NULL, false },
	{ "route-lost:3000,path-lost:3000", "2", true },
	{ "refuse:200", "10", true },
	{ "status:200", "6", true },
	{ "status:100,route-late:3000,late:500,events:300", "4", true },
	{ "doubled:500,late:500", NULL, false },
	{ "stale:3000", NULL, false },
	{ "wrong-number:500", NULL, false },
	{ "lost:100", "2", true },
};

/* Those without atomics come last. */
static const char *const cards[] = { "cx7-roce", "cx5-ib", "cx8-ib", "ib-vf", "e2000", "erdma", "ionic",
				     "mlx4",     "hns",    "e810",   "thor2", "mana",  "small" };
#define WITH_ATOMICS 9u

/* Cards without dma-buf, which reach no GPU memory: the peer cannot read large messages from there, so none are sent. */
static const char *const without_dmabuf[] = { "erdma", "mlx4", "hns" };
#define MESSAGE_COPIED 8192u

/* Choices of a seed. */
struct choice {
	const struct mood *mood;
	const char *card;
	const struct setting *setting;
	bool atomics; /* the grant permits atomic operations. Other grants are memory windows, where the card has them */
	unsigned cards, rails;
	bool near_gpu, far_gpu;
	uint32_t message_max;
};

/* -- one operation -------------------------------------------------------------------------------- */

enum slot_kind { SLOT_FREE, SLOT_WRITE, SLOT_READ, SLOT_SEND, SLOT_ADD };

struct slot {
	enum slot_kind kind;
	struct pl_operation *operation, *receive;
	uint64_t offset;
	uint32_t length;
	uint8_t value;
	uint64_t old; /* the word before SLOT_ADD */
};

struct run {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
	struct slot slots[SLOTS];
	uint64_t random;
	unsigned failed, uncertain; /* uncertain: atomic operations among the failed ones */
	char first_failure[256];
	struct choice choice;
};

static uint32_t run_random(struct run *run, uint32_t below)
{
	run->random = run->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(run->random >> 33) % below;
}

/* Sets bytes of a buffer, also those in a GPU. */
static void slot_set(const struct buffer *buffer, const struct slot *slot, uint8_t value)
{
	memset(buffer->bytes + slot->offset, value, slot->length);
	mirror_bring(buffer->bytes + slot->offset, slot->length);
}

static bool slot_start(struct run *run, struct slot *slot)
{
	const struct pl_transfer transfer = { run->remote, slot->offset, run->near.region, slot->offset, slot->length };
	const struct pl_buffer from = { run->near.region, slot->offset, slot->length };
	const struct pl_buffer to = { run->far.region, slot->offset, slot->length };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = run->environment.near_peer;
	struct pl_error error;
	int rc;

	attributes.timeout = TIMEOUT;
	slot_set(&run->near, slot, slot->kind == SLOT_READ ? 0 : slot->value);
	slot_set(&run->far, slot, slot->kind == SLOT_READ ? slot->value : 0);
	if (slot->kind == SLOT_SEND) {
		rc = pl_receive(run->environment.far_peer, slot->offset, UINT64_MAX, &to, &attributes, &slot->receive,
				&error);
		if (rc == 0)
			rc = pl_send(peer, slot->offset, &from, &attributes, &slot->operation, &error);
	} else if (slot->kind == SLOT_ADD) {
		const struct pl_atomic atomic = {
			.remote = run->remote, .remote_offset = slot->offset, .operand = slot->value, .old = &slot->old
		};

		memcpy(run->far.bytes + slot->offset, &slot->offset, sizeof(uint64_t));
		mirror_bring(run->far.bytes + slot->offset, sizeof(uint64_t));
		rc = pl_fetch_add(peer, &atomic, &attributes, &slot->operation, &error);
	} else if (slot->kind == SLOT_READ) {
		rc = pl_read(peer, &transfer, &attributes, &slot->operation, &error);
	} else {
		attributes.visible = run->choice.far_gpu ? PL_VISIBLE_GPU_VISIBLE : PL_VISIBLE_PLACED;
		rc = pl_write(peer, &transfer, &attributes, &slot->operation, &error);
	}
	if (rc)
		check(error.id[0]);
	return rc == 0;
}

/* Returns the status of an operation that ends within its time, with a name. */
static int slot_await(struct run *run, struct pl_operation *operation)
{
	const uint64_t begin = clock_now();
	struct pl_error error;
	int status = await(&run->environment, operation, NULL, &error);

	check(clock_now() - begin < TIMEOUT + SLACK);
	if (status) {
		check(error.id[0] && error.message[0] && error.code == status);
		if (!run->first_failure[0])
			snprintf(run->first_failure, sizeof(run->first_failure), "%s: %s", error.id, error.message);
	}
	return status;
}

/* The word was the slot's offset. */
static void slot_check_word(const struct run *run, const struct slot *slot)
{
	uint64_t now;

	mirror_fetch(run->far.bytes + slot->offset, sizeof(now));
	memcpy(&now, run->far.bytes + slot->offset, sizeof(now));
	check_number(slot->old, slot->offset);
	check_number(now, slot->offset + slot->value);
}

static void slot_check(const uint8_t *bytes, const struct slot *slot)
{
	mirror_fetch(bytes + slot->offset, slot->length);
	for (uint32_t i = 0; i < slot->length; i++)
		if (bytes[slot->offset + i] != slot->value)
			check_failed(__FILE__, __LINE__, "kind %d: byte %u of %u is 0x%02x, not 0x%02x", slot->kind, i,
				     slot->length, bytes[slot->offset + i], slot->value);
}

static void slot_finish(struct run *run, struct slot *slot)
{
	int status = slot->operation ? slot_await(run, slot->operation) : -ENOTCONN;

	if (status && slot->receive)
		pl_cancel(slot->receive);
	if (slot->receive && slot_await(run, slot->receive))
		status = -EIO;
	if (status == 0 && slot->kind == SLOT_ADD)
		slot_check_word(run, slot);
	else if (status == 0)
		slot_check(slot->kind == SLOT_READ ? run->near.bytes : run->far.bytes, slot);
	run->failed += status != 0;
	run->uncertain += status == -ECONNRESET && slot->kind == SLOT_ADD;
	slot->kind = SLOT_FREE;
	slot->operation = slot->receive = NULL;
}

/* -- one seed ------------------------------------------------------------------------------------- */

/*
 * Returns the accepted peer, or NULL: the near end may be connected although the completion of the message that proves the
 * path was lost at the far end.
 */
static struct pl_peer *run_accepted(struct scenario_environment *environment, struct pl_operation *accepting)
{
	const uint64_t begin = clock_now();
	struct pl_completion far;
	struct pl_error error;
	int status;

	while ((status = pl_test(accepting, &far, &error)) == -EINPROGRESS && clock_now() - begin < TIMEOUT)
		settle(environment, 1);
	if (status == -EINPROGRESS) {
		pl_cancel(accepting);
		status = await(environment, accepting, &far, &error);
	}
	return status == 0 ? far.peer : NULL;
}

static bool run_connect(struct run *run, const struct setting *setting)
{
	struct scenario_environment *environment = &run->environment;
	struct pl_operation *connecting, *accepting;
	struct pl_completion near;
	struct pl_error error;
	int rc;

	environment_listen(environment, setting);
	check_ok(pl_accept_start(environment->listener, 0, &accepting, &error), &error);
	check_ok(pl_connect_start(environment->near, environment->address, 0, 0, &connecting, &error), &error);
	rc = await(environment, connecting, &near, &error);
	if (rc) {
		check(error.id[0] && error.message[0]);
		pl_cancel(accepting);
	} else {
		environment->near_peer = near.peer;
	}
	environment->far_peer = run_accepted(environment, accepting);
	return environment->near_peer && environment->far_peer;
}

static bool run_import(struct run *run)
{
	const struct pl_grant_options options = {
		.size = sizeof(options),
		.length = SLOTS * SLOT,
		.rights = run->choice.atomics ? PL_ACCESS_ALL : PL_ACCESS_READ | PL_ACCESS_WRITE,
	};
	struct pl_operation *operation;
	struct pl_completion completion;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(run->far.region, &options, token, &length, &error), &error);
	check_ok(pl_remote_import_start(run->environment.near_peer, token, length, TIMEOUT, &operation, &error),
		 &error);
	if (await(&run->environment, operation, &completion, &error)) {
		check(error.id[0]);
		return false;
	}
	run->remote = completion.remote;
	return true;
}

static void run_traffic(struct run *run)
{
	for (unsigned i = 0; i < OPERATIONS; i++) {
		struct slot *slot = &run->slots[i % SLOTS];

		if (slot->kind)
			slot_finish(run, slot);
		slot->kind = (enum slot_kind)(1 + run_random(run, run->choice.atomics ? 4 : 3));
		slot->offset = (i % SLOTS) * SLOT;
		slot->length = 1 + run_random(run, run_random(run, 2) ? 64 : SLOT - 1);
		slot->value = (uint8_t)(1 + run_random(run, 255));
		if (slot->kind == SLOT_SEND && slot->length > run->choice.message_max)
			slot->length = run->choice.message_max;
		if (!slot_start(run, slot) && !slot->receive)
			slot->kind = SLOT_FREE;
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (run->slots[i].kind)
			slot_finish(run, &run->slots[i]);
}

/* True if a mood's faults cost connections. A port that goes down does so where there are further rails. */
static bool run_reconnects(const struct choice *choice)
{
	return choice->mood->breaks || (choice->rails > 1 && strstr(choice->mood->faults, "events"));
}

/* A mood that breaks no connection fails no operation either. Each rail has a connection, when it is needed first. */
static void run_judge(const struct run *run)
{
	const struct card_counts counts = card_counts_now();
	const struct choice *choice = &run->choice;
	unsigned faults = 0;

	for (unsigned i = 0; i < CARD_FAULTS; i++)
		faults += counts.faults[i];
	/* An atomic operation fails if its connection breaks: its result is unknown. */
	if (!choice->mood->breaks && run->failed != (run_reconnects(choice) ? run->uncertain : 0))
		check_failed(__FILE__, __LINE__, "%u operations failed, the first one by %s", run->failed,
			     run->first_failure);
	if (counts.connects > choice->rails + (run_reconnects(choice) ? 3 * faults : 0))
		check_failed(__FILE__, __LINE__, "%u connections of %u rails, for %u faults", counts.connects,
			     choice->rails, faults);
	check(choice->mood->breaks || counts.connects);
}

static void run_choose(struct run *run, unsigned long seed)
{
	struct choice *choice = &run->choice;
	uint32_t card;

	run->random = seed;
	choice->mood = &moods[seed % (PL_ARRAY_SIZE(moods) - (seed < COMMON))];
	card = run_random(run, PL_ARRAY_SIZE(cards));
	choice->card = cards[card];
	choice->atomics = card < WITH_ATOMICS && run_random(run, 2);
	choice->setting = seed_settings[run_random(run, PL_ARRAY_SIZE(seed_settings))];
	choice->cards = 1 + run_random(run, 2);
	choice->rails = choice->cards * (1 + run_random(run, 2));
	choice->near_gpu = run_random(run, 2);
	choice->far_gpu = run_random(run, 2);
	choice->message_max = SLOT;
	for (size_t i = 0; choice->near_gpu && i < PL_ARRAY_SIZE(without_dmabuf); i++)
		if (!strcmp(choice->card, without_dmabuf[i]))
			choice->message_max = MESSAGE_COPIED;
}

static void choice_name(const struct choice *choice, unsigned long seed, char name[160])
{
	snprintf(name, 160, "seed %lu, mood %s, %u %s, %u rails, %s, %s to %s%s", seed, choice->mood->faults,
		 choice->cards, choice->card, choice->rails, choice->setting->name, choice->near_gpu ? "GPU" : "host",
		 choice->far_gpu ? "GPU" : "host", choice->atomics ? ", atomics" : "");
}

static void set_number(const char *variable, unsigned long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu", number);
	setenv(variable, text, 1);
}

/* Opens a buffer in the memory of the stand-in GPU, or of the host. */
static void run_buffer(struct buffer *buffer, struct pl_context *context, bool gpu, unsigned access)
{
	const char *const kind = gpu_kind;

	if (!gpu)
		gpu_kind = NULL;
	buffer_open(buffer, context, SLOTS * SLOT, access);
	gpu_kind = kind;
}

static void run_seed(void *argument)
{
	const unsigned long seed = *(const unsigned long *)argument;
	struct run run = { 0 };
	const struct choice *choice = &run.choice;

	run_choose(&run, seed);
	set_number("STANDIN_SEED", seed);
	setenv("STANDIN_CARD", choice->card, 1);
	set_number("STANDIN_CARDS", choice->cards);
	setenv("STANDIN_MOOD", choice->mood->faults, 1);
	if (choice->mood->most)
		setenv("STANDIN_FAULTS", choice->mood->most, 1);
	rail_limit = choice->rails;
	if (choice->near_gpu || choice->far_gpu)
		check(gpu_open("alloc"));
	if (run_connect(&run, choice->setting)) {
		run_buffer(&run.near, run.environment.near, choice->near_gpu, PL_ACCESS_LOCAL);
		run_buffer(&run.far, run.environment.far, choice->far_gpu, PL_ACCESS_ALL);
		if (run_import(&run))
			run_traffic(&run);
		pl_remote_release(run.remote);
		buffer_close(&run.near);
		buffer_close(&run.far);
	} else {
		check(choice->mood->breaks);
	}
	run_judge(&run);
	environment_close(&run.environment);
}

/* Returns true if the seed passes. */
static bool seed_passes(unsigned long seed)
{
	struct run run = { 0 };
	char name[160];

	run_choose(&run, seed);
	choice_name(&run.choice, seed, name);
	if (process_run(name, LIMIT, run_seed, &seed) == 0)
		return true;
	printf("failed  %s\n", name);
	fflush(stdout);
	return false;
}

static int list_seeds(unsigned long first, unsigned long count)
{
	for (unsigned long seed = first; seed < first + count; seed++) {
		struct run run = { 0 };
		char name[160];

		run_choose(&run, seed);
		choice_name(&run.choice, seed, name);
		printf("%s\n", name);
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long seed = argc == 3 ? strtoul(argv[1], NULL, 10) : 0, count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
	unsigned passed = 0, failed = 0;
	uint64_t end = 0;

	if (argc == 4 && !strcmp(argv[1], "--list"))
		return list_seeds(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
	if (!count) {
		fprintf(stderr, "usage: test_card_seeds FIRST COUNT | --minutes MINUTES | --list FIRST COUNT\n");
		return 2;
	}
	if (!strcmp(argv[1], "--minutes")) {
		seed = (unsigned long)time(NULL);
		end = clock_now() + count * 60 * SECOND;
	}
	for (unsigned long i = 0; end ? clock_now() < end : i < count; i++) {
		bool good = seed_passes(seed + i);

		passed += good;
		failed += !good;
	}
	printf("%u passed, %u failed\n", passed, failed);
	return failed ? 1 : 0;
}
