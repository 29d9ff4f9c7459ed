/* SPDX-License-Identifier: BSD-2-Clause */
#include "topology/topology.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/build.h"

#define FILE_MAX (4u << 20)
#define SETTING_MAX 256
/* File that NVIDIA's daemon in virtual machines writes for NCCL. */
#define VIRTUAL_TOPOLOGY "var/run/nvidia-topologyd/virtualTopology.xml"

/* Loads a file that the user named: of this machine, for every root. */
static int load_file(const char *path, char **data, size_t *length, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = 0;
	struct stat status;
	ssize_t got = 0;

	*length = 0;
	*data = NULL;
	if (fd < 0)
		return pl_fail_errno(error, -errno, "NCCL-FILE-OPEN", "open", path);
	if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size > FILE_MAX) {
		close(fd);
		return pl_fail(error, -EINVAL, "NCCL-FILE-OPEN", "open", path, NULL,
			       "a topology file is a regular file of up to 4 MiB");
	}
	*data = malloc(FILE_MAX);
	while (*data && *length < FILE_MAX && (got = read(fd, *data + *length, FILE_MAX - *length)) > 0)
		*length += (size_t)got;
	if (got < 0)
		rc = pl_fail_errno(error, -errno, "NCCL-FILE-OPEN", "read", path);
	if (!*data)
		rc = pl_fail_memory(error, "pl_topology_read");
	close(fd);
	return rc;
}

/* Finds the file named in NCCL's settings for the machine, as cloud images have them: "NCCL_TOPO_FILE=/path". */
static bool find_setting(struct pl_sysroot *root, char path[SETTING_MAX])
{
	static const char name[] = "NCCL_TOPO_FILE";
	char text[16384], *line, *rest, *value;

	if (pl_sysroot_text(root, text, sizeof(text), "etc/nccl.conf") <= 0)
		return false;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		line += strspn(line, " \t");
		if (strncmp(line, name, sizeof(name) - 1))
			continue;
		value = line + sizeof(name) - 1;
		value += strspn(value, " \t=");
		value[strcspn(value, " \t#")] = '\0';
		if (!*value || strlen(value) >= SETTING_MAX)
			continue;
		strcpy(path, value);
		return true;
	}
	return false;
}

/* Finds the topology file to use, if there is one: its name and content. */
static int find_file(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_topology_options *options,
		     char setting[SETTING_MAX], const char **name, char **data, size_t *length, struct pl_error *error)
{
	const char *variable = options && options->nccl_variable ? options->nccl_variable : "";

	*data = NULL;
	*name = NULL;
	if (options && options->no_file)
		return 0;
	if (options && options->nccl_file) {
		*name = options->nccl_file;
	} else if (*variable && topology->is_virtual) {
		*name = variable;
	} else if (topology->is_virtual && find_setting(root, setting) &&
		   pl_sysroot_load(root, FILE_MAX, data, length, "%s", setting) == 0) {
		*name = setting;
		return 0;
	} else if (topology->is_virtual && pl_sysroot_load(root, FILE_MAX, data, length, VIRTUAL_TOPOLOGY) == 0) {
		*name = "/" VIRTUAL_TOPOLOGY;
		return 0;
	}
	if (*variable && !topology->is_virtual)
		TOPOLOGY_COPY(topology->ignored, variable);
	return *name ? load_file(*name, data, length, error) : 0;
}

static int read_file(struct pl_topology *topology, struct pl_sysroot *root, const char *name, const char *data,
		     size_t length, struct pl_error *error)
{
	int rc;

	free(topology->numa);
	topology->numa = NULL;
	topology->numa_count = 0;
	rc = topology_read_nccl(topology, name, data, length, error);
	if (rc < 0)
		return rc;
	rc = topology_complete_file(topology, root);
	if (rc == 0 && !topology->file_foreign)
		rc = topology_read_cards(topology, root);
	return rc < 0 ? pl_fail_memory(error, "pl_topology_read") : 0;
}

static int read_sysfs(struct pl_topology *topology, struct pl_sysroot *root, struct pl_error *error)
{
	int rc = topology_read_cards(topology, root);

	if (rc == 0)
		rc = topology_read_devices(topology, root);
	return rc < 0 ? pl_fail_memory(error, "pl_topology_read") : 0;
}

static int read_all(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_topology_options *options,
		    struct pl_error *error)
{
	char setting[SETTING_MAX], *data;
	const char *name;
	size_t length = 0;
	int rc = topology_read_machine(topology, root);

	if (rc < 0)
		return pl_fail_memory(error, "pl_topology_read");
	rc = find_file(topology, root, options, setting, &name, &data, &length, error);
	if (rc == 0 && name)
		rc = read_file(topology, root, name, data, length, error);
	else if (rc == 0)
		rc = read_sysfs(topology, root, error);
	free(data);
	if (rc < 0)
		return rc;
	topology_nodes_finish(topology, 0);
	topology_read_names(topology, root);
	if (!topology->file_foreign)
		rc = topology_read_xgmi(topology, root);
	if (rc < 0 || topology_make_paths(topology) < 0)
		return pl_fail_memory(error, "pl_topology_read");
	return 0;
}

int pl_topology_read(struct pl_topology **ret, struct pl_sysroot *root, const struct pl_topology_options *options,
		     struct pl_error *error)
{
	struct pl_topology *topology = calloc(1, sizeof(*topology));
	int rc;

	if (!topology)
		return pl_fail_memory(error, "pl_topology_read");
	rc = read_all(topology, root, options, error);
	if (rc < 0) {
		pl_topology_free(topology);
		return rc;
	}
	*ret = topology;
	return 0;
}

void pl_topology_free(struct pl_topology *topology)
{
	if (!topology)
		return;
	for (size_t i = 0; i < topology->card_count; i++) {
		for (size_t j = 0; j < topology->cards[i].port_count; j++)
			free(topology->cards[i].ports[j].gids);
		free(topology->cards[i].ports);
		free(topology->cards[i].netdevs);
	}
	free(topology->nodes);
	free(topology->gpus);
	free(topology->cards);
	free(topology->drives);
	free(topology->numa);
	free(topology->paths);
	free(topology->links);
	free(topology);
}
