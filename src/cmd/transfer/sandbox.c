/* SPDX-License-Identifier: BSD-2-Clause */
/* Landlock (landlock(7)): limits the server to the files that it serves, and to what its libraries read. */
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmd/transfer/serve.h"

/* Rights of files by version of the kernel interface; headers may be older than the kernel. */
#define FS_VERSION_1 ((1ull << 13) - 1)
#define FS_REFER (1ull << 13)     /* version 2 */
#define FS_TRUNCATE (1ull << 14)  /* version 3 */
#define FS_IOCTL_DEV (1ull << 15) /* version 5 */
#define NET_CONNECT_TCP (1ull << 1) /* version 4 */

#define READ_TREE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE_TREE                                                                                                  \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |                \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | FS_REFER | FS_TRUNCATE)
#define FILE_RIGHTS                                                                                                 \
	(LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE | FS_TRUNCATE | \
	 FS_IOCTL_DEV)

/* Attributes of version 4; the kernel takes shorter ones too. */
struct ruleset_attributes {
	uint64_t fs, net;
};

struct sandbox {
	int ruleset;
	uint64_t known; /* rights of files that the kernel knows */
};

static uint64_t known_rights(long version)
{
	return FS_VERSION_1 | (version >= 2 ? FS_REFER : 0) | (version >= 3 ? FS_TRUNCATE : 0) |
	       (version >= 5 ? FS_IOCTL_DEV : 0);
}

/* Allows what lies below a path, which need not exist. */
static int sandbox_allow(const struct sandbox *sandbox, const char *path, uint64_t rights, struct pl_error *error)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = rights & sandbox->known };
	struct stat status;
	int rc = 0;

	rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.parent_fd < 0)
		return 0;
	if (fstat(rule.parent_fd, &status) == 0 && !S_ISDIR(status.st_mode))
		rule.allowed_access &= FILE_RIGHTS;
	if (syscall(SYS_landlock_add_rule, sandbox->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		rc = cli_fail_errno(error, -errno, "landlock_add_rule", path);
	close(rule.parent_fd);
	return rc;
}

/* Allows the folder of a file, as a file that is replaced is another one. */
static int sandbox_allow_folder(const struct sandbox *sandbox, const char *file, uint64_t rights,
				struct pl_error *error)
{
	const char *slash;
	char folder[4096];

	if (!file)
		return 0;
	slash = strrchr(file, '/');
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - file) + 1 : 1, slash ? file : ".");
	return sandbox_allow(sandbox, folder, rights, error);
}

/* Libraries, devices and settings of the system. */
static int sandbox_allow_system(const struct sandbox *sandbox, struct pl_error *error)
{
	static const char *const folders[] = { "/etc", "/usr", "/lib",	"/lib64", "/opt", "/proc",
					       "/sys", "/run", "/dev", "/var/lib/dpkg" };
	int rc = 0;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(folders) && rc == 0; i++)
		rc = sandbox_allow(sandbox, folders[i], READ_TREE, error);
	/* GPUs and cards are driven by ioctl(2) and mmap(2) of their files. */
	if (rc == 0)
		rc = sandbox_allow(sandbox, "/dev", LANDLOCK_ACCESS_FS_WRITE_FILE | FS_IOCTL_DEV, error);
	/* NVIDIA's driver names its threads there, by files that it opens as fopen(3) with "w"; cuInit() fails if it cannot. */
	if (rc == 0)
		rc = sandbox_allow(sandbox, "/proc/self", LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE, error);
	return rc;
}

/* Folders of libraries that this process still may load, such as CUDA's. */
static int sandbox_allow_libraries(const struct sandbox *sandbox, struct pl_error *error)
{
	const char *path = getenv("LD_LIBRARY_PATH");
	char folder[4096];
	int rc = 0;

	while (path && *path && rc == 0) {
		size_t length = strcspn(path, ":;");

		if (length && length < sizeof(folder)) {
			snprintf(folder, sizeof(folder), "%.*s", (int)length, path);
			rc = sandbox_allow(sandbox, folder, READ_TREE, error);
		}
		path += length + (path[length] != '\0');
	}
	return rc;
}

static int sandbox_allow_served(const struct sandbox *sandbox, const struct serve *serve, struct pl_error *error)
{
	const struct cli_options *common = &serve->common;
	const char *const read_again[] = { common->key_file, common->old_key_file, common->identity,
					   common->authority, common->authorized,  common->known_hosts };
	const char *audit = serve->audit_options.target;
	int rc = 0;

	for (int i = 0; i < serve->path_count && rc == 0; i++)
		rc = sandbox_allow(sandbox, serve->paths[i], READ_TREE, error);
	if (rc == 0 && serve->follow)
		rc = sandbox_allow(sandbox, "/", READ_TREE, error);
	if (rc == 0 && serve->upload)
		rc = sandbox_allow(sandbox, serve->upload, READ_TREE | WRITE_TREE, error);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(read_again) && rc == 0; i++)
		rc = sandbox_allow_folder(sandbox, read_again[i], READ_TREE, error);
	if (rc == 0 && audit && strncmp(audit, "journal", 7))
		rc = sandbox_allow_folder(sandbox, audit,
					  LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG, error);
	return rc;
}

static int fail_without_landlock(const struct serve *serve, struct pl_error *error)
{
	if (serve->sandbox != SANDBOX_REQUIRE)
		return 0;
	return cli_fail(error, -ENOTSUP, "SANDBOX", "--sandbox", "use Linux 5.13 or later, booted with lsm=...,landlock",
			"the kernel offers no Landlock");
}

int serve_enter_sandbox(struct serve *serve, struct pl_error *error)
{
	long version = serve->sandbox == SANDBOX_OFF ? 0
						     : syscall(SYS_landlock_create_ruleset, NULL, 0,
							       LANDLOCK_CREATE_RULESET_VERSION);
	struct ruleset_attributes attributes = { .fs = known_rights(version), .net = NET_CONNECT_TCP };
	struct sandbox sandbox = { .known = attributes.fs };
	int rc;

	if (version < 1)
		return fail_without_landlock(serve, error);
	/* A server never connects to others. */
	sandbox.ruleset = (int)syscall(SYS_landlock_create_ruleset, &attributes,
				       version >= 4 ? sizeof(attributes) : sizeof(attributes.fs), 0);
	if (sandbox.ruleset < 0)
		return fail_without_landlock(serve, error);
	rc = sandbox_allow_system(&sandbox, error);
	if (rc == 0)
		rc = sandbox_allow_libraries(&sandbox, error);
	if (rc == 0)
		rc = sandbox_allow_served(&sandbox, serve, error);
	if (rc == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
			syscall(SYS_landlock_restrict_self, sandbox.ruleset, 0) < 0))
		rc = cli_fail_errno(error, -errno, "landlock_restrict_self", NULL);
	close(sandbox.ruleset);
	serve->sandboxed = rc == 0;
	return rc;
}
