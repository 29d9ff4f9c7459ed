/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "report/fleet.h"

/* Moves the answers into a fleet, and judges it. */
static int judge_saved_run(struct report_document *document, const struct saved *saved, struct pl_error *error)
{
	struct report_fleet *fleet = calloc(1, sizeof(*fleet));

	if (!fleet)
		return report_fail_memory(error);
	document->kind = REPORT_FLEET;
	document->fleet = fleet;
	fleet->saved = *saved;
	fleet->saved.path = document->path;
	fleet->fleet = (struct fleet){ .kind = saved->kind,
				       .fail_on = PL_CHECK_FAIL,
				       .hosts = saved->hosts,
				       .answers = saved->answers,
				       .seconds = -1 };
	return fleet_judge(&fleet->fleet) < 0 ? report_fail_memory(error) : 0;
}

int report_take_fleet(struct report_document *document, struct json_object *root, struct pl_error *error)
{
	struct saved saved;
	int rc = saved_take(&saved, document->path, root, error);

	if (rc == 0)
		return judge_saved_run(document, &saved, error);
	saved_free(&saved);
	return rc;
}

int report_load_fleet(struct report *report, const char *path, struct pl_error *error)
{
	struct report_document *document;
	struct saved saved;
	int rc = report_add_document(report, path, &document, error);

	if (rc < 0)
		return rc;
	rc = saved_read(&saved, path, error);
	if (rc == 0)
		return judge_saved_run(document, &saved, error);
	saved_free(&saved);
	return rc;
}

void report_free_fleet(struct report_fleet *fleet)
{
	if (!fleet)
		return;
	fleet_free(&fleet->fleet);
	free(fleet);
}
