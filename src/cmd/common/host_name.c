/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <unistd.h>

#include "cmd/common/cli.h"

void cli_host_name(char *buffer, size_t size)
{
	static const char *const variables[] = { "SLURMD_NODENAME", "NODE_NAME" };
	const char *name = NULL;

	for (size_t i = 0; !name && i < CLI_ARRAY_SIZE(variables); i++) {
		name = getenv(variables[i]);
		name = name && *name ? name : NULL;
	}
	buffer[0] = buffer[size - 1] = '\0';
	if (name)
		snprintf(buffer, size, "%s", name);
	else if (gethostname(buffer, size - 1) < 0)
		buffer[0] = '\0';
	cli_printable(buffer, false);
}
