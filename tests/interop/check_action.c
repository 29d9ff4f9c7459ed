/* SPDX-License-Identifier: BSD-2-Clause */
/* check_action rescan ADDRESS: runs the remedy of `peerlane check --fix --yes` for a card on any PCI device. */
#include <stdio.h>

#include "diag/check/check.h"

int main(int argc, char **argv)
{
	struct pl_check_action action = { .kind = PL_CHECK_RESCAN };
	struct pl_error error;
	char text[600];

	if (argc != 3 || strcmp(argv[1], "rescan"))
		return 2;
	snprintf(action.argument, sizeof(action.argument), "%s", argv[2]);
	if (pl_check_action_run(&action, &error) == 0)
		return 0;
	pl_error_format(&error, text, sizeof(text));
	fprintf(stderr, "%s\n", text);
	return 1;
}
