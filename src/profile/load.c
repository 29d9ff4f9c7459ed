/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a file of `peerlane routes --save`. Any content is either understood or refused. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile/profile.h"

#define HINT "take a file that `peerlane routes --save` wrote"

#ifdef PL_HAVE_JSON

#include "base/dynamic_library.h"
#include "profile/json.h"

#define LIBRARY "libjson-c.so.5"

static const char *const directions[PL_DIRECTION_COUNT] = { "into", "from" };

int route_json_load(struct route_json *json, const char *file, struct pl_error *error)
{
	static const struct pl_symbol functions[] = {
#define ENTRY(function) { #function, offsetof(struct route_json, function) },
		ROUTE_JSON_FUNCTIONS(ENTRY)
#undef ENTRY
	};
	const char *trouble = pl_library_load(LIBRARY, functions, PL_ARRAY_SIZE(functions), json);

	if (trouble)
		return pl_fail(error, -ELIBACC, "ROUTES-READER", "dlopen", file,
			       "install it, on Debian and Ubuntu: libjson-c5",
			       "profiles of routes are read by " LIBRARY ", which %s", trouble);
	return 0;
}

static int fail_profile(struct pl_error *error, const char *file, const char *fact)
{
	return pl_fail(error, -EINVAL, "ROUTES-FILE", NULL, file, HINT, "%s", fact);
}

static bool get(const struct route_json *json, struct json_object *object, const char *name, enum json_type type,
		struct json_object **value)
{
	return json->json_object_object_get_ex(object, name, value) && json->json_object_is_type(*value, type);
}

/* Returns false unless the member is a text that fits. Replaces characters that could control a terminal. */
static bool get_json_text(const struct route_json *json, struct json_object *object, const char *name, char *text,
			  size_t size)
{
	struct json_object *value;
	size_t length;

	if (!get(json, object, name, json_type_string, &value))
		return false;
	length = (size_t)json->json_object_get_string_len(value);
	if (length >= size)
		return false;
	memcpy(text, json->json_object_get_string(value), length);
	text[length] = '\0';
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	return true;
}

/* A member that earlier releases did not save is left empty. */
static bool get_new_text(const struct route_json *json, struct json_object *object, const char *name, char *text,
			 size_t size)
{
	struct json_object *value;

	return !json->json_object_object_get_ex(object, name, &value) || get_json_text(json, object, name, text, size);
}

static bool get_leg(const struct route_json *json, struct json_object *object, const char *name,
		    struct pl_proof_leg *leg)
{
	struct json_object *value, *proven, *rate;

	if (!get(json, object, name, json_type_object, &value) ||
	    !get(json, value, "proven", json_type_boolean, &proven) ||
	    !get(json, value, "bytes_per_second", json_type_int, &rate) || json->json_object_get_int64(rate) < 0)
		return false;
	leg->proven = json->json_object_get_boolean(proven);
	leg->rate = (uint64_t)json->json_object_get_int64(rate);
	return get_json_text(json, value, "reason", leg->reason, sizeof(leg->reason));
}

static bool get_way(const struct route_json *json, struct json_object *object, enum pl_gpu_path *way)
{
	char name[16];

	if (!get_json_text(json, object, "way", name, sizeof(name)))
		return false;
	for (*way = 0; *way < PL_GPU_PATH_COUNT; (*way)++)
		if (!strcmp(name, pl_gpu_path_name(*way)))
			return true;
	return false;
}

static bool get_proof(const struct route_json *json, struct json_object *object, struct pl_proof *proof)
{
	if (!json->json_object_is_type(object, json_type_object) ||
	    !get_json_text(json, object, "gpu", proof->gpu, sizeof(proof->gpu)) ||
	    !get_json_text(json, object, "model", proof->model, sizeof(proof->model)) ||
	    !get_json_text(json, object, "device", proof->device, sizeof(proof->device)) ||
	    !get_new_text(json, object, "driver", proof->driver, sizeof(proof->driver)) ||
	    !get_new_text(json, object, "firmware", proof->firmware, sizeof(proof->firmware)) ||
	    !get_way(json, object, &proof->way))
		return false;
	for (int i = 0; i < PL_DIRECTION_COUNT; i++)
		if (!get_leg(json, object, directions[i], &proof->legs[i]))
			return false;
	return true;
}

static int get_profile(const struct route_json *json, struct pl_profile *profile, struct json_object *object,
		       const char *file, struct pl_error *error)
{
	struct json_object *version, *proofs;
	size_t count;

	if (!json->json_object_is_type(object, json_type_object) ||
	    !json->json_object_object_get_ex(object, "version", &version) ||
	    json->json_object_get_int64(version) != PL_PROFILE_VERSION ||
	    !get_new_text(json, object, "machine", profile->machine, sizeof(profile->machine)))
		return fail_profile(error, file, "it is no profile of routes, or one of another version");
	if (!get(json, object, "proofs", json_type_array, &proofs))
		return fail_profile(error, file, "there is no proof in it");
	count = json->json_object_array_length(proofs);
	for (size_t i = 0; i < count; i++) {
		struct pl_proof *proof = pl_profile_add(profile);

		if (!proof)
			return pl_fail_memory(error, "pl_profile_load");
		if (!get_proof(json, json->json_object_array_get_idx(proofs, i), proof))
			return fail_profile(error, file, "one of its proofs is not understood");
	}
	return count ? 0 : fail_profile(error, file, "there is no proof in it");
}

/* Returns NULL if the file cannot be read, or is no JSON. */
static struct json_object *read_profile_file(const struct route_json *json, const char *file)
{
	/* Without O_NONBLOCK, opening a FIFO would wait for its other end. */
	int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct json_object *object = NULL;
	struct stat status;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		object = json->json_object_from_fd(fd);
	close(fd);
	return object;
}

/* Reads a profile from a text, or from the file if text is NULL. */
static int read_profile(struct pl_profile *profile, const char *file, const char *text, struct pl_error *error)
{
	struct json_object *object;
	struct route_json json;
	int rc = route_json_load(&json, file, error);

	*profile = (struct pl_profile){ 0 };
	if (rc < 0)
		return rc;
	object = text ? json.json_tokener_parse(text) : read_profile_file(&json, file);
	rc = object ? get_profile(&json, profile, object, file, error)
		    : fail_profile(error, file, "it cannot be read, or is no JSON");
	json.json_object_put(object);
	if (rc < 0)
		pl_profile_free(profile);
	return rc;
}

#else

static int read_profile(struct pl_profile *profile, const char *file, const char *text, struct pl_error *error)
{
	(void)text;
	*profile = (struct pl_profile){ 0 };
	return pl_fail(error, -ENOTSUP, "ROUTES-READER", "dlopen", file, "build with the headers of json-c",
		       "this build does not read profiles of routes");
}

#endif

int pl_profile_load(struct pl_profile *profile, const char *file, struct pl_error *error)
{
	return read_profile(profile, file, NULL, error);
}

int pl_profile_parse(struct pl_profile *profile, const char *file, const char *text, struct pl_error *error)
{
	return read_profile(profile, file, text, error);
}
