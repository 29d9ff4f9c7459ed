/* SPDX-License-Identifier: BSD-2-Clause */
/* Registrations of cards: shared by regions of the same memory, kept on request, never used for other memory. */
#include <sys/mman.h>

#include "scenarios/scenario.h"

#define LENGTH ((size_t)16 << 10)

struct pair {
	struct scenario_environment *environment;
	struct pl_context *context;
	struct pl_peer *peer, *far_peer;
	struct buffer far;
	struct pl_remote *remote;
	bool counts; /* true if one card registers, so that counts are known */
};

static void registration_pair_open(struct pair *pair, struct scenario_environment *environment, size_t keep_bytes,
				   bool keep_host)
{
	struct pl_options options = setting_options(environment->setting);
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	*pair = (struct pair){ .environment = environment };
	options.keep_bytes = keep_bytes;
	options.keep_host = keep_host;
	pair->context = context_open_with(&options);
	drive(environment, pair->context);
	connect_pair(environment, pair->context, environment->listener, &pair->peer, &pair->far_peer);
	buffer_open(&pair->far, environment->far, LENGTH, PL_ACCESS_WRITE);
	pair->remote = share(environment, pair->far.region, pair->peer, NULL);
	check_number(pl_peer_query(pair->peer, &info), 0);
	pair->counts = !strcmp(info.fabric, "verbs") && info.lanes == 1;
}

static void registration_pair_close(struct pair *pair)
{
	pl_remote_release(pair->remote);
	pl_peer_close(pair->peer);
	pl_peer_close(pair->far_peer);
	drive_no_more(pair->environment, pair->context);
	pl_close(pair->context);
	buffer_close(&pair->far);
}

static struct pl_registrations_info query_registrations(const struct pair *pair)
{
	struct pl_registrations_info info = PL_REGISTRATIONS_INFO_INIT;
	struct pl_error error;

	check_ok(pl_registrations_query(pair->context, &info, &error), &error);
	return info;
}

static void check_registrations(const struct pair *pair, uint64_t found, uint64_t made, uint64_t bytes, uint64_t kept)
{
	struct pl_registrations_info info = query_registrations(pair);

	if (!pair->counts)
		return;
	check_number(info.found, found);
	check_number(info.made, made);
	check_number(info.bytes, bytes);
	check_number(info.bytes_kept, kept);
}

static struct pl_region *register_range(const struct pair *pair, uint8_t *bytes, size_t length)
{
	struct pl_region *region = NULL;
	struct pl_error error;

	check_ok(pl_region_register(pair->context, bytes, length, PL_ACCESS_LOCAL, &region, &error), &error);
	return region;
}

