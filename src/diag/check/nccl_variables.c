/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables of NCCL, as NCCL finds them: in the environment; else in the file that NCCL_CONF_FILE names, without it in
 * ~/.nccl.conf; else in /etc/nccl.conf. A line of a file is NAME=VALUE without blanks at "="; a line that begins with
 * "#" is a comment. The first line that sets a variable counts.
 */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/printable.h"
#include "diag/check/machine.h"
#include "diag/check/nccl.h"

#define FILE_LIMIT (1u << 20)

static const char *const names[PL_NCCL_VARIABLES] = {
	[PL_NCCL_NET] = "NCCL_NET",
	[PL_NCCL_NET_PLUGIN] = "NCCL_NET_PLUGIN",
	[PL_NCCL_NET_PLUGIN_REF_COUNT] = "NCCL_NET_PLUGIN_REF_COUNT",
	[PL_NCCL_IB_DISABLE] = "NCCL_IB_DISABLE",
	[PL_NCCL_NET_GDR_LEVEL] = "NCCL_NET_GDR_LEVEL",
	[PL_NCCL_NET_GDR_READ] = "NCCL_NET_GDR_READ",
	[PL_NCCL_DMABUF_ENABLE] = "NCCL_DMABUF_ENABLE",
	[PL_NCCL_SOCKET_IFNAME] = "NCCL_SOCKET_IFNAME",
};

static void set_nccl_variable(struct pl_nccl_variable *variable, const char *value, size_t length, const char *origin)
{
	if (variable->set)
		return;
	variable->set = true;
	pl_copy_printable(variable->value, PL_MIN(length + 1, sizeof(variable->value)), value);
	snprintf(variable->origin, sizeof(variable->origin), "%s", origin);
}

/* Takes one line of a configuration file. */
static void take_nccl_line(struct pl_nccl *nccl, const char *line, size_t length, const char *origin)
{
	const char *equals = length && *line != '#' ? memchr(line, '=', length) : NULL;
	size_t name_length = equals ? (size_t)(equals - line) : 0;

	for (size_t i = 0; equals && i < PL_NCCL_VARIABLES; i++)
		if (name_length == strlen(names[i]) && !memcmp(line, names[i], name_length))
			set_nccl_variable(&nccl->variables[i], equals + 1, length - name_length - 1, origin);
}

/* Reads a configuration file below a root. */
static void take_nccl_file(struct pl_nccl *nccl, struct pl_sysroot *root, const char *path, const char *origin)
{
	size_t length;
	char *data;
	int rc = pl_sysroot_load(root, FILE_LIMIT, &data, &length, "%s", path);

	if (rc < 0) {
		if (rc != -ENOENT && rc != -ENOTDIR)
			snprintf(nccl->unread, sizeof(nccl->unread), "%s", origin);
		return;
	}
	for (const char *line = data, *end = data + length; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));

		if (!stop)
			stop = end;
		/* To NCCL a zero byte ends the line. */
		take_nccl_line(nccl, line, strnlen(line, (size_t)(stop - line)), origin);
		line = stop + 1;
	}
	free(data);
}

/* Copies the absolute path of the user's file; false if there is none. */
static bool user_nccl_file(char *path, size_t size)
{
	const char *named = getenv("NCCL_CONF_FILE");
	char folder[PL_SYSROOT_PATH_MAX];
	const struct passwd *user;

	if (named && *named == '/')
		return (size_t)snprintf(path, size, "%s", named) < size;
	if (named && *named)
		return getcwd(folder, sizeof(folder)) && (size_t)snprintf(path, size, "%s/%s", folder, named) < size;
	user = getpwuid(getuid());
	return user && user->pw_dir && (size_t)snprintf(path, size, "%s/.nccl.conf", user->pw_dir) < size;
}

void pl_nccl_variables_ask(const struct pl_check_machine *machine)
{
	struct pl_nccl *nccl = calloc(1, sizeof(*nccl));
	char path[PL_SYSROOT_PATH_MAX], key[PL_FACT_KEY_MAX];

	if (!nccl)
		return;
	for (size_t i = 0; i < PL_NCCL_VARIABLES; i++) {
		const char *value = getenv(names[i]);

		if (value)
			set_nccl_variable(&nccl->variables[i], value, strlen(value), "environment");
	}
	/* Facts keep the variables. The file itself does not go into a dump. */
	if (user_nccl_file(path, sizeof(path)))
		take_nccl_file(nccl, pl_snapshot_unrecorded(machine->root), path, path);
	if (*nccl->unread)
		pl_facts_set(machine->facts, "nccl.unread", "%s", nccl->unread);
	for (size_t i = 0; i < PL_NCCL_VARIABLES; i++) {
		if (!nccl->variables[i].set)
			continue;
		snprintf(key, sizeof(key), "nccl.variable.%s", names[i]);
		pl_facts_set(machine->facts, key, "%s", nccl->variables[i].value);
		snprintf(key, sizeof(key), "nccl.origin.%s", names[i]);
		pl_facts_set(machine->facts, key, "%s", nccl->variables[i].origin);
	}
	free(nccl);
}

void pl_nccl_variables_take(struct pl_nccl *nccl, const struct pl_check_machine *machine)
{
	const char *unread = pl_facts_get(machine->facts, "nccl.unread");

	snprintf(nccl->unread, sizeof(nccl->unread), "%s", unread ? unread : "");
	for (size_t i = 0; i < PL_NCCL_VARIABLES; i++) {
		const char *value = pl_facts_get(machine->facts, "nccl.variable.%s", names[i]);
		const char *origin = pl_facts_get(machine->facts, "nccl.origin.%s", names[i]);

		nccl->variables[i].name = names[i];
		if (value)
			set_nccl_variable(&nccl->variables[i], value, strlen(value), origin ? origin : "environment");
	}
	take_nccl_file(nccl, machine->root, "etc/nccl.conf", "/etc/nccl.conf");
}

/* Reads a number as NCCL does: what strtoll(3) makes of the value. An empty value is unset. */
static bool read_nccl_number(const struct pl_nccl_variable *variable, long long *number)
{
	if (!variable->set || !*variable->value)
		return false;
	errno = 0;
	*number = strtoll(variable->value, NULL, 0);
	return errno == 0;
}

bool pl_nccl_is_on(const struct pl_nccl_variable *variable)
{
	long long number;

	return read_nccl_number(variable, &number) && number != 0;
}

bool pl_nccl_is_zero(const struct pl_nccl_variable *variable)
{
	long long number;

	return read_nccl_number(variable, &number) && number == 0;
}
