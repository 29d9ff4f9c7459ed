/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/machine.h"
#include "diag/check/snapshot.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/data_direct.h"
#include "diag/check/probe.h"

#define GLOB_NAMES 512
#define GLOB_PATHS 4096

int64_t check_number_at(struct pl_sysroot *root, const char *format, ...)
{
	char path[PL_SYSROOT_PATH_MAX];
	va_list arguments;
	int64_t value;

	va_start(arguments, format);
	vsnprintf(path, sizeof(path), format, arguments);
	va_end(arguments);
	return pl_sysroot_signed(root, &value, "%s", path) < 0 ? -1 : value;
}

bool check_module(const struct pl_check_machine *machine, const char *name)
{
	return check_exists(machine, "sys/module/%s", name);
}

const char *check_kernel_release(const struct pl_check_machine *machine)
{
	const char *release = pl_facts_get(machine->facts, "system.release");

	return release ? release : "";
}

bool check_kernel_at_least(const struct pl_check_machine *machine, unsigned major, unsigned minor)
{
	unsigned has_major, has_minor;

	if (sscanf(check_kernel_release(machine), "%u.%u", &has_major, &has_minor) != 2)
		return true;
	return has_major > major || (has_major == major && has_minor >= minor);
}

bool check_command_line(const struct pl_check_machine *machine, const char *word)
{
	char text[4096], *rest, *one;

	if (check_text(machine, text, "proc/cmdline") < 0)
		return false;
	for (one = strtok_r(text, " \t\n", &rest); one; one = strtok_r(NULL, " \t\n", &rest))
		if (!strcmp(one, word))
			return true;
	return false;
}

/* -- paths with '*' -------------------------------------------------------------------------------- */

struct glob {
	const struct pl_check_machine *machine;
	check_visit visit;
	void *user;
	unsigned left; /* limit of paths still to visit */
};

static bool name_matches(const char *pattern, size_t length, const char *name)
{
	const char *end = pattern + length;

	while (pattern < end && *pattern != '*') {
		if (*pattern++ != *name++)
			return false;
	}
	if (pattern == end)
		return !*name;
	while (pattern < end && *pattern == '*')
		pattern++;
	for (;; name++) {
		if (name_matches(pattern, (size_t)(end - pattern), name))
			return true;
		if (!*name)
			return false;
	}
}

static void expand(struct glob *glob, const char *before, const char *pattern)
{
	const char *star = strchr(pattern, '*');
	struct pl_sysroot_list list;
	const char *begin, *after;
	char path[512];

	if (!glob->left)
		return;
	glob->left--;
	if (!star) {
		if ((size_t)snprintf(path, sizeof(path), "%s%s", before, pattern) < sizeof(path) &&
		    check_exists(glob->machine, "%s", path))
			glob->visit(glob->machine, path, glob->user);
		return;
	}
	for (begin = star; begin > pattern && begin[-1] != '/'; begin--)
		;
	after = star + strcspn(star, "/");
	if ((size_t)snprintf(path, sizeof(path), "%s%.*s", before, (int)(begin - pattern), pattern) >= sizeof(path) ||
	    pl_sysroot_list(pl_snapshot_unrecorded(glob->machine->root), &list, "%s", path) < 0)
		return;
	for (size_t i = 0; i < list.count && i < GLOB_NAMES; i++) {
		/* As in a shell, '*' does not match hidden names. */
		if (list.names[i][0] == '.' || !name_matches(begin, (size_t)(after - begin), list.names[i]))
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s%.*s%s", before, (int)(begin - pattern), pattern,
				     list.names[i]) < sizeof(path))
			expand(glob, path, after);
	}
	pl_sysroot_list_free(&list);
}

void check_glob(const struct pl_check_machine *machine, const char *pattern, check_visit visit, void *user)
{
	struct glob glob = { machine, visit, user, GLOB_PATHS };

	expand(&glob, "", pattern);
}

static void count_path(const struct pl_check_machine *machine, const char *path, void *user)
{
	(void)machine;
	(void)path;
	++*(unsigned *)user;
}

bool check_any(const struct pl_check_machine *machine, const char *pattern)
{
	unsigned count = 0;

	check_glob(machine, pattern, count_path, &count);
	return count > 0;
}

int check_compare_versions(const char *a, const char *b)
{
	while (*a || *b) {
		unsigned long x, y;
		char *end_a, *end_b;

		x = strtoul(a, &end_a, 10);
		y = strtoul(b, &end_b, 10);
		if (x != y)
			return x < y ? -1 : 1;
		if (end_a == a && end_b == b)
			return 0;
		a = end_a + (strchr(".-", *end_a) && *end_a);
		b = end_b + (strchr(".-", *end_b) && *end_b);
	}
	return 0;
}

