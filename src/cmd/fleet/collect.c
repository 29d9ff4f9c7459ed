/* SPDX-License-Identifier: BSD-2-Clause */
/* Collects the answers of all hosts, and saves each as it comes. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/fleet/fleet.h"

/* A run that collects answers. */
struct collection {
	struct fleet *fleet;
	const struct fleet_options *options;
	struct fleet_progress progress;
	struct pl_error *error;
	int rc; /* of saving */
};

/* Makes the folder, unless it is there and empty: files of an earlier run would pass for answers of this one. */
static int prepare_save_folder(const char *path, struct pl_error *error)
{
	struct dirent *entry;
	DIR *folder;
	bool empty = true;

	if (mkdir(path, 0777) == 0)
		return 0;
	if (errno != EEXIST)
		return cli_fail_new_path(error, -errno, "mkdir", path);
	folder = opendir(path);
	if (!folder)
		return cli_fail_errno(error, -errno, "opendir", path);
	while ((entry = readdir(folder)))
		empty = empty && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
	closedir(folder);
	return empty ? 0
		     : cli_fail(error, -EEXIST, "FLEET-SAVE-EXISTS", path, "name a new folder for each run",
				"the folder has files already");
}

static void save_answer(struct collection *collection, size_t host)
{
	const char *folder = collection->options->save;
	char *path = NULL;

	if (collection->rc < 0)
		return;
	if (asprintf(&path, "%s/%s.json", folder, collection->fleet->hosts.names[host]) < 0) {
		collection->rc = cli_fail_errno(collection->error, -ENOMEM, "malloc", NULL);
		return;
	}
	collection->rc = cli_replace_file(path, collection->fleet->answers[host].document, 0644, collection->error);
	free(path);
}

static void take_result(void *user, size_t host, const struct run_result *result)
{
	struct collection *collection = user;
	struct answer *answer = &collection->fleet->answers[host];

	answer_read_result(answer, collection->fleet->kind, result);
	if (answer->outcome != ANSWER_DOCUMENT)
		collection->progress.failed++;
	else if (collection->options->save)
		save_answer(collection, host);
}

static void show_progress(void *user, const unsigned char *states)
{
	struct collection *collection = user;

	fleet_progress_show(&collection->progress, &collection->fleet->hosts, states);
}

/* Returns the words of the command on the hosts, to be freed; NULL without memory. */
static const char **make_host_command(const struct fleet_options *options)
{
	const char **command = calloc(2 * options->expected_count + 4, sizeof(*command));
	size_t count = 0;

	if (!command)
		return NULL;
	command[count++] = options->program;
	command[count++] = options->kind == FLEET_CHECK ? "check" : "topo";
	command[count++] = "--json";
	for (size_t i = 0; i < options->expected_count; i++) {
		command[count++] = "--expect";
		command[count++] = options->expected[i];
	}
	return command;
}

static int collect_answers(struct collection *collection, const struct launch *launch)
{
	const struct fleet_options *options = collection->options;
	struct fleet *fleet = collection->fleet;
	const char **command = make_host_command(options);
	struct run_options run = {
		.launch = launch,
		.hosts = fleet->hosts.names,
		.count = fleet->hosts.count,
		.command = command,
		.parallel = options->parallel,
		.timeout = options->timeout,
		.ended = take_result,
		.progress = show_progress,
		.user = collection,
	};
	uint64_t begun = cli_now();
	int rc;

	if (!command)
		return cli_fail_errno(collection->error, -ENOMEM, "calloc", NULL);
	fleet_progress_begin(&collection->progress, !options->common.quiet);
	rc = run_on_hosts(&run, collection->error);
	fleet_progress_end(&collection->progress);
	fleet->seconds = (double)(cli_now() - begun) / CLI_NS_PER_S;
	free(command);
	if (rc == -EINTR && options->save)
		snprintf(collection->error->hint, sizeof(collection->error->hint),
			 "see the answers that came before: peerlane fleet show %s", options->save);
	return rc < 0 ? rc : collection->rc;
}

int fleet_collect(struct fleet *fleet, const struct fleet_options *options, struct pl_error *error)
{
	struct collection collection = { .fleet = fleet, .options = options, .error = error };
	struct launch launch;
	int rc = launch_parse(&launch, options->launch, error);

	if (rc < 0)
		return rc;
	if (options->save)
		rc = prepare_save_folder(options->save, error);
	fleet->answers = calloc(fleet->hosts.count + 1, sizeof(*fleet->answers));
	if (rc == 0 && !fleet->answers)
		rc = cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	if (rc == 0)
		rc = collect_answers(&collection, &launch);
	launch_free(&launch);
	return rc;
}
