/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/permission.h"

#include <string.h>
#include <time.h>

/* True if a pattern of `length` characters fits the name.  Takes linear time for each '*' of the pattern. */
static bool pattern_fits(const char *pattern, size_t length, const char *name)
{
	const char *end = pattern + length, *star = NULL, *retry = NULL;

	while (*name) {
		if (pattern < end && *pattern == '*') {
			star = ++pattern;
			retry = name;
		} else if (pattern < end && (*pattern == '?' || *pattern == *name)) {
			pattern++;
			name++;
		} else if (star) {
			pattern = star;
			name = ++retry;
		} else {
			return false;
		}
	}
	while (pattern < end && *pattern == '*')
		pattern++;
	return pattern == end;
}

bool permission_name_fits(const char *patterns, const char *name)
{
	if (!*patterns)
		return true;
	while (*patterns) {
		size_t length = strcspn(patterns, ",");

		if (length && patterns[length - 1] == '/' && !strncmp(patterns, name, length))
			return true;
		if (length && pattern_fits(patterns, length, name))
			return true;
		patterns += length + (patterns[length] == ',');
	}
	return false;
}

static unsigned count_connections(const struct client *client)
{
	unsigned count = 0;

	for (const struct client *at = client->server->clients; at; at = at->next)
		count += at != client && at->peer &&
			 !strcmp(at->identity.fingerprint, client->identity.fingerprint);
	return count;
}

int permission_admit(struct client *client, struct pl_error *error)
{
	client->identity = (struct pl_identity)PL_IDENTITY_INIT;
	client->rights = (struct pl_rights)PL_RIGHTS_INIT;
	if (pl_peer_identity(client->peer, &client->identity) < 0 ||
	    pl_peer_rights(client->peer, &client->rights) < 0)
		return cli_fail_errno(error, -EINVAL, "pl_peer_identity", client->address);
	if (client->rights.clients && count_connections(client) >= client->rights.clients)
		return cli_fail(error, -EBUSY, "IDENTITY-BUSY", NULL, "wait until another client of this identity has ended",
				"this identity may have at most %u connections", client->rights.clients);
	return 0;
}

void permission_refresh(struct client *client)
{
	struct pl_rights rights = PL_RIGHTS_INIT;

	if (client->peer && pl_peer_rights(client->peer, &rights) == 0)
		client->rights = rights;
}

int permission_check(const struct client *client, const char *name, unsigned access, struct pl_error *error)
{
	if (client->server->read_only && access & PL_ACCESS_WRITE)
		return cli_fail(error, -EACCES, "NOT-WRITABLE", name, "start the server without --read-only",
				"the server lets clients only read");
	if (access & ~client->rights.access)
		return cli_fail(error, -EACCES, "IDENTITY-RIGHTS", name,
				"have the line of this identity changed in the server's --authorized file",
				"this identity may not %s", access & PL_ACCESS_WRITE ? "write" : "read");
	/* Whether the name exists is not told. */
	if (!permission_name_fits(client->rights.names, name))
		return cli_fail(error, -EACCES, "IDENTITY-NAMES", name,
				"have the line of this identity changed in the server's --authorized file",
				"this identity may not use this name");
	return 0;
}

bool permission_is_over(const struct client *client)
{
	struct timespec now;

	if (!client->rights.until)
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec >= client->rights.until;
}
