/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/local.h"

#include "support/check.h"

const struct setting local_threads = {
	"threads", "local", "127.0.0.1", PL_PROGRESS_THREAD, 2, true, false, true, false
};
const struct setting local_manual = {
	"manual", "local", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, true, false
};

int write_some(struct scenario_environment *environment, struct pl_remote *remote, struct pl_region *region,
	       uint64_t length, struct pl_completion *receipt)
{
	struct pl_operation *operation;
	struct pl_error error;
	int status = pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, region, 0, length }, NULL,
			      &operation, &error);

	return status ? status : await(environment, operation, receipt, &error);
}

void check_reason(struct scenario_environment *environment, struct pl_remote *remote, struct pl_region *region,
		  const char *word)
{
	struct pl_completion receipt;

	check_number(write_some(environment, remote, region, 100, &receipt), 0);
	check_text(receipt.fabric, "local");
	check_number(receipt.route, PL_ROUTE_DIRECT);
	check_number((receipt.bytes - receipt.bytes_staged), 100);
	check(strstr(receipt.reason, word));
}
