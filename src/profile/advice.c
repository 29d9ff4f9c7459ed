/* SPDX-License-Identifier: BSD-2-Clause */
/* Matching of profiles with this machine, and location of profile files. */
#include "profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Text of completions for operations that went directly in spite of the profile. */
#define NOT_USED "verbs: the network card reads and writes the region itself; the profile of routes is not used: "

/* The machine id is confidential (machine-id(5)), so a number is derived from it. */
void pl_profile_machine(char machine[PL_PROFILE_MACHINE])
{
	char id[129];
	size_t length = pl_read_head("/etc/machine-id", id, sizeof(id));
	XXH128_hash_t hash;

	machine[0] = '\0';
	if (!length)
		return;
	hash = XXH3_128bits_withSeed(id, length, 0x7065656c616e6572ull);
	snprintf(machine, PL_PROFILE_MACHINE, "%016llx%016llx", (unsigned long long)hash.high64,
		 (unsigned long long)hash.low64);
}

bool pl_profile_path(char *path, size_t size)
{
	const char *named = secure_getenv("PEERLANE_ROUTES"), *config = secure_getenv("XDG_CONFIG_HOME"),
		   *home = secure_getenv("HOME");

	if (named) {
		snprintf(path, size, "%s", named);
		return *named;
	}
	if (config && *config == '/')
		snprintf(path, size, "%s/peerlane/routes.json", config);
	else
		snprintf(path, size, "%s/.config/peerlane/routes.json", home ? home : "");
	if (access(path, R_OK) == 0)
		return true;
	if (size < sizeof(PL_PROFILE_SYSTEM_FILE))
		return false;
	memcpy(path, PL_PROFILE_SYSTEM_FILE, sizeof(PL_PROFILE_SYSTEM_FILE));
	return access(path, R_OK) == 0;
}

const struct pl_proof *pl_profile_advise(const struct pl_profile *profile, const struct pl_proof *here,
					 enum pl_direction direction, const char **reason)
{
	const struct pl_proof *chosen = pl_profile_choose(profile, here->gpu, here->device, direction, reason);

	*reason = NULL;
	if (!chosen)
		*reason = NOT_USED "it has no proof of this GPU and device";
	else if (!profile->machine[0] || strcmp(profile->machine, profile->here))
		*reason = NOT_USED "it is of another machine";
	else if (strcmp(chosen->model, here->model))
		*reason = NOT_USED "it is of another GPU at this address";
	else if (strcmp(chosen->driver, here->driver))
		*reason = NOT_USED "it is of another version of the GPU's driver";
	else if (strcmp(chosen->firmware, here->firmware))
		*reason = NOT_USED "it is of another firmware of the device";
	return *reason ? NULL : chosen;
}
