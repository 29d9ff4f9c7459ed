/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Deletion of uploads.  The server's thread removes the names, so that the audit log has the event before the client can
 * leave.  A thread of the committer then waits for storage and closes the files, whose blocks the kernel frees.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/transfer/folder_set.h"
#include "cmd/transfer/partial_record.h"
#include "cmd/transfer/permission.h"
#include "cmd/transfer/quota.h"

/* Upload of a name: its finished file, or its partial file. */
struct upload {
	int fd; /* -1: there is none */
	enum quota_owned owned;
	uint64_t size;
	bool deletable;
};

struct deletion {
	struct commit commit; /* first, because the server frees the commit */
	int folder;
	const char *last; /* component of commit.name */
	struct partial_file lock;
	struct upload finished, unfinished;
	uint64_t bytes; /* of the deleted files */
};

static int fail_not_uploaded(const char *name, struct pl_error *error)
{
	return cli_fail(error, -ENOENT, "NOT-UPLOADED", name, service_unknown_name_hint(name),
			"the server has no upload of this name");
}

static int check_deletion_request(const struct client *client, const char *name, struct pl_error *error)
{
	const struct server *server = client->server;
	int rc = permission_check(client, name, PL_ACCESS_WRITE, error);

	if (rc < 0)
		return rc;
	if (server->upload < 0)
		return cli_fail(error, -EACCES, "NOT-WRITABLE", name, "start the server with --upload DIRECTORY",
				"the server does not accept files");
	if (!service_name_valid(name) || is_partial_file_name(name))
		return cli_fail(error, -EINVAL, "NAME-SYNTAX", name, "use the name of `peerlane put`",
				"the server does not accept this file name");
	if (!client->identity.fingerprint[0] && !server->allow_delete)
		return cli_fail(error, -EACCES, "DELETE-ANONYMOUS", name,
				"use --identity at both ends, or start the server with --allow-delete",
				"a client without an identity cannot prove that the file is its own");
	return 0;
}

/* Fills an upload from its open file. */
static int examine_upload(const struct client *client, int fd, struct upload *upload, struct pl_error *error)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return cli_fail_errno(error, -errno, "fstat", NULL);
	upload->fd = fd;
	upload->size = (uint64_t)status.st_size;
	upload->owned = quota_owned_by(client, fd);
	upload->deletable = upload->owned == OWNED_BY_CLIENT ||
			    (upload->owned == OWNED_BY_NOBODY && client->server->allow_delete);
	return 0;
}

