/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/effects/effects.h"
#include "cmd/fleet/host_list.h"

#define GROUPS_BYTES_MAX (4u << 20)

struct ranked_name {
	const char *name;
	size_t rank;
};

static int compare_ranked_names(const void *left, const void *right)
{
	const struct ranked_name *a = left, *b = right;
	int order = strverscmp(a->name, b->name);

	return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Numbers the hosts in the order of their names, and their ranks in the order of the ranks. */
static int number_hosts(struct effects_ranks *ranks, struct ranked_name *names)
{
	qsort(names, ranks->count, sizeof(*names), compare_ranked_names);
	for (size_t i = 0; i < ranks->count; i++) {
		bool same = i && !strcmp(names[i - 1].name, names[i].name);

		if (!same) {
			ranks->host_names[ranks->host_count] = strdup(names[i].name);
			if (!ranks->host_names[ranks->host_count])
				return -ENOMEM;
			cli_printable(ranks->host_names[ranks->host_count++], false);
		}
		ranks->host[names[i].rank] = ranks->host_count - 1;
		ranks->rank_on_host[names[i].rank] = same ? ranks->rank_on_host[names[i - 1].rank] + 1 : 0;
	}
	return 0;
}

int effects_ranks_make(struct effects_ranks *ranks, const char *const *hosts, size_t count)
{
	struct ranked_name *names = calloc(count + 1, sizeof(*names));
	int rc = -ENOMEM;

	*ranks = (struct effects_ranks){ .count = count };
	ranks->host = calloc(count + 1, sizeof(*ranks->host));
	ranks->group = malloc((count + 1) * sizeof(*ranks->group));
	ranks->rank_on_host = calloc(count + 1, sizeof(*ranks->rank_on_host));
	ranks->host_names = calloc(count + 1, sizeof(*ranks->host_names));
	ranks->group_names = calloc(count + 1, sizeof(*ranks->group_names));
	if (names && ranks->host && ranks->group && ranks->rank_on_host && ranks->host_names && ranks->group_names) {
		for (size_t i = 0; i < count; i++) {
			names[i] = (struct ranked_name){ hosts[i] ? hosts[i] : EFFECTS_NO_NAME, i };
			ranks->group[i] = EFFECTS_NONE;
		}
		rc = number_hosts(ranks, names);
	}
	free(names);
	if (rc < 0)
		effects_ranks_free(ranks);
	return rc;
}

/* Returns the number of a group, which is added if it is new; EFFECTS_NONE: no memory. */
static size_t find_group(struct effects_ranks *ranks, const char *name)
{
	size_t group = 0;

	while (group < ranks->group_count && strcmp(ranks->group_names[group], name))
		group++;
	if (group < ranks->group_count)
		return group;
	ranks->group_names[group] = strdup(name);
	if (!ranks->group_names[group])
		return EFFECTS_NONE;
	ranks->group_count++;
	return group;
}

/* Sets the group of all ranks of a host.  A host of another fleet has no rank here, so each group has a rank. */
static int set_host_group(struct effects_ranks *ranks, const char *host, const char *name)
{
	for (size_t i = 0; i < ranks->count; i++) {
		if (strcmp(ranks->host_names[ranks->host[i]], host))
			continue;
		if (ranks->group[i] != EFFECTS_NONE && strcmp(ranks->group_names[ranks->group[i]], name))
			return -EEXIST;
		ranks->group[i] = find_group(ranks, name);
		if (ranks->group[i] == EFFECTS_NONE)
			return -ENOMEM;
	}
	return 0;
}

static int fail_groups(struct pl_error *error, const char *path, unsigned line, const char *fact)
{
	return cli_fail(error, -EINVAL, "BENCH-GROUPS", path, "write lines of HOSTS and GROUP: gpu[001-020] leaf1",
			"line %u %s", line, fact);
}

static int read_group_line(struct effects_ranks *ranks, const char *path, unsigned number, char *line,
			   struct pl_error *error)
{
	struct host_list hosts = { .count = 0 };
	char *rest = NULL, *names, *group;
	int rc;

	line[strcspn(line, "#\r\n")] = '\0';
	names = strtok_r(line, " \t", &rest);
	group = strtok_r(NULL, " \t", &rest);
	if (!names)
		return 0;
	if (!group || strtok_r(NULL, " \t", &rest))
		return fail_groups(error, path, number, "has no two words");
	cli_printable(group, false);
	rc = host_list_add(&hosts, names, error);
	for (size_t i = 0; rc == 0 && i < hosts.count; i++) {
		rc = set_host_group(ranks, hosts.names[i], group);
		if (rc == -EEXIST)
			rc = fail_groups(error, path, number, "names a host that an earlier line has in another group");
		else if (rc < 0)
			rc = cli_fail_errno(error, rc, "malloc", NULL);
	}
	host_list_free(&hosts);
	return rc;
}

int effects_ranks_read_groups(struct effects_ranks *ranks, const char *path, struct pl_error *error)
{
	int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC), rc;
	unsigned number = 0;
	size_t length;
	char *text;

	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", path);
	rc = cli_read_all(fd, GROUPS_BYTES_MAX, &text, &length);
	close(fd);
	if (rc == -EFBIG)
		return fail_groups(error, path, 1, "begins a file of more than 4 MiB");
	if (rc < 0)
		return cli_fail_errno(error, rc, rc == -ENOMEM ? "malloc" : "read", path);
	for (char *line = text, *end; rc == 0 && line < text + length; line = end + 1) {
		end = line + strcspn(line, "\n");
		number++;
		if (!*end && end < text + length)
			rc = fail_groups(error, path, number, "is no text");
		*end = '\0';
		if (rc == 0)
			rc = read_group_line(ranks, path, number, line, error);
	}
	free(text);
	return rc;
}

void effects_ranks_free(struct effects_ranks *ranks)
{
	for (size_t i = 0; i < ranks->host_count; i++)
		free(ranks->host_names[i]);
	for (size_t i = 0; i < ranks->group_count; i++)
		free(ranks->group_names[i]);
	free(ranks->host);
	free(ranks->group);
	free(ranks->rank_on_host);
	free(ranks->host_names);
	free(ranks->group_names);
	*ranks = (struct effects_ranks){ .count = 0 };
}
