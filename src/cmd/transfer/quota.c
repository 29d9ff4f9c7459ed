/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/quota.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "cmd/transfer/partial_file.h"

#define OWNER_ATTRIBUTE "user.peerlane.owner"
#define DEPTH_MAX 64
/* A sum is taken anew at most this often when a request would be refused. */
#define SUM_AGE (200 * CLI_NS_PER_MS)
#define EXPIRE_INTERVAL (3600 * CLI_NS_PER_S)

/* An authority can certify any number of identities, of which each has an account. */
#define ACCOUNTS_MAX 1024u

/* Least bytes of storage of a file, and the unit in which they grow. */
#define STORAGE_UNIT 4096u

/* Bytes that an owner has stored. */
struct quota_account {
	struct quota_account *next;
	char owner[PL_FINGERPRINT_MAX]; /* "": all owners together */
	uint64_t used;
	uint64_t unwritten; /* part of `used`: small files that the committer may not have written yet */
	uint64_t summed; /* time of the last sum; 0: never */
};

/* -- files below the folder for uploads -------------------------------------------------------------- */

struct walk {
	void (*visit)(struct walk *walk, int folder, const char *name, const struct stat *status);
	const char *owner; /* of a sum */
	uint64_t sum;
	uint64_t oldest; /* of an expiry: last change in nanoseconds since 1970 */
};

static void walk_folder(struct walk *walk, int folder, unsigned depth)
{
	DIR *directory = fdopendir(folder);
	const struct dirent *entry;

	if (!directory) {
		close(folder);
		return;
	}
	while ((entry = readdir(directory))) {
		struct stat status;
		int below;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(status.st_mode)) {
			walk->visit(walk, folder, entry->d_name, &status);
		} else if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX) {
			below = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (below >= 0)
				walk_folder(walk, below, depth + 1);
		}
	}
	closedir(directory);
}

static void walk_uploads(const struct server *server, struct walk *walk)
{
	int folder = openat(server->upload, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (folder >= 0)
		walk_folder(walk, folder, 0);
}

/* -- owners -------------------------------------------------------------------------------------------- */

/* Reads the owner of a file; "": none. */
static void read_owner(int fd, char owner[PL_FINGERPRINT_MAX])
{
	ssize_t length = fgetxattr(fd, OWNER_ATTRIBUTE, owner, PL_FINGERPRINT_MAX - 1);

	owner[length > 0 ? length : 0] = '\0';
}

enum quota_owned quota_owned_by(const struct client *client, int fd)
{
	char owner[PL_FINGERPRINT_MAX];

	read_owner(fd, owner);
	if (!owner[0])
		return OWNED_BY_NOBODY;
	return strcmp(owner, client->identity.fingerprint) ? OWNED_BY_OTHER : OWNED_BY_CLIENT;
}

uint64_t quota_allocated(const struct client *client, int folder, const char *last)
{
	char name[NAME_MAX + 1];
	struct stat status;
	uint64_t bytes = 0;
	int fd;

	partial_file_name(name, last);
	fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && quota_owned_by(client, fd) != OWNED_BY_OTHER)
		bytes = (uint64_t)status.st_size;
	close(fd);
	return bytes;
}

struct quota_owner quota_owner_of(const struct client *client)
{
	struct quota_owner owner = { .limited = client->rights.quota != 0 };

	memcpy(owner.fingerprint, client->identity.fingerprint, sizeof(owner.fingerprint));
	return owner;
}

int quota_mark(const struct quota_owner *owner, int fd, const char *name, struct pl_error *error)
{
	const char *text = owner->fingerprint;

	if (!text[0] || fsetxattr(fd, OWNER_ATTRIBUTE, text, strlen(text), 0) == 0 || !owner->limited)
		return 0;
	return cli_fail(error, -ENOTSUP, "QUOTA-UNSUPPORTED", name,
			"let the server store uploads on ext4, XFS or Btrfs, or take out the quota of this identity",
			"the server's file system has no user attributes, in which it keeps the owners of files");
}

/* Bytes by which a file counts. Without a least number, files without bytes would fill a file system. */
static uint64_t storage_of(uint64_t size)
{
	return CLI_MAX(size / STORAGE_UNIT + (size % STORAGE_UNIT != 0), 1u) * STORAGE_UNIT;
}

/* -- sums ----------------------------------------------------------------------------------------------- */

static void add_size(struct walk *walk, int folder, const char *name, const struct stat *status)
{
	char owner[PL_FINGERPRINT_MAX];
	int fd;

	if (walk->owner[0]) {
		fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			return;
		read_owner(fd, owner);
		close(fd);
		if (strcmp(owner, walk->owner))
			return;
	}
	walk->sum += storage_of((uint64_t)status->st_size);
}

/* Takes an account out of the list. */
static struct quota_account *take_account(struct server *server, struct quota_account **at)
{
	struct quota_account *account = *at;

	*at = account->next;
	server->account_count--;
	return account;
}

/* Frees the account that was used least recently, if no file of it is being written.  The next use sums its files again. */
static void free_oldest_account(struct server *server)
{
	struct quota_account **oldest = NULL;

	for (struct quota_account **at = &server->accounts; *at; at = &(*at)->next)
		if (!(*at)->unwritten)
			oldest = at;
	if (oldest)
		free(take_account(server, oldest));
}

/* Returns the account of an owner, which is the first of the list then.  NULL: no memory. */
static struct quota_account *find_account(struct server *server, const char *owner)
{
	struct quota_account **at = &server->accounts, *account;

