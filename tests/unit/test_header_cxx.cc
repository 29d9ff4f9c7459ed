/* SPDX-License-Identifier: BSD-2-Clause */
/* Compile test: the public headers are valid C++, and their initialisers name every member. */
#include <peerlane/error.h>
#include <peerlane/peerlane.h>
#include <peerlane/stream.h>

int main()
{
	pl_options options = PL_OPTIONS_INIT;
	pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
	pl_peer_info info = PL_PEER_INFO_INIT;
	pl_context *context = nullptr;
	pl_error error = {};
	pl_completion completion = {};
	pl_attributes attributes = PL_ATTRIBUTES_INIT;
	pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	pl_publisher_info publisher_info = PL_PUBLISHER_INFO_INIT;
	pl_subscription_info subscription = PL_SUBSCRIPTION_INFO_INIT;
	pl_subscriber_options subscriber = PL_SUBSCRIBER_OPTIONS_INIT;
	pl_subscriber_info subscriber_info = PL_SUBSCRIBER_INFO_INIT;
	pl_frame_options frame = PL_FRAME_OPTIONS_INIT;
	pl_frame_info frame_info = PL_FRAME_INFO_INIT;

	static_assert(sizeof(pl_completion) == 128, "pl_completion is not 128 bytes");
	static_assert(PL_ACCESS_ALL == (PL_ACCESS_READ | PL_ACCESS_WRITE | PL_ACCESS_ATOMIC), "PL_ACCESS_ALL lacks an access right");
	if (pl_open(&context, &options, &error) < 0)
		return 1;
	pl_close(context);
	return options.size == grant.size && info.size && attributes.size && completion.status && publisher.size &&
	       publisher_info.size && subscription.size && subscriber.size && subscriber_info.size && frame.size &&
	       frame_info.size;
}
