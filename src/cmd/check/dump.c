/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane dump`: runs check and topology over a root that remembers what they read, and writes that down. */
#include <stdlib.h>
#include <string.h>

#include "diag/check/check.h"
#include "diag/check/facts.h"
#include "diag/check/snapshot.h"
#include "cmd/common/output.h"
#include "topology/topology.h"

#define ASK_TIME (10 * CLI_NS_PER_S)

struct dump {
	struct cli_options common;
	const char *output, *sysroot;
};

static const char readme[] =
	"This is what `peerlane check` and `peerlane topo` read of a machine, written by `peerlane dump`.\n"
	"To study it:  peerlane check --sysroot FILE.tar    peerlane topo --sysroot FILE.tar\n"
	"\n"
	"In it: files of /sys and /proc about PCI devices, GPUs, RDMA devices and their network devices (with their\n"
	"hardware addresses, GUIDs and GIDs), IOMMU, NUMA nodes, and modules; the names of installed MPI, NCCL and "
	"UCX;\n"
	"what libibverbs, libcuda and NVML said; limits; IP addresses; lines of the kernel's log about these devices.\n"
	"Not in it: names of the host and of users, serial numbers, keys, passwords, the environment, processes, "
	"other\n"
	"lines of the kernel's log, and words of the kernel's command line that have nothing to do with this.\n";

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct dump *dump = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &dump->common;
		return 0;
	case 'o':
		dump->output = argument;
		return 0;
	case 'r':
		dump->sysroot = argument;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "there are no arguments; name the file with -o %s", argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "Write to FILE (default: peerlane-dump.tar)", 0 },
	{ "sysroot", 'r', "PATH", 0, "Capture from this folder or dump, instead of this machine", 0 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	options,
	parse,
	"",
	"Capture what `peerlane check` and `peerlane topo` read, to study it elsewhere."
	"\v"
	"The file has no secrets: no keys, names of hosts or users, serial numbers.  It\n"
	"does have hardware and IP addresses.  Its peerlane/README says what is in it.\n"
	"As root it has more: what only root can see.\n"
	"\n"
	"Examples:\n"
	"  peerlane dump -o gpu1.tar\n"
	"  sudo peerlane dump -o gpu1.tar && tar tf gpu1.tar\n"
	"  peerlane check --sysroot gpu1.tar\n",
	children,
	cli_help_filter,
	NULL
};

/* Folders of users are nobody's business: they have names in them. */
static void hide_homes(char *path)
{
	char *to = path, *rest, *one;

	for (one = strtok_r(path, ":", &rest); one; one = strtok_r(NULL, ":", &rest)) {
		size_t length = strlen(one);

		if (!strncmp(one, "/home/", 6) || !strncmp(one, "/root", 5) || one[0] != '/')
			continue;
		if (to != path)
			*to++ = ':';
		memmove(to, one, length);
		to += length;
	}
	*to = '\0';
}

static int add_facts(struct pl_snapshot *snapshot, const struct pl_facts *facts)
{
	struct pl_facts *kept = pl_facts_new();
	const char *key, *value;
	char copy[PL_FACT_VALUE_MAX], *text;
	size_t length;
	int rc = -ENOMEM;

	if (!kept)
		return rc;
	for (size_t i = 0; (key = pl_facts_at(facts, i, &value)); i++) {
		snprintf(copy, sizeof(copy), "%s", value);
		if (!strcmp(key, "search.path"))
			hide_homes(copy);
		pl_facts_set(kept, key, "%s", copy);
	}
	text = pl_facts_format(kept, &length);
	if (text)
		rc = pl_snapshot_replace(snapshot, PL_FACTS_PATH, text, length);
	free(text);
	pl_facts_free(kept);
	return rc;
}

/* Everything that check and topology read goes through the recorder. */
static int capture(struct pl_snapshot *snapshot, struct pl_sysroot *recorder, struct pl_error *error)
{
	struct pl_check_options asking = { .ask = true, .timeout = ASK_TIME };
	struct pl_check_machine *machine;
	struct pl_topology *topology;
	struct pl_check_report report;
	int rc = pl_check_machine_open(&machine, recorder, &asking, error);

	if (rc < 0)
		return rc;
	rc = pl_check_run(&report, machine, error);
	if (rc == 0) {
		pl_check_report_free(&report);
		if (add_facts(snapshot, pl_check_machine_facts(machine)) < 0 ||
		    pl_snapshot_replace(snapshot, "peerlane/README", readme, sizeof(readme) - 1) < 0)
			rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	pl_check_machine_close(machine);
	/* Without a topology file, too: the tree as the kernel shows it. */
	if (rc == 0 && pl_topology_read(&topology, recorder, NULL, NULL) == 0)
		pl_topology_free(topology);
	return rc;
}

static void report(const struct dump *dump, const struct pl_snapshot *snapshot)
{
	struct json_object *object;

	if (dump->common.json) {
		object = json_object_new_object();
		cli_json_add(object, "file", cli_json_text(dump->output));
		cli_json_add(object, "entries", json_object_new_uint64(pl_snapshot_count(snapshot)));
		cli_json_print(object, true);
	} else if (!dump->common.quiet) {
		printf("%s: %zu files, folders and links\n\n%s", dump->output, pl_snapshot_count(snapshot), readme);
	}
}

int pl_cli_dump(int argc, char **argv)
{
	struct dump dump = { .output = "peerlane-dump.tar" };
	struct pl_sysroot *root = NULL, *recorder = NULL;
	struct pl_snapshot *snapshot = pl_snapshot_new();
	struct pl_error error;
	int rc;

	cli_parse(&arguments, argc, argv, &dump);
	rc = snapshot ? pl_archive_open_root(&root, dump.sysroot, &error)
		      : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		recorder = pl_snapshot_recorder(snapshot, root);
	if (rc == 0)
		rc = recorder ? capture(snapshot, recorder, &error) : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		rc = pl_archive_write(snapshot, dump.output, &error);
	if (rc == 0)
		report(&dump, snapshot);
	pl_sysroot_close(recorder);
	pl_sysroot_close(root);
	pl_snapshot_free(snapshot);
	return rc < 0 ? cli_report_for(&dump.common, &error) : CLI_OK;
}
