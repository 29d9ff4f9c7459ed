/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane publish` */
#include "cmd/stream/publish.h"

#include "cmd/common/output.h"

static void warn_about_missing_key(const struct cli_options *options)
{
	if (!cli_authenticates(options))
		cli_warn(options->insecure ? "anybody who can reach this address can subscribe, because there is no key"
					   : "any user of this host can subscribe, because there is no key\n"
					     "  hint: add --key FILE at both ends");
}

int pl_cli_publish(int argc, char **argv)
{
	struct publish_options options;
	struct publish publish = { .options = &options, .signals = -1, .source = { .fd = -1 } };
	struct pl_error error;
	int rc, status;

	publish_parse_arguments(&options, argc, argv);
	rc = frame_source_open(&publish.source, options.from, &options.layout, options.frame_bytes, &error);
	if (rc == 0)
		rc = publish_open(&publish, &error);
	if (rc == 0)
		rc = publish_print_listening(&publish, &error);
	if (rc < 0) {
		publish_close(&publish);
		return cli_report_for(&options.common, &error);
	}
	if (!options.common.quiet)
		warn_about_missing_key(&options.common);
	rc = publish_frames(&publish, &error);
	status = publish_print_totals(&publish, rc < 0 ? &error : NULL);
	publish_close(&publish);
	return rc < 0 ? cli_report(&error) : status;
}