/* -- opening --------------------------------------------------------------------------------------- */

static void read_facts(struct pl_check_machine *machine, const struct pl_check_options *options)
{
	char release[128];

	if (machine->live && options->ask) {
		pl_probe_all(machine->facts, options->timeout);
		pl_nccl_ask(machine, options->timeout);
	} else {
		pl_facts_load(machine->facts, machine->root);
	}
	/* A fact that is also in a file needs no question. */
	if (check_text(machine, release, "proc/sys/kernel/osrelease") > 0)
		pl_facts_set(machine->facts, "system.release", "%s", release);
}

static void find_container(struct pl_check_machine *machine)
{
	static const char *const signs[] = { ".dockerenv", "run/.containerenv", "run/systemd/container" };

	for (size_t i = 0; i < PL_ARRAY_SIZE(signs); i++)
		machine->container = machine->container || check_exists(machine, "%s", signs[i]);
}

/* Reads the topology file, if there is a good one, for distances; it may lack devices of this machine. */
static int read_topology(struct pl_check_machine *machine)
{
	struct pl_topology_options plain = { .no_file = true }, followed = { .nccl_file = NULL };
	struct pl_error error;

	if (pl_topology_read(&machine->here, machine->root, &plain, NULL) < 0)
		return -ENOMEM;
	machine->topology = machine->here;
	followed.nccl_variable = pl_facts_get(machine->facts, "nccl.topo_file");
	if (!machine->here->is_virtual && !followed.nccl_variable)
		return 0;
	/* Without the bad file the check still works. */
	if (pl_topology_read(&machine->topology, machine->root, &followed, &error) < 0) {
		snprintf(machine->file_trouble, sizeof(machine->file_trouble), "%s: %s", error.object, error.message);
	} else if (machine->topology->file_foreign) {
		snprintf(machine->file_trouble, sizeof(machine->file_trouble), "%s: none of its devices is here",
			 machine->topology->file);
		pl_topology_free(machine->topology);
		machine->topology = machine->here;
	}
	return 0;
}

/* Adds to the topologies what a driver tells, and no file. */
static int add_facts(struct pl_check_machine *machine)
{
	int rc = pl_data_direct_add(machine->here, machine->root, machine->facts);

	if (rc == 0 && machine->topology != machine->here)
		rc = pl_data_direct_add(machine->topology, machine->root, machine->facts);
	return rc;
}

int pl_check_machine_open(struct pl_check_machine **ret, struct pl_sysroot *root,
			  const struct pl_check_options *options, struct pl_error *error)
{
	static const struct pl_check_policy no_policy;
	struct pl_check_machine *machine = calloc(1, sizeof(*machine));

	if (!machine)
		return pl_fail_memory(error, "pl_check_machine_open");
	machine->root = root;
	machine->live = pl_sysroot_is_live(root);
	machine->policy = options->policy ? options->policy : &no_policy;
	machine->facts = pl_facts_new();
	if (!machine->facts)
		goto no_memory;
	read_facts(machine, options);
	find_container(machine);
	if (read_topology(machine) < 0 || add_facts(machine) < 0)
		goto no_memory;
	machine->virtual_machine = machine->topology->is_virtual;
	machine->product = machine->topology->platform;
	if (check_find_devices(machine) < 0 || pl_inventory_take(&machine->inventory, machine) < 0)
		goto no_memory;
	pl_nccl_take(&machine->nccl, machine);
	*ret = machine;
	return 0;
no_memory:
	pl_check_machine_close(machine);
	return pl_fail_memory(error, "pl_check_machine_open");
}

void pl_check_machine_close(struct pl_check_machine *machine)
{
	if (!machine)
		return;
	pl_facts_free(machine->facts);
	if (machine->topology != machine->here)
		pl_topology_free(machine->topology);
	pl_topology_free(machine->here);
	pl_inventory_release(&machine->inventory);
	free(machine->gpus);
	free(machine->cards);
	free(machine->devices);
	free(machine);
}

const struct pl_inventory *pl_check_machine_inventory(const struct pl_check_machine *machine)
{
	return &machine->inventory;
}

const struct pl_nccl *pl_check_machine_nccl(const struct pl_check_machine *machine)
{
	return &machine->nccl;
}

const struct pl_facts *pl_check_machine_facts(const struct pl_check_machine *machine)
{
	return machine->facts;
}
