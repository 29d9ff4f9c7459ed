/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/routes.h"

#include <stdlib.h>
#include <string.h>

#include "topology/sysroot.h"

#define PROFILE_MAX ((size_t)16 << 20) /* bytes of a saved profile */

static const char *const directions[PL_DIRECTION_COUNT] = { "into", "from" };

static struct json_object *proof_leg_json(const struct pl_proof_leg *leg)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "proven", json_object_new_boolean(leg->proven));
	cli_json_add(object, "bytes_per_second", json_object_new_uint64(leg->rate));
	cli_json_add(object, "reason", cli_json_text(leg->reason));
	return object;
}

static struct json_object *route_choice_json(const struct pl_profile *profile, const struct pl_proof *of, int direction)
{
	struct json_object *object = json_object_new_object();
	const char *reason;
	const struct pl_proof *chosen = pl_profile_choose(profile, of->gpu, of->device, direction, &reason);

	cli_json_add(object, "gpu", cli_json_text(of->gpu));
	cli_json_add(object, "device", cli_json_text(of->device));
	cli_json_add(object, "direction", cli_json_text(directions[direction]));
	cli_json_add(object, "way", cli_json_text(chosen ? pl_gpu_path_name(chosen->way) : NULL));
	cli_json_add(object, "reason", cli_json_text(reason));
	return object;
}

struct json_object *routes_to_json(const struct pl_profile *profile)
{
	struct json_object *object = json_object_new_object();
	struct json_object *proofs = json_object_new_array(), *choices = json_object_new_array();

	for (size_t i = 0; i < profile->count; i++) {
		const struct pl_proof *proof = &profile->proofs[i];
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "gpu", cli_json_text(proof->gpu));
		cli_json_add(one, "model", cli_json_text(proof->model));
		cli_json_add(one, "device", cli_json_text(proof->device));
		if (proof->driver[0])
			cli_json_add(one, "driver", cli_json_text(proof->driver));
		if (proof->firmware[0])
			cli_json_add(one, "firmware", cli_json_text(proof->firmware));
		cli_json_add(one, "way", cli_json_text(pl_gpu_path_name(proof->way)));
		for (int j = 0; j < PL_DIRECTION_COUNT; j++)
			cli_json_add(one, directions[j], proof_leg_json(&proof->legs[j]));
		json_object_array_add(proofs, one);
		for (int j = 0; proof->way == PL_GPU_PATH_STAGED && j < PL_DIRECTION_COUNT; j++)
			json_object_array_add(choices, route_choice_json(profile, proof, j));
	}
	cli_json_add(object, "version", json_object_new_int(PL_PROFILE_VERSION));
	if (profile->machine[0])
		cli_json_add(object, "machine", cli_json_text(profile->machine));
	cli_json_add(object, "proofs", proofs);
	cli_json_add(object, "choices", choices);
	return object;
}

int routes_save(const struct pl_profile *profile, const char *file, struct pl_error *error)
{
	struct json_object *object = routes_to_json(profile);
	const char *text = object ? json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY) : NULL;
	int rc = text ? cli_replace_file(file, text, 0644, error) : cli_fail_errno(error, -ENOMEM, "malloc", file);

	json_object_put(object);
	return rc;
}

int routes_load_root(struct pl_profile *profile, struct pl_sysroot *root, struct pl_error *error)
{
	static const char *const files[] = { PL_PROFILE_SYSTEM_FILE, "/" ROUTES_DUMP_FILE };
	int rc = -ENOENT;

	*profile = (struct pl_profile){ 0 };
	for (size_t i = 0; rc == -ENOENT && i < CLI_ARRAY_SIZE(files); i++) {
		size_t length;
		char *text;

		rc = pl_sysroot_load(root, PROFILE_MAX, &text, &length, "%s", files[i] + 1);
		if (rc == 0) {
			rc = pl_profile_parse(profile, files[i], text, error);
			free(text);
			return rc;
		}
	}
	return cli_fail_errno(error, rc, "open", PL_PROFILE_SYSTEM_FILE);
}
