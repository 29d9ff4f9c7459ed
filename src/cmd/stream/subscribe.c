/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane subscribe` */
#include "cmd/stream/subscribe.h"

#include <stdlib.h>

#include "cmd/common/output.h"

static int run_subscribe(struct subscribe *subscribe)
{
	const struct subscribe_options *options = subscribe->options;
	struct pl_error error;
	int rc = subscribe_open(subscribe, &error), status;

	if (rc < 0) {
		subscribe_close(subscribe);
		return cli_report_for(&options->source.common, &error);
	}
	rc = subscribe_frames(subscribe, &error);
	cli_signal_ignore();
	status = subscribe_print(subscribe, rc < 0 ? &error : NULL);
	subscribe_close(subscribe);
	return status;
}

int pl_cli_subscribe(int argc, char **argv)
{
	struct subscribe *subscribe = calloc(1, sizeof(*subscribe));
	struct subscribe_options options;
	int status;

	if (!subscribe) {
		cli_warn("there is no memory");
		return CLI_FAILED;
	}
	subscribe_parse_arguments(&options, argc, argv);
	subscribe_init(subscribe, &options);
	status = run_subscribe(subscribe);
	free(subscribe);
	return status;
}
