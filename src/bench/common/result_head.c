/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/common/result_head.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "topology/cpu_name.h"

#define DOCUMENT_FORMAT 1
#define OUTPUT_MAX (8u << 20)

/* Reads the value of the file's first line of the form "NAME : VALUE" or "NAME: VALUE". */
static void read_file_field(const char *path, const char *name, char *to, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		char *at = line + strlen(name);

		if (strncmp(line, name, strlen(name)))
			continue;
		at += strspn(at, " \t:");
		at[strcspn(at, "\n")] = '\0';
		snprintf(to, size, "%.*s", (int)size - 1, at);
		break;
	}
	if (file)
		fclose(file);
}

static void read_first_line(const char *path, char *to, size_t size)
{
	read_file_field(path, "", to, size);
}

/* Appends a line if there is room for all of it. */
static void append_list_line(char *list, size_t size, const char *line)
{
	size_t length = strlen(list), more = strlen(line);

	if (more && length + more + 2 <= size)
		snprintf(list + length, size - length, "%s\n", line);
}

static int is_visible_entry(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Reads the driver's files; a call of the driver's library would create a context on the GPU. */
static void read_gpus(struct machine *machine)
{
	static const char folder[] = "/proc/driver/nvidia/gpus";
	struct dirent **entries;
	int count = scandir(folder, &entries, is_visible_entry, alphasort);

	for (int i = 0; i < count; i++) {
		char path[sizeof(folder) + sizeof(entries[i]->d_name) + 16], model[64] = "";

		snprintf(path, sizeof(path), "%s/%s/information", folder, entries[i]->d_name);
		read_file_field(path, "Model", model, sizeof(model));
		append_list_line(machine->gpus, sizeof(machine->gpus), model);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

/* Lists cards as "mlx5_0 MT4129": device name and type. */
static void read_cards(struct machine *machine)
{
	static const char folder[] = "/sys/class/infiniband";
	struct dirent **entries;
	int count = scandir(folder, &entries, is_visible_entry, alphasort);

	for (int i = 0; i < count; i++) {
		char path[sizeof(folder) + sizeof(entries[i]->d_name) + 16], type[32] = "";
		char text[sizeof(entries[i]->d_name) + sizeof(type) + 1];

		snprintf(path, sizeof(path), "%s/%s/hca_type", folder, entries[i]->d_name);
		read_first_line(path, type, sizeof(type));
		snprintf(text, sizeof(text), "%s%s%s", entries[i]->d_name, type[0] ? " " : "", type);
		append_list_line(machine->cards, sizeof(machine->cards), text);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

void machine_read(struct machine *machine)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE), cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct utsname name;

	memset(machine, 0, sizeof(*machine));
	if (uname(&name) == 0) {
		/* The kernel's default, until a name is set. */
		if (strcmp(name.nodename, "(none)"))
			snprintf(machine->host, sizeof(machine->host), "%.*s", (int)sizeof(machine->host) - 1,
				 name.nodename);
		snprintf(machine->kernel, sizeof(machine->kernel), "%.20s %.40s", name.sysname, name.release);
	}
	pl_cpu_name_here(machine->processor, sizeof(machine->processor));
	machine->cores = cores > 0 ? (uint32_t)cores : 0;
	machine->memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
	read_gpus(machine);
	read_cards(machine);
}

static struct json_object *json_line_list(const char *lines)
{
	struct json_object *list = json_object_new_array();

	while (*lines) {
		size_t length = strcspn(lines, "\n");
		char *line = strndup(lines, length);

		json_object_array_add(list, cli_json_text(line));
		free(line);
		lines += length + (lines[length] == '\n');
	}
	return list;
}

struct json_object *machine_json(const struct machine *machine)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "host", cli_json_text_or_null(machine->host));
	cli_json_add(object, "kernel", cli_json_text_or_null(machine->kernel));
	cli_json_add(object, "processor", cli_json_text_or_null(machine->processor));
	cli_json_add(object, "cores", json_object_new_int64(machine->cores));
	cli_json_add(object, "memory_bytes", json_object_new_uint64(machine->memory));
	cli_json_add(object, "gpus", json_line_list(machine->gpus));
	cli_json_add(object, "cards", json_line_list(machine->cards));
	return object;
}

static struct json_object *json_command(int argc, char **argv)
{
	struct json_object *command = json_object_new_array();
	char *words = strdup(argc > 0 ? argv[0] : ""), *rest = words, *word;

	while ((word = strsep(&rest, " ")))
		json_object_array_add(command, cli_json_text(word));
	free(words);
	for (int i = 1; i < argc; i++)
		json_object_array_add(command, cli_json_text(argv[i]));
	return command;
}

void result_head(struct json_object *object, const char *kind, int argc, char **argv)
{
	time_t now = time(NULL);
	struct tm parts;
	char text[40];

	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
	cli_json_add(object, "format", json_object_new_int(DOCUMENT_FORMAT));
	cli_json_add(object, "kind", cli_json_text(kind));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "time", cli_json_text(text));
	cli_json_add(object, "command", json_command(argc, argv));
}

/*
 * Starts this program with one subcommand and --json, and its output redirected to a descriptor.  Returns 0 if that
 * fails.
 */
static pid_t start_json_subcommand(const char *name, int output)
{
	char program[] = "/proc/self/exe", peerlane[] = "peerlane", json[] = "--json", command[16];
	char *arguments[] = { peerlane, command, json, NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid = 0;

	snprintf(command, sizeof(command), "%s", name);
	if (posix_spawn_file_actions_init(&actions))
		return 0;
	if (posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) ||
	    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) ||
	    posix_spawn(&pid, program, &actions, NULL, arguments, environ))
		pid = 0;
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

/* Reads and parses the output; returns NULL if it is not JSON. */
static struct json_object *parse_command_output(int fd)
{
	char *text = malloc(OUTPUT_MAX);
	struct json_object *object = NULL;
	size_t length = 0;
	ssize_t got = 0;

	while (text && length < OUTPUT_MAX - 1 && (got = cli_read(fd, text + length, OUTPUT_MAX - 1 - length)) > 0)
		length += (size_t)got;
	if (text && length > 0 && got == 0) {
		text[length] = '\0';
		object = json_tokener_parse(text);
	}
	free(text);
	return object;
}

static void attach_command_output(struct json_object *object, const char *name, const char *command)
{
	struct json_object *output = NULL;
	int pipes[2];
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return;
	pid = start_json_subcommand(command, pipes[1]);
	close(pipes[1]);
	if (pid)
		output = parse_command_output(pipes[0]);
	close(pipes[0]);
	while (pid && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (output)
		cli_json_add(object, name, output);
}

void result_attach_machine(struct json_object *object)
{
	attach_command_output(object, "topology", "topo");
	attach_command_output(object, "check", "check");
}
