/* SPDX-License-Identifier: BSD-2-Clause */
/* Judgement of tested routes: what works, what is expected, and an earlier test. */
#include <stdlib.h>
#include <string.h>

#include "cmd/check/routes.h"
#include "cmd/common/prometheus.h"
#include "diag/check/row.h"

/* A test of a few seconds varies by some percent; a lost half of the lanes is 50 %. */
#define SLOWER_PERCENT 80

enum { ROW_WORKS, ROW_DIRECT, ROW_EXPECT_DIRECT, ROW_EXPECT_RATE, ROW_BASELINE, ROW_COUNT };

static const char *const names[] = { "into", "from" };

/* Names a pair of a GPU and a device: "0000:17:00.0/mlx5_0". */
static const char *pair_name(char name[48], const struct pl_proof *proof)
{
	snprintf(name, 48, "%.15s/%.31s", proof->gpu, proof->device);
	return name;
}

static const struct pl_proof *chosen_route(const struct pl_profile *profile, const struct pl_proof *of, int direction)
{
	const char *reason;

	return pl_profile_choose(profile, of->gpu, of->device, direction, &reason);
}

static bool is_direct_route(const struct pl_proof *route)
{
	return route && route->way != PL_GPU_PATH_STAGED;
}

/* True for the first proof of its pair. */
static bool begins_pair(const struct pl_profile *profile, size_t index)
{
	return !index || strcmp(profile->proofs[index].gpu, profile->proofs[index - 1].gpu) ||
	       strcmp(profile->proofs[index].device, profile->proofs[index - 1].device);
}

static void judge_pair(struct pl_check_result *results, const struct pl_profile *profile, const struct pl_proof *pair,
		       const struct pl_check_expected *expected)
{
	char name[48];

	pair_name(name, pair);
	for (int i = 0; i < PL_DIRECTION_COUNT; i++) {
		const struct pl_proof *route = chosen_route(profile, pair, i);
		uint64_t rate = route ? route->legs[i].rate : 0;

		if (!route) {
			pl_check_note(&results[ROW_WORKS], PL_CHECK_FAIL, name, "no route %s the GPU", names[i]);
			continue;
		}
		pl_check_note(&results[ROW_WORKS], PL_CHECK_OK, name, "%s %s the GPU", pl_gpu_path_name(route->way),
			      names[i]);
		pl_check_note(&results[ROW_DIRECT], is_direct_route(route) ? PL_CHECK_OK : PL_CHECK_WARN, name,
			      "%s %s the GPU", pl_gpu_path_name(route->way), names[i]);
		if (expected->rate)
			pl_check_note(&results[ROW_EXPECT_RATE], rate < expected->rate ? PL_CHECK_FAIL : PL_CHECK_OK,
				      name, "%.4g Gbit/s %s the GPU, %.4g expected", (double)rate * 8e-9, names[i],
				      (double)expected->rate * 8e-9);
	}
}

/* Counts the devices that a GPU reaches directly in both directions. */
static void judge_direct_routes(struct pl_check_result *result, const struct pl_profile *profile,
				const struct pl_inventory_device *gpu, unsigned expected)
{
	unsigned direct = 0;

	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *pair = &profile->proofs[i];

		if (begins_pair(profile, i) && !strcmp(pair->gpu, gpu->address))
			direct += is_direct_route(chosen_route(profile, pair, PL_INTO_GPU)) &&
				  is_direct_route(chosen_route(profile, pair, PL_FROM_GPU));
	}
	pl_check_note(result, direct < expected ? PL_CHECK_FAIL : PL_CHECK_OK, gpu->address,
		      "direct routes to %u card%s, %u expected", direct, direct == 1 ? "" : "s", expected);
}

static const struct pl_proof *find_pair(const struct pl_profile *profile, const struct pl_proof *like)
{
	for (size_t i = 0; i < profile->count; i++)
		if (!strcmp(profile->proofs[i].gpu, like->gpu) && !strcmp(profile->proofs[i].device, like->device))
			return &profile->proofs[i];
	return NULL;
}

static void compare_route(struct pl_check_result *result, const struct pl_profile *now, const struct pl_profile *before,
			  const struct pl_proof *pair, int direction)
{
	const struct pl_proof *was = chosen_route(before, pair, direction), *is = chosen_route(now, pair, direction);
	char name[48];

	if (!was)
		return;
	pair_name(name, pair);
	if (!is || (is_direct_route(was) && !is_direct_route(is)))
		pl_check_note(result, PL_CHECK_FAIL, name, "%s %s the GPU, was %s",
			      is ? pl_gpu_path_name(is->way) : "no route", names[direction],
			      pl_gpu_path_name(was->way));
	else if ((double)is->legs[direction].rate * 100 < (double)was->legs[direction].rate * SLOWER_PERCENT)
		pl_check_note(result, PL_CHECK_FAIL, name, "%.4g Gbit/s %s the GPU, was %.4g Gbit/s",
			      (double)is->legs[direction].rate * 8e-9, names[direction],
			      (double)was->legs[direction].rate * 8e-9);
}

static void compare_routes(struct pl_check_result *result, const struct pl_profile *now,
			   const struct pl_profile *before)
{
	char name[48];

	if (*now->machine && *before->machine && strcmp(now->machine, before->machine))
		pl_check_note(result, PL_CHECK_WARN, "machine", "the baseline is of another machine");
	for (size_t i = 0; i < before->count; i++) {
		const struct pl_proof *pair = &before->proofs[i];

		if (!begins_pair(before, i))
			continue;
		if (!find_pair(now, pair)) {
			pl_check_note(result, PL_CHECK_FAIL, pair_name(name, pair), "not tested, was there");
			continue;
		}
		for (int j = 0; j < PL_DIRECTION_COUNT; j++)
			compare_route(result, now, before, pair, j);
	}
	for (size_t i = 0; i < now->count; i++)
		if (begins_pair(now, i) && !find_pair(before, &now->proofs[i]))
			pl_check_note(result, PL_CHECK_WARN, pair_name(name, &now->proofs[i]), "was not there");
	if (!result->count)
		pl_check_note(result, PL_CHECK_OK, NULL, "as in the earlier test");
}

