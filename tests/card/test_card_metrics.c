/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics of a context whose card registers memory: each sample has the number that the library tells. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <peerlane/counters.h>

#include "card/settings.h"
#include "cmd/transfer/metrics.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH 16384u
/* The context keeps the memory of three of five registrations; a region has the sixth. */
#define BUFFERS 6u
#define KEPT 3u

static uint8_t bytes[BUFFERS][LENGTH] __attribute__((aligned(LENGTH)));

/* A context that keeps registrations, connected to the far end of a pair. */
struct rig {
	struct pair pair;
	struct pl_context *context;
	struct pl_peer *peer, *far_peer;
	struct pl_remote *remote;
};

static void rig_open(struct rig *rig)
{
	struct scenario_environment *environment = &rig->pair.environment;
	struct pl_options options = setting_options(&card_manual);

	options.keep_bytes = (size_t)KEPT * LENGTH;
	options.keep_host = true;
	pair_open(&rig->pair, &card_manual, LENGTH);
	rig->context = context_open_with(&options);
	drive(environment, rig->context);
	connect_pair(environment, rig->context, environment->listener, &rig->peer, &rig->far_peer);
	rig->remote = share(environment, rig->pair.far.region, rig->peer, NULL);
}

static void rig_close(struct rig *rig)
{
	pl_remote_release(rig->remote);
	pl_peer_close(rig->peer);
	pl_peer_close(rig->far_peer);
	drive_no_more(&rig->pair.environment, rig->context);
	pl_close(rig->context);
	pair_close(&rig->pair);
}

/* Writes from memory, and returns its region. */
static struct pl_region *write_from(struct rig *rig, uint8_t *from)
{
	struct pl_region *region = NULL;
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_region_register(rig->context, from, LENGTH, PL_ACCESS_LOCAL, &region, &error), &error);
	check_ok(pl_write(rig->peer, &(struct pl_transfer){ rig->remote, 0, region, 0, LENGTH }, NULL, &operation,
			  &error),
		 &error);
	complete(&rig->pair.environment, operation, NULL);
	return region;
}

static void check_sample(const char *text, const char *sample, uint64_t value)
{
	char line[200];

	snprintf(line, sizeof(line), "\npeerlane_%s %" PRIu64 "\n", sample, value);
	if (!strstr(text, line))
		printf("no%sin:\n%s", line, text);
	check(strstr(text, line));
}

static void check_registrations(const char *text, struct pl_context *context)
{
	struct pl_registrations_info info = PL_REGISTRATIONS_INFO_INIT;
	struct pl_error error;

	check_ok(pl_registrations_query(context, &info, &error), &error);
	/* Different numbers, so that no sample can have that of another one. */
	check(info.found == 4 && info.made == BUFFERS && info.evicted == BUFFERS - 1 - KEPT && info.outdated == 1);
	check_sample(text, "registration_lookups_total{found=\"yes\"}", info.found);
	check_sample(text, "registration_lookups_total{found=\"no\"}", info.made);
	check_sample(text, "dropped_registrations_total{reason=\"limit\"}", info.evicted);
	check_sample(text, "dropped_registrations_total{reason=\"freed\"}", info.outdated);
	check_sample(text, "registered_bytes", info.bytes);
	check_sample(text, "registrations", info.registrations);
	check(info.bytes_kept && info.bytes_kept < info.bytes);
}

static void registrations(void *argument)
{
	struct rig rig = { 0 };
	struct pl_region *used;
	char *text = NULL;
	size_t length;
	FILE *file;

	(void)argument;
	rig_open(&rig);
	for (unsigned i = 0; i < BUFFERS - 1; i++)
		check_number(pl_region_deregister(write_from(&rig, bytes[i])), 0);
	for (unsigned i = 0; i < 4; i++)
		check_number(pl_region_deregister(write_from(&rig, bytes[BUFFERS - 2])), 0);
	pl_memory_freed(rig.context, bytes[BUFFERS - 2], 1);
	used = write_from(&rig, bytes[BUFFERS - 1]);
	file = open_memstream(&text, &length);
	check(file);
	metrics_write_context(file, rig.context);
	check(fclose(file) == 0);
	check_registrations(text, rig.context);
	check_sample(text, "operation_bytes_total{kind=\"write\",fabric=\"verbs\",route=\"direct\"}", 10 * LENGTH);
	free(text);
	check_number(pl_region_deregister(used), 0);
	rig_close(&rig);
}

static const struct test_case cases[] = { { "registrations", registrations, NULL, 30 } };

int main(void)
{
	return cases_run("card metrics", cases, 1);
}
