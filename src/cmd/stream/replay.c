/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane replay` */
#include "cmd/stream/replay.h"

#include "cmd/common/output.h"

static void warn_without_key(const struct cli_options *options)
{
	if (!cli_authenticates(options))
		cli_warn(options->insecure ? "anybody who can reach this address can subscribe, because there is no key"
					   : "any user of this host can subscribe, because there is no key\n"
					     "  hint: add --key FILE at both ends");
}

static int publish_recording(struct replay *replay)
{
	const struct replay_options *options = replay->options;
	struct pl_error error;
	int rc = replay_open(replay, &error), status;

	if (rc == 0)
		rc = replay_print_listening(replay, &error);
	if (rc < 0) {
		replay_close(replay);
		return cli_report_for(&options->common, &error);
	}
	if (!options->common.quiet)
		warn_without_key(&options->common);
	rc = replay_frames(replay, &error);
	status = replay_print_totals(replay, rc < 0 ? &error : NULL);
	replay_close(replay);
	return status;
}

int pl_cli_replay(int argc, char **argv)
{
	struct replay_options options;
	struct replay replay = { .options = &options, .signals = -1 };
	struct pl_error error;
	int status;

	replay_parse_arguments(&options, argc, argv);
	if (recording_open(&replay.reader, options.file, &error) < 0)
		return cli_report_for(&options.common, &error);
	status = options.check || options.info ? replay_check(&replay) : publish_recording(&replay);
	recording_close(&replay.reader);
	return status;
}
