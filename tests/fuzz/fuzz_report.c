/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a document for `peerlane report`.  The target draws each readable document in all formats. */
#include "fuzz.h"

#include <stdio.h>

#include "report/report.h"

static void draw_report(const struct report *report)
{
	FILE *file = fopen("/dev/null", "w");

	REQUIRE(file);
	REQUIRE(report_write_html(report, file) == 0);
	for (int plot = 0; plot < REPORT_PLOTS; plot++)
		if (report_plot_available(report, (enum report_plot)plot))
			REQUIRE(report_draw(report, (enum report_plot)plot, 640, true, file) == 0);
	fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct report report = { .documents = NULL };
	struct pl_error error = { 0 };
	int rc = report_parse(&report, "fuzz", (const char *)data, size, &error);

	if (rc == 0)
		rc = report_finish(&report, &error);
	if (rc == 0)
		rc = report_make_sentences(&report, &error);
	if (rc == 0)
		draw_report(&report);
	else
		REQUIRE(rc == error.code && error.id[0]);
	report_free(&report);
	return 0;
}
