/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "cli/routes.h"

#define VERSION 1
#define HINT "take a file that `peerlane routes --save` wrote"

static const char *const directions[PL_DIRECTION_COUNT] = { "into", "from" };

static struct json_object *leg_to_json(const struct pl_proof_leg *leg)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "proven", json_object_new_boolean(leg->proven));
	cli_json_add(object, "bytes_per_second", json_object_new_uint64(leg->rate));
	cli_json_add(object, "reason", cli_json_text(leg->reason));
	return object;
}

static struct json_object *choice_to_json(const struct pl_profile *profile, const struct pl_proof *of, int direction)
{
	struct json_object *object = json_object_new_object();
	const char *reason;
	const struct pl_proof *chosen = pl_profile_choose(profile, of->gpu, of->device, direction, &reason);

	cli_json_add(object, "gpu", cli_json_text(of->gpu));
	cli_json_add(object, "device", cli_json_text(of->device));
	cli_json_add(object, "direction", cli_json_text(directions[direction]));
	cli_json_add(object, "way", cli_json_text(chosen ? pl_way_name(chosen->way) : NULL));
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
		cli_json_add(one, "way", cli_json_text(pl_way_name(proof->way)));
		for (int j = 0; j < PL_DIRECTION_COUNT; j++)
			cli_json_add(one, directions[j], leg_to_json(&proof->legs[j]));
		json_object_array_add(proofs, one);
		for (int j = 0; proof->way == PL_WAY_STAGED && j < PL_DIRECTION_COUNT; j++)
			json_object_array_add(choices, choice_to_json(profile, proof, j));
	}
	cli_json_add(object, "version", json_object_new_int(VERSION));
	cli_json_add(object, "proofs", proofs);
	cli_json_add(object, "choices", choices);
	return object;
}

int routes_save(const struct pl_profile *profile, const char *file, struct pl_error *error)
{
	struct json_object *object = routes_to_json(profile);
	int rc = 0;

	if (json_object_to_file_ext(file, object, JSON_C_TO_STRING_PRETTY) < 0)
		rc = cli_fail_errno(error, errno ? -errno : -EIO, "open", file);
	json_object_put(object);
	return rc;
}

static int refuse(struct pl_error *error, const char *file, const char *fact)
{
	return cli_fail(error, -EINVAL, "ROUTES-FILE", file, HINT, "%s", fact);
}

/* False unless it is a text that fits. */
static bool get_text(struct json_object *object, const char *name, char *text, size_t size)
{
	struct json_object *value;

	if (!json_object_object_get_ex(object, name, &value) || !json_object_is_type(value, json_type_string) ||
	    (size_t)json_object_get_string_len(value) >= size)
		return false;
	snprintf(text, size, "%s", json_object_get_string(value));
	cli_printable(text, false);
	return true;
}

static bool get_leg(struct json_object *object, const char *name, struct pl_proof_leg *leg)
{
	struct json_object *value, *proven, *rate;

	if (!json_object_object_get_ex(object, name, &value) || !json_object_is_type(value, json_type_object) ||
	    !json_object_object_get_ex(value, "proven", &proven) || !json_object_is_type(proven, json_type_boolean) ||
	    !json_object_object_get_ex(value, "bytes_per_second", &rate) || !json_object_is_type(rate, json_type_int) ||
	    json_object_get_int64(rate) < 0)
		return false;
	leg->proven = json_object_get_boolean(proven);
	leg->rate = json_object_get_uint64(rate);
	return get_text(value, "reason", leg->reason, sizeof(leg->reason));
}

static bool get_way(struct json_object *object, enum pl_way *way)
{
	char name[16];

	if (!get_text(object, "way", name, sizeof(name)))
		return false;
	for (*way = 0; *way < PL_WAY_COUNT; (*way)++)
		if (!strcmp(name, pl_way_name(*way)))
			return true;
	return false;
}

static bool get_proof(struct json_object *object, struct pl_proof *proof)
{
	if (!json_object_is_type(object, json_type_object) ||
	    !get_text(object, "gpu", proof->gpu, sizeof(proof->gpu)) ||
	    !get_text(object, "model", proof->model, sizeof(proof->model)) ||
	    !get_text(object, "device", proof->device, sizeof(proof->device)) || !get_way(object, &proof->way))
		return false;
	for (int i = 0; i < PL_DIRECTION_COUNT; i++)
		if (!get_leg(object, directions[i], &proof->legs[i]))
			return false;
	return true;
}

static int get_profile(struct pl_profile *profile, struct json_object *object, const char *file, struct pl_error *error)
{
	struct json_object *version, *proofs;

	if (!json_object_object_get_ex(object, "version", &version) || json_object_get_int(version) != VERSION)
		return refuse(error, file, "it is no profile of routes, or one of another version");
	if (!json_object_object_get_ex(object, "proofs", &proofs) || !json_object_is_type(proofs, json_type_array) ||
	    json_object_array_length(proofs) == 0)
		return refuse(error, file, "there is no proof in it");
	for (size_t i = 0; i < json_object_array_length(proofs); i++) {
		struct pl_proof *proof = pl_profile_add(profile);

		if (!proof)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		if (!get_proof(json_object_array_get_idx(proofs, i), proof))
			return refuse(error, file, "one of its proofs is not understood");
	}
	return 0;
}

int routes_load(struct pl_profile *profile, const char *file, struct pl_error *error)
{
	struct json_object *object = json_object_from_file(file);
	int rc;

	*profile = (struct pl_profile){ 0 };
	if (!object)
		return refuse(error, file, "it cannot be read, or is no JSON");
	rc = json_object_is_type(object, json_type_object)
		     ? get_profile(profile, object, file, error)
		     : refuse(error, file, "it is no profile of routes, or one of another version");
	json_object_put(object);
	if (rc < 0)
		pl_profile_free(profile);
	return rc;
}