	while (*at && strcmp((*at)->owner, owner))
		at = &(*at)->next;
	if (*at) {
		account = take_account(server, at);
	} else {
		account = calloc(1, sizeof(*account));
		if (!account)
			return NULL;
		snprintf(account->owner, sizeof(account->owner), "%s", owner);
		if (server->account_count >= ACCOUNTS_MAX)
			free_oldest_account(server);
	}
	account->next = server->accounts;
	server->accounts = account;
	server->account_count++;
	return account;
}

/* Counts a file of `size` bytes, of which storage for `allocated` is counted, for an owner unless that exceeds its limit. */
static int reserve_bytes(struct server *server, const char *owner, uint64_t limit, const char *name, uint64_t size,
			 uint64_t allocated, struct pl_error *error)
{
	struct quota_account *account = find_account(server, owner);
	struct walk walk = { .visit = add_size, .owner = owner };
	uint64_t bytes = storage_of(size) - (allocated ? storage_of(CLI_MIN(size, allocated)) : 0);

	if (!account)
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	if (!account->summed ||
	    ((account->used > limit || bytes > limit - account->used) && cli_now() - account->summed > SUM_AGE)) {
		walk_uploads(server, &walk);
		/* A file that is written meanwhile counts twice until the next sum, rather than not at all. */
		account->used = walk.sum + account->unwritten;
		account->summed = cli_now();
	}
	if (account->used > limit || bytes > limit - account->used)
		return cli_fail(error, -EDQUOT, "QUOTA", name,
				"remove files at the server, or have the quota raised; a file that this one replaces "
				"counts, too",
				"%llu bytes do not fit into the quota of %llu, of which %llu are in use",
				(unsigned long long)(size - CLI_MIN(size, allocated)), (unsigned long long)limit,
				(unsigned long long)account->used);
	account->used += bytes;
	return 0;
}

int quota_reserve(struct client *client, const char *name, uint64_t size, uint64_t allocated, struct pl_error *error)
{
	struct server *server = client->server;
	int rc = 0;

	if (client->rights.quota && client->identity.fingerprint[0])
		rc = reserve_bytes(server, client->identity.fingerprint, client->rights.quota, name, size, allocated,
				   error);
	if (rc == 0 && server->quota)
		rc = reserve_bytes(server, "", server->quota, name, size, allocated, error);
	return rc;
}

static void add_unwritten(struct server *server, const char *owner, uint64_t size)
{
	struct quota_account *account = find_account(server, owner);

	if (account)
		account->unwritten += storage_of(size);
}

int quota_reserve_small(struct client *client, const char *name, uint64_t size, struct pl_error *error)
{
	struct server *server = client->server;
	int rc = quota_reserve(client, name, size, 0, error);

	if (rc < 0)
		return rc;
	if (client->rights.quota && client->identity.fingerprint[0])
		add_unwritten(server, client->identity.fingerprint, size);
	if (server->quota)
		add_unwritten(server, "", size);
	return 0;
}

static void end_unwritten(struct server *server, const char *owner, uint64_t size, bool stored)
{
	struct quota_account *account = find_account(server, owner);

	if (!account)
		return;
	account->unwritten -= CLI_MIN(account->unwritten, storage_of(size));
	if (!stored)
		account->used -= CLI_MIN(account->used, storage_of(size));
}

void quota_end_small(struct server *server, const struct quota_owner *owner, uint64_t size, bool stored)
{
	if (owner->limited && owner->fingerprint[0])
		end_unwritten(server, owner->fingerprint, size, stored);
	if (server->quota)
		end_unwritten(server, "", size, stored);
}

static void give_bytes_back(struct server *server, const char *owner, uint64_t bytes)
{
	struct quota_account *account = find_account(server, owner);

	if (account && account->summed)
		account->used -= CLI_MIN(account->used, storage_of(bytes));
}

void quota_give_back(const struct client *client, enum quota_owned owned, uint64_t bytes)
{
	if (owned == OWNED_BY_CLIENT)
		give_bytes_back(client->server, client->identity.fingerprint, bytes);
	give_bytes_back(client->server, "", bytes);
}

/* -- expiry ----------------------------------------------------------------------------------------------- */

/* Removes an old partial file that no transfer has locked. */
static void remove_old_part(struct walk *walk, int folder, const char *name, const struct stat *status)
{
	uint64_t changed = (uint64_t)status->st_mtim.tv_sec * CLI_NS_PER_S + (uint64_t)status->st_mtim.tv_nsec;
	int fd;

	if (!is_partial_file_name(name) || changed > walk->oldest || status->st_uid != geteuid())
		return;
	fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		unlinkat(folder, name, 0);
	close(fd);
}

uint64_t quota_next_expiry(const struct server *server)
{
	return server->upload >= 0 && server->keep_parts ? server->expire_next : UINT64_MAX;
}

void quota_expire_parts(struct server *server)
{
	struct timespec now;
	struct walk walk = { .visit = remove_old_part };
	uint64_t time;

	if (cli_now() < quota_next_expiry(server))
		return;
	server->expire_next = cli_now() + EXPIRE_INTERVAL;
	clock_gettime(CLOCK_REALTIME, &now);
	time = (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec;
	if (time <= server->keep_parts)
		return;
	walk.oldest = time - server->keep_parts;
	walk_uploads(server, &walk);
}

void quota_close(struct server *server)
{
	while (server->accounts) {
		struct quota_account *next = server->accounts->next;

		free(server->accounts);
		server->accounts = next;
	}
	server->account_count = 0;
}
