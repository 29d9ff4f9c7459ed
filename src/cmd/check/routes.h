/* SPDX-License-Identifier: BSD-2-Clause */
/* Profiles of tested routes as JSON. */
#ifndef PL_CMD_CHECK_ROUTES_H
#define PL_CMD_CHECK_ROUTES_H

#include "cmd/check/check.h"
#include "profile/profile.h"

/* Returns the proofs and the choices that follow from them. */
struct json_object *routes_to_json(const struct pl_profile *profile);
/* Profile in a dump. */
#define ROUTES_DUMP_FILE "peerlane/routes.json"
/* Loads the profile of the system, or that of a dump, from a root. */
int routes_load_root(struct pl_profile *profile, struct pl_sysroot *root, struct pl_error *error);
/* Replaces a file by the profile as JSON.  The old file stays after a failure. */
int routes_save(const struct pl_profile *profile, const char *file, struct pl_error *error);

/* Judgement of a profile (routes_judge.c). */
struct routes_judgement {
	struct check_run run;
	struct pl_inventory inventory; /* GPUs, and cards named by their devices */
};

/*
 * Judges a profile by the policy of a check.  `judgement->run` has host and time already.  Nothing is left to release after
 * a failure.
 */
int routes_judge(struct routes_judgement *judgement, struct check *check, const struct pl_profile *profile,
		 struct pl_error *error);
void routes_judgement_end(struct routes_judgement *judgement, struct check *check);
/* Writes the rates of a profile for struct check. */
void routes_write_metrics(FILE *file, const void *user);

#endif