static uint8_t *map_anonymous(void *at)
{
	uint8_t *bytes =
		mmap(at, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	check(bytes != MAP_FAILED);
	return bytes;
}

/* Writes a whole region and checks the bytes that arrive. */
static void write_region(struct pair *pair, struct pl_region *region, uint64_t seed)
{
	struct pl_operation *operation;
	struct pl_error error;
	size_t length = pl_region_length(region);

	pattern_fill(pl_region_address(region), length, seed, 0);
	check_ok(pl_write(pair->peer, &(struct pl_transfer){ pair->remote, 0, region, 0, length }, NULL, &operation,
			  &error),
		 &error);
	complete(pair->environment, operation, NULL);
	pattern_check(pair->far.bytes, length, seed, 0);
}

static void use_once(struct pair *pair, uint8_t *bytes, size_t length, uint64_t seed)
{
	struct pl_region *region = register_range(pair, bytes, length);

	write_region(pair, region, seed);
	check_number(pl_region_deregister(region), 0);
}

static void registrations_shared(struct scenario_environment *environment)
{
	struct pl_region *whole, *again, *within;
	struct pair pair;
	uint8_t *bytes = map_anonymous(NULL);

	registration_pair_open(&pair, environment, 0, false);
	whole = register_range(&pair, bytes, LENGTH);
	again = register_range(&pair, bytes, LENGTH);
	within = register_range(&pair, bytes + 100, 5000);
	write_region(&pair, whole, 1);
	write_region(&pair, again, 2);
	write_region(&pair, within, 3);
	check_registrations(&pair, 2, 1, LENGTH, 0);
	check_number(pl_region_deregister(whole), 0);
	write_region(&pair, again, 4);
	use_once(&pair, bytes, LENGTH, 5);
	check_registrations(&pair, 3, 1, LENGTH, 0);
	/* The program may free the rest of the memory now, so the registration serves only regions that use it already. */
	check_number(pl_region_deregister(again), 0);
	check_registrations(&pair, 3, 1, 0, 0);
	write_region(&pair, within, 6);
	use_once(&pair, bytes, LENGTH, 7);
	check_registrations(&pair, 3, 2, 0, 0);
	check_number(pl_region_deregister(within), 0);
	registration_pair_close(&pair);
	munmap(bytes, LENGTH);
}

/* Checks that new memory at a freed address does not use the old registration. */
static void freed_memory(struct scenario_environment *environment)
{
	uint8_t *bytes = map_anonymous(NULL);
	struct pair pair;

	for (int asked = 0; asked < 3; asked++) {
		registration_pair_open(&pair, environment, asked ? 4 * LENGTH : 0, asked == 2);
		for (uint64_t round = 0; round < 3; round++) {
			use_once(&pair, bytes, LENGTH, round);
			check_registrations(&pair, 0, round + 1, asked == 2 ? LENGTH : 0, asked == 2 ? LENGTH : 0);
			if (asked == 2)
				pl_memory_freed(pair.context, bytes + LENGTH - 1, 1);
			check_registrations(&pair, 0, round + 1, 0, 0);
			/* Frees the memory and maps other pages there in one call: no other thread gets the addresses. */
			map_anonymous(bytes);
		}
		registration_pair_close(&pair);
	}
	munmap(bytes, LENGTH);
}

#define KEPT 3

static void registrations_kept(struct scenario_environment *environment)
{
	struct pl_registrations_info info;
	struct pl_region *allocated = NULL;
	struct pl_error error;
	uint8_t *bytes[KEPT + 2];
	struct pair pair;

	registration_pair_open(&pair, environment, KEPT * LENGTH, true);
	for (unsigned i = 0; i < KEPT + 2; i++) {
		bytes[i] = map_anonymous(NULL);
		use_once(&pair, bytes[i], LENGTH, i);
	}
	check_registrations(&pair, 0, KEPT + 2, KEPT * LENGTH, KEPT * LENGTH);
	info = query_registrations(&pair);
	if (pair.counts)
		check_number(info.evicted, 2);
	use_once(&pair, bytes[KEPT + 1], LENGTH, 20);
	use_once(&pair, bytes[KEPT + 1] + 8, 4000, 21);
	check_registrations(&pair, 2, KEPT + 2, KEPT * LENGTH, KEPT * LENGTH);
	/* A registration of library memory ends with its region. */
	check_ok(pl_region_allocate(pair.context, LENGTH, PL_ACCESS_LOCAL, &allocated, &error), &error);
	write_region(&pair, allocated, 30);
	check_number(pl_region_deregister(allocated), 0);
	check_registrations(&pair, 2, KEPT + 3, KEPT * LENGTH, KEPT * LENGTH);
	pl_memory_freed(pair.context, NULL, SIZE_MAX);
	check_registrations(&pair, 2, KEPT + 3, 0, 0);
	registration_pair_close(&pair);
	for (unsigned i = 0; i < KEPT + 2; i++)
		munmap(bytes[i], LENGTH);
}

static void registrations_query_refused(struct scenario_environment *environment)
{
	struct pl_registrations_info info = { .size = 1 };
	struct pl_error error;

	check_status(pl_registrations_query(environment->near, &info, &error), -EINVAL, &error);
}

const struct scenario registration_scenarios[] = {
	{ "registrations-shared", registrations_shared, 0 },
	{ "registrations-of-freed-memory", freed_memory, 0 },
	{ "registrations-kept", registrations_kept, 0 },
	{ "registrations-asked-for", registrations_query_refused, SCENARIO_SETTING },
	{ 0 },
};
