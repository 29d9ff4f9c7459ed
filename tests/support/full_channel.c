/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/full_channel.h"

#include "support/check.h"

/* Sends releases of that length until there is no room for another. */
static void send_releases(struct pl_peer *peer, uint16_t key_length)
{
	struct pl_control release = { .type = PL_CONTROL_RELEASE };
	int rc;

	/* No key has this number. */
	memset(release.release.key, 0xff, sizeof(release.release.key));
	release.release.key_length = key_length;
	do
		rc = pl_channel_send(&peer->channel, &release);
	while (rc == 0);
	check_number(rc, -ENOBUFS);
}

void full_channel_fill(struct pl_peer *peer)
{
	send_releases(peer, PL_KEY_BLOB_MAX);
	/* The shortest message that changes nothing. */
	send_releases(peer, 0);
}
