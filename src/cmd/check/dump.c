/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane dump`: runs the checks and reads the topology through a recorder, and archives the recorded files. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/check/routes.h"
#include "diag/check/check.h"
#include "diag/check/facts.h"
#include "diag/check/privacy.h"
#include "diag/check/snapshot.h"
#include "topology/topology.h"

#define QUERY_TIMEOUT (10 * CLI_NS_PER_S)

struct dump {
	struct cli_options common;
	const char *output, *sysroot;
};

static const char readme[] =
	"These are the files and facts that `peerlane check` and `peerlane topo` read on a machine, saved by\n"
	"`peerlane dump`.  To read them: peerlane check --sysroot FILE.tar, peerlane topo --sysroot FILE.tar\n"
	"\n"
	"Contents: files of /sys and /proc about PCI devices, GPUs, RDMA devices and their network devices (with\n"
	"hardware addresses, GUIDs and GIDs), IOMMU, NUMA nodes and modules; the names of installed MPI, NCCL and\n"
	"UCX versions; answers of libibverbs, libcuda and NVML; limits; IP addresses; kernel log lines about these\n"
	"devices; the profile of tested routes.\n"
	"Not in it: host names, user names, serial numbers, keys, passwords, the environment, processes, other\n"
	"kernel log lines, and unrelated words of the kernel command line.  Names of files and folders that are not\n"
	"in a list of known names stand in it as dir1, dir2 and so on.\n";

static error_t parse_dump_option(int key, char *argument, struct argp_state *state)
{
	struct dump *dump = state->input;

	switch (key) {
	case 'o':
		dump->output = argument;
		return 0;
	case 'r':
		dump->sysroot = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option dump_options[] = {
	{ "output", 'o', "FILE", 0, "Write to FILE (default: peerlane-dump.tar; -: standard output)", 0 },
	{ "sysroot", 'r', "PATH", 0, "Read this folder or dump instead of this machine", 0 },
	{ 0 },
};

static const struct cli_command dump_command = {
	.summary = "Save the input of `peerlane check` and `peerlane topo` for analysis elsewhere.",
	.examples = {
		"sudo peerlane dump -o gpu1.tar",
		"peerlane dump --sysroot gpu1.tar -o copy.tar",
	},
	.notes = "The file contains no keys, host names, user names or serial numbers.  It does contain hardware "
		 "addresses and IP addresses; peerlane/README in the file lists the contents.  Run as root to include "
		 "the configuration space of PCI devices.\n"
		 "\n"
		 "To read the file: peerlane check --sysroot FILE, peerlane topo --sysroot FILE.\n",
	.options = dump_options,
	.parse = parse_dump_option,
};

static int add_facts_file(struct pl_snapshot *snapshot, struct pl_privacy *privacy, const struct pl_facts *facts)
{
	struct pl_facts *filtered = pl_facts_new();
	const char *key, *value;
	char copy[PL_FACT_VALUE_MAX], *text;
	size_t length;
	int rc = -ENOMEM;

	if (!filtered)
		return rc;
	for (size_t i = 0; (key = pl_facts_at(facts, i, &value)); i++) {
		if (pl_privacy_fact(privacy, key, value, copy, sizeof(copy)))
			pl_facts_set(filtered, key, "%s", copy);
	}
	text = pl_facts_format(filtered, &length);
	if (text)
		rc = pl_snapshot_replace(snapshot, PL_FACTS_PATH, text, length);
	free(text);
	pl_facts_free(filtered);
	return rc;
}

/* Adds the profile of the system's routes, if there is one, without the number of the machine. */
static int add_routes_file(struct pl_snapshot *snapshot, struct pl_sysroot *root)
{
	struct json_object *object;
	struct pl_profile profile;
	struct pl_error error;
	const char *text;
	int rc;

	if (routes_load_root(&profile, root, &error) < 0)
		return 0;
	profile.machine[0] = '\0';
	object = routes_to_json(&profile);
	text = cli_json_string(object, true);
	rc = text ? pl_snapshot_replace(snapshot, ROUTES_DUMP_FILE, text, strlen(text)) : -ENOMEM;
	json_object_put(object);
	pl_profile_free(&profile);
	return rc;
}

/* Runs the checks and reads the topology through the recorder. */
static int capture_machine(struct pl_snapshot *snapshot, struct pl_sysroot *recorder, struct pl_privacy *privacy,
			   struct pl_error *error)
{
	struct pl_check_options options = { .ask = true, .timeout = QUERY_TIMEOUT };
	struct pl_check_machine *machine;
	struct pl_topology *topology;
	struct pl_check_report report;
	int rc = pl_check_machine_open(&machine, recorder, &options, error);

	if (rc < 0)
		return rc;
	rc = pl_check_run(&report, machine, error);
	if (rc == 0) {
		pl_check_report_free(&report);
		if (add_facts_file(snapshot, privacy, pl_check_machine_facts(machine)) < 0 ||
		    pl_snapshot_replace(snapshot, "peerlane/README", readme, sizeof(readme) - 1) < 0)
			rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	pl_check_machine_close(machine);
	/* Reads the PCI tree of the kernel, which a topology file would replace. */
	if (rc == 0 && pl_topology_read(&topology, recorder, NULL, NULL) == 0)
		pl_topology_free(topology);
	return rc;
}

static int write_dump_file(FILE *file, const void *snapshot)
{
	return pl_archive_write(snapshot, file);
}

/* Writes the dump to standard output, a pipe, a device or an open descriptor, or replaces a file by it. */
static int write_dump(const struct dump *dump, const struct pl_snapshot *snapshot, struct pl_error *error)
{
	int rc;

	if (strcmp(dump->output, "-")) {
		rc = cli_replace_file_by(dump->output, write_dump_file, snapshot, cli_new_file_mode(), error);
	} else {
		rc = pl_archive_write(snapshot, stdout);
		if (rc < 0)
			cli_fail_errno(error, rc, "write", dump->output);
	}
	return rc < 0 ? cli_fail_as(error, "DUMP-WRITE") : 0;
}

static void print_dump_contents(const struct dump *dump, const struct pl_snapshot *snapshot)
{
	struct json_object *object;

	if (dump->common.json) {
		object = json_object_new_object();
		cli_json_add(object, "file", cli_json_text(dump->output));
		cli_json_add(object, "entries", json_object_new_uint64(pl_snapshot_count(snapshot)));
		cli_json_print(object, true);
	} else if (!dump->common.quiet && strcmp(dump->output, "-")) {
		printf("%s: %zu files, folders and links\n\n%s", dump->output, pl_snapshot_count(snapshot), readme);
	}
}

int pl_cli_dump(int argc, char **argv)
{
	struct dump dump = { .output = "peerlane-dump.tar" };
	struct pl_sysroot *root = NULL, *recorder = NULL;
	struct pl_snapshot *snapshot = pl_snapshot_new(), *filtered = NULL;
	struct pl_privacy *privacy = pl_privacy_new();
	struct pl_error error;
	int rc;

	cli_parse(&dump_command, argc, argv, &dump.common, &dump);
	rc = snapshot && privacy ? pl_archive_open_root(&root, dump.sysroot, &error)
				 : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		recorder = pl_snapshot_recorder(snapshot, root);
	if (rc == 0)
		rc = recorder ? capture_machine(snapshot, recorder, privacy, &error)
			      : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0 && add_routes_file(snapshot, root) < 0)
		rc = cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		filtered = pl_privacy_snapshot(privacy, snapshot);
	if (rc == 0)
		rc = filtered ? write_dump(&dump, filtered, &error) : cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (rc == 0)
		print_dump_contents(&dump, filtered);
	pl_sysroot_close(recorder);
	pl_sysroot_close(root);
	pl_snapshot_free(snapshot);
	pl_snapshot_free(filtered);
	pl_privacy_free(privacy);
	return rc < 0 ? cli_report_for(&dump.common, &error) : CLI_OK;
}
