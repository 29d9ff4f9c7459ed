/* SPDX-License-Identifier: BSD-2-Clause */
#include <sys/resource.h>

#include "cmd/common/cli.h"

#define DESCRIPTORS_MAX 65536

void cli_raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS_MAX)
		return;
	limit.rlim_cur = CLI_MIN(limit.rlim_max, (rlim_t)DESCRIPTORS_MAX);
	setrlimit(RLIMIT_NOFILE, &limit);
}
