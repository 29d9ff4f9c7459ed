/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the remedies without risk on this machine. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "diag/check/check.h"

static int write_text(const char *path, int flags, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644), rc = 0;
	size_t length = strlen(text);

	if (fd < 0)
		return -errno;
	if (write(fd, text, length) != (ssize_t)length)
		rc = errno ? -errno : -EIO;
	close(fd);
	return rc;
}

static int load_module(const char *module, struct pl_error *error)
{
	char program[] = "modprobe", option[] = "--", name[96];
	char path[] = "PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
	char *arguments[] = { program, option, name, NULL }, *environment[] = { path, NULL };
	static const char *const places[] = { "/usr/sbin/modprobe", "/sbin/modprobe", "/usr/bin/modprobe" };
	int rc = ENOENT, status;
	pid_t pid;

	snprintf(name, sizeof(name), "%s", module);
	for (size_t i = 0; rc == ENOENT && i < PL_ARRAY_SIZE(places); i++)
		rc = posix_spawn(&pid, places[i], NULL, NULL, arguments, environment);
	if (rc)
		return pl_fail_errno(error, -rc, "FIX-FAILED", "modprobe", module);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return pl_fail(error, -EIO, "FIX-FAILED", "modprobe", module, "dmesg | tail says why", "modprobe failed");
}

/* Only a device without a driver, and so without users, is removed from the bus. */
static int rescan(const char *address, struct pl_error *error)
{
	char path[128];
	int rc;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver", address);
	/* A module loaded by an earlier action may have bound the device. */
	if (access(path, F_OK) == 0)
		return 0;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/remove", address);
	rc = write_text(path, 0, "1");
	if (rc < 0)
		return pl_fail_errno(error, rc, "FIX-FAILED", "remove", address);
	rc = write_text("/sys/bus/pci/rescan", 0, "1");
	if (rc < 0)
		return pl_fail_errno(error, rc, "FIX-FAILED", "rescan", address);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
	if (access(path, F_OK))
		return pl_fail(error, -ENODEV, "FIX-FAILED", "rescan", address, "power the machine off and on",
			       "the device did not come back");
	return 0;
}

/* Creates the folders above, and never replaces a file. */
static int write_file(const char *path, const char *content, struct pl_error *error)
{
	char folder[96];
	int rc;

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
		mkdir(folder, 0755);
	}
	rc = write_text(path, O_CREAT | O_EXCL, content);
	return rc < 0 ? pl_fail_errno(error, rc, "FIX-FAILED", "write", path) : 0;
}

int pl_check_action_run(const struct pl_check_action *action, struct pl_error *error)
{
	switch (action->kind) {
	case PL_CHECK_LOAD_MODULE:
		return load_module(action->argument, error);
	case PL_CHECK_RESCAN:
		return rescan(action->argument, error);
	default:
		return write_file(action->argument, action->content, error);
	}
}