static int find_finished_upload(const struct client *client, struct deletion *deletion, struct pl_error *error)
{
	const char *name = deletion->commit.name;
	struct stat status;
	int fd;

	if (fstatat(deletion->folder, deletion->last, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : cli_fail_errno(error, -errno, "stat", name);
	if (!S_ISREG(status.st_mode))
		return cli_fail(error, -EINVAL, "NOT-A-FILE", name, NULL, "only regular files can be deleted");
	fd = openat(deletion->folder, deletion->last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", name);
	deletion->finished.fd = fd;
	return examine_upload(client, fd, &deletion->finished, error);
}

/* Locks the name, and finds the files that the client may delete. */
static int find_uploads(const struct client *client, struct deletion *deletion, struct pl_error *error)
{
	int rc = partial_file_lock(&deletion->lock, deletion->folder, deletion->last, error);

	/* A full disk has no room for the file that locks the name, and none for a new upload. */
	if (rc < 0 && rc != -ENOSPC && rc != -EDQUOT)
		return rc;
	rc = rc == 0 ? examine_upload(client, deletion->lock.fd, &deletion->unfinished, error) : 0;
	if (rc == 0)
		rc = find_finished_upload(client, deletion, error);
	if (rc < 0 || deletion->finished.deletable || (deletion->unfinished.deletable && deletion->unfinished.size))
		return rc;
	if (deletion->finished.fd < 0 && deletion->unfinished.size == 0)
		return fail_not_uploaded(deletion->commit.name, error);
	return cli_fail(error, -EACCES, "NOT-OWNER", deletion->commit.name,
			"have the owner delete it, or remove it at the server",
			"another identity, or none, has stored this file");
}

/* The record of a partial file was not counted when its bytes were reserved. */
static uint64_t reserved_bytes(const struct deletion *deletion, const struct upload *upload)
{
	if (upload == &deletion->finished)
		return upload->size;
	return upload->size - CLI_MIN(upload->size, (uint64_t)PARTIAL_RECORD_SIZE);
}

static int remove_upload(const struct client *client, struct deletion *deletion, const struct upload *upload,
			 const char *entry, struct pl_error *error)
{
	if (!upload->deletable)
		return 0;
	if (unlinkat(deletion->folder, entry, 0) < 0)
		return cli_fail_errno(error, -errno, "unlink", deletion->commit.name);
	deletion->bytes += upload->size;
	quota_give_back(client, upload->owned, reserved_bytes(deletion, upload));
	return 0;
}

static int remove_uploads(const struct client *client, struct deletion *deletion, struct pl_error *error)
{
	int rc = find_uploads(client, deletion, error);

	if (rc == 0)
		rc = remove_upload(client, deletion, &deletion->finished, deletion->last, error);
	/* Last, because the partial file keeps other uploads from the name. */
	if (rc == 0 && deletion->unfinished.size)
		rc = remove_upload(client, deletion, &deletion->unfinished, deletion->lock.temporary, error);
	return rc;
}

/* Closes the files.  Removes the empty file that locked the name. */
static void close_deletion(struct deletion *deletion)
{
	partial_file_close(&deletion->lock, deletion->unfinished.fd >= 0 && deletion->unfinished.size == 0);
	if (deletion->finished.fd >= 0)
		close(deletion->finished.fd);
	if (deletion->folder >= 0)
		close(deletion->folder);
}

/* Runs in a thread of the committer. */
static void settle_deletion(struct commit *commit)
{
	struct deletion *deletion = (struct deletion *)commit;

	if (commit->sync)
		commit->rc = partial_folder_sync(deletion->folder, commit->name, &commit->error);
	close_deletion(deletion);
}

static struct deletion *make_deletion(struct client *client, const struct service_message *request)
{
	struct deletion *deletion = calloc(1, sizeof(*deletion));

	if (!deletion)
		return NULL;
	deletion->commit = (struct commit){ .client = client,
					    .perform = settle_deletion,
					    .name = strdup(request->name),
					    .request = request->request,
					    .type = SERVICE_DELETE,
					    .sync = !(request->flags & SERVICE_UNSYNCED) };
	deletion->folder = deletion->lock.fd = deletion->finished.fd = deletion->unfinished.fd = -1;
	if (deletion->commit.name)
		return deletion;
	free(deletion);
	return NULL;
}

int deletion_begin(struct client *client, const struct service_message *request, struct pl_error *error)
{
	struct deletion *deletion;
	int rc = check_deletion_request(client, request->name, error);

	if (rc < 0)
		return rc;
	deletion = make_deletion(client, request);
	if (!deletion)
		return cli_fail_errno(error, -ENOMEM, "malloc", request->name);
	rc = folder_open(client->server->upload, deletion->commit.name, false, &deletion->last, error);
	deletion->folder = rc;
	if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP)
		rc = fail_not_uploaded(request->name, error);
	else if (rc >= 0)
		rc = remove_uploads(client, deletion, error);
	if (deletion->bytes || rc == 0) {
		client->server->catalogue.scanned = 0;
		server_report(client, SERVER_DELETED, deletion->commit.name, deletion->bytes);
	}
	if (rc < 0) {
		close_deletion(deletion);
		free(deletion->commit.name);
		free(deletion);
		return rc;
	}
	client->commit = &deletion->commit;
	committer_submit(&client->server->committer, &deletion->commit);
	return REQUEST_LATER;
}

void deletion_end(struct commit *commit, struct service_message *answer)
{
	answer->size = ((struct deletion *)commit)->bytes;
	free(commit->name);
}