/* Fills GPUs and RDMA devices from a profile.  Returns 0 or -ENOMEM. */
static int take_profile_inventory(struct pl_inventory *inventory, const struct pl_profile *profile)
{
	inventory->gpus = calloc(profile->count + 1, sizeof(*inventory->gpus));
	inventory->cards = calloc(profile->count + 1, sizeof(*inventory->cards));
	if (!inventory->gpus || !inventory->cards)
		return -ENOMEM;
	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *proof = &profile->proofs[i];
		size_t gpu = 0, card = 0;

		while (gpu < inventory->gpu_count && strcmp(inventory->gpus[gpu].address, proof->gpu))
			gpu++;
		while (card < inventory->card_count && strcmp(inventory->cards[card].model, proof->device))
			card++;
		if (gpu == inventory->gpu_count) {
			struct pl_inventory_device *added = &inventory->gpus[inventory->gpu_count++];

			snprintf(added->address, sizeof(added->address), "%s", proof->gpu);
			snprintf(added->model, sizeof(added->model), "%s", proof->model);
		}
		if (card == inventory->card_count)
			memcpy(inventory->cards[inventory->card_count++].model, proof->device, sizeof(proof->device));
	}
	return 0;
}

static void judge_tested_count(struct pl_check_result *result, const char *kind, size_t count, unsigned expected)
{
	if (expected)
		pl_check_note(result, count < expected ? PL_CHECK_FAIL : PL_CHECK_OK, NULL,
			      "%zu %s%s tested, %u expected", count, kind, count == 1 ? "" : "s", expected);
}

static int judge_profile(struct routes_judgement *judgement, const struct check *check,
			 const struct pl_profile *profile, const struct pl_profile *before)
{
	const struct pl_check_expected *expected = &check->policy.expected;
	struct pl_check_report *report = &judgement->run.report;
	struct pl_inventory *inventory = &judgement->inventory;
	struct pl_check_result *results = calloc(ROW_COUNT, sizeof(*results));

	report->results = results;
	if (!results || take_profile_inventory(inventory, profile) < 0)
		return -ENOMEM;
	for (report->count = 0; report->count < ROW_COUNT; report->count++)
		results[report->count].row = &pl_check_rows_route[report->count];
	for (size_t i = 0; i < profile->count; i++)
		if (begins_pair(profile, i))
			judge_pair(results, profile, &profile->proofs[i], expected);
	judge_tested_count(&results[ROW_WORKS], "GPU", inventory->gpu_count, expected->gpus);
	judge_tested_count(&results[ROW_WORKS], "card", inventory->card_count, expected->cards);
	for (size_t i = 0; expected->direct && i < inventory->gpu_count; i++)
		judge_direct_routes(&results[ROW_EXPECT_DIRECT], profile, &inventory->gpus[i], expected->direct);
	if (before)
		compare_routes(&results[ROW_BASELINE], profile, before);
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (results[i].status >= PL_CHECK_WARN)
			pl_check_remedy(&results[i], "%s", results[i].row->remedy);
	pl_check_settle(report, &check->policy);
	snprintf(report->summary, sizeof(report->summary), "routes between %zu GPU%s and %zu card%s are well",
		 inventory->gpu_count, inventory->gpu_count == 1 ? "" : "s", inventory->card_count,
		 inventory->card_count == 1 ? "" : "s");
	return 0;
}

int routes_judge(struct routes_judgement *judgement, struct check *check, const struct pl_profile *profile,
		 struct pl_error *error)
{
	struct pl_profile before = { 0 };
	int rc = check_judge_read_config(check, error);

	judgement->inventory = (struct pl_inventory){ .gpu_count = 0 };
	if (rc == 0 && check->baseline_file)
		rc = pl_profile_load(&before, check->baseline_file, error);
	if (rc == 0 && judge_profile(judgement, check, profile, check->baseline_file ? &before : NULL) < 0)
		rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	pl_profile_free(&before);
	judgement->run.inventory = &judgement->inventory;
	if (rc < 0)
		routes_judgement_end(judgement, check);
	return rc;
}

void routes_judgement_end(struct routes_judgement *judgement, struct check *check)
{
	pl_check_report_free(&judgement->run.report);
	pl_inventory_release(&judgement->inventory);
	check_release_policy(check);
}

void routes_write_metrics(FILE *file, const void *user)
{
	const struct pl_profile *profile = user;

	prometheus_describe(file, "routes_rate_bytes_per_second", "gauge",
			    "Rate of a path between a GPU and a card that transfers proved.");
	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *proof = &profile->proofs[i];

		for (int j = 0; j < PL_DIRECTION_COUNT; j++) {
			if (!proof->legs[j].proven)
				continue;
			prometheus_begin(file, "routes_rate_bytes_per_second", "gpu", proof->gpu);
			prometheus_label(file, "device", proof->device);
			prometheus_label(file, "path", pl_gpu_path_name(proof->way));
			prometheus_label(file, "direction", names[j]);
			prometheus_label(file, "used", chosen_route(profile, proof, j) == proof ? "yes" : "no");
			prometheus_end(file, proof->legs[j].rate);
		}
	}
}
