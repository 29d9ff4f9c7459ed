/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/false_server.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The library does not contain this part of the command. */
#include "cmd/transfer/service.c"
#include "cmd/transfer/service_client.c"

#define ARGUMENTS 12
/* Most memory of the command.  A listing of the largest size takes about 200 MiB. */
#define MEMORY_MAX ((uint64_t)400 << 20)

/* -- the server -------------------------------------------------------------------------------------- */

void false_server_open(struct false_server *server, false_answer *answer)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	memset(server, 0, sizeof(*server));
	server->answer = answer;
	options.program = "peerlane serve";
	options.fabric = "tcp";
	check_ok(pl_open(&server->context, &options, &error), &error);
	check_ok(pl_region_allocate(server->context, FALSE_AREA, PL_ACCESS_ALL, &server->memory, &error), &error);
	check_ok(pl_region_allocate(server->context, SERVICE_REQUEST_MAX, PL_ACCESS_LOCAL, &server->messages, &error),
		 &error);
	check_ok(pl_listen(server->context, "127.0.0.1:0", &server->listener, &error), &error);
	pl_listener_address(server->listener, server->address, sizeof(server->address));
	strcpy(server->folder, "/tmp/peerlane-false-XXXXXX");
	check(mkdtemp(server->folder));
}

void false_server_close(struct false_server *server)
{
	char command[128];

	pl_close(server->context);
	snprintf(command, sizeof(command), "rm -r %s", server->folder);
	check_number(system(command), 0);
}

void false_put_token(struct false_server *server, struct service_message *answer)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_error error;

	options.length = server->granted;
	answer->token_length = sizeof(answer->token);
	check_ok(pl_region_share(server->memory, &options, answer->token, &answer->token_length, &error), &error);
}

void false_put_entry(struct false_server *server, struct service_message *answer, const char *name, uint64_t size)
{
	struct service_entry entry = { .kind = SERVICE_FILE, .size = size };

	snprintf(entry.name, sizeof(entry.name), "%s", name);
	check(service_entry_put(&entry, server->buffer, sizeof(server->buffer), &answer->entries_length));
	answer->entries = server->buffer;
}

void false_put_file(struct false_server *server, struct service_message *answer, struct service_file *file,
		     const char *name)
{
	snprintf(file->name, sizeof(file->name), "%s", name);
	check(service_file_put(file, server->buffer, sizeof(server->buffer), &answer->files_length));
	answer->files = server->buffer;
}

void false_put_range(struct false_server *server, struct service_message *answer, uint64_t offset, uint64_t length)
{
	struct service_range range = { offset, length };

	check(service_range_put(&range, server->buffer, sizeof(server->buffer), &answer->ranges_length));
	answer->ranges = server->buffer;
}

void false_fail(struct service_message *answer, int status, const char *text)
{
	answer->status = status;
	snprintf(answer->error.id, sizeof(answer->error.id), "%s", text);
	snprintf(answer->error.message, sizeof(answer->error.message), "%s", text);
	snprintf(answer->error.hint, sizeof(answer->error.hint), "%s", text);
	snprintf(answer->error.object, sizeof(answer->error.object), "%s", text);
}

static void send_answer(struct false_server *server, const struct service_message *answer)
{
	uint8_t buffer[SERVICE_ANSWER_MAX];
	struct pl_operation *operation;
	int length = service_encode(answer, buffer, sizeof(buffer));

	check(length > 0);
	if (pl_send_copy(server->peer, SERVICE_TAG, buffer, (size_t)length, NULL, &operation, NULL) == 0)
		pl_wait(operation, UINT64_MAX, NULL, NULL);
}

/* Answers requests until the client is gone. */
static void serve_client(struct false_server *server)
{
	struct pl_buffer buffer = { server->messages, 0, SERVICE_REQUEST_MAX };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_accept(server->listener, AMPLE_TIME, &server->peer, &error), &error);
	while (pl_receive(server->peer, SERVICE_TAG, UINT64_MAX, &buffer, NULL, &operation, NULL) == 0 &&
	       pl_wait(operation, 60 * SECOND, &receipt, NULL) == 0) {
		static struct service_message request, answer;

		memset(&answer, 0, sizeof(answer));
		check_ok(service_decode(pl_region_address(server->messages), receipt.bytes, &request), NULL);
		answer.type = request.type;
		answer.answer = true;
		answer.request = request.request;
		server->silent = request.type == SERVICE_EXTENT;
		server->requests += !server->silent;
		server->answer(server, &request, &answer);
		if (!server->silent)
			send_answer(server, &answer);
	}
	pl_peer_close(server->peer);
	server->peer = NULL;
}

/* -- the command ------------------------------------------------------------------------------------- */

static pid_t start_command(const struct false_server *server, const char *const *arguments, int output)
{
	const char *all[ARGUMENTS + 4] = { "peerlane", arguments[0], server->address }, *command = getenv("PEERLANE");
	unsigned count = 3;
	char timeout[32];
	pid_t child;

	check(command);
	snprintf(timeout, sizeof(timeout), "--timeout=%u",
		 server->impatient ? 2 * slowness() : (unsigned)(AMPLE_TIME / SECOND));
	for (unsigned i = 1; arguments[i]; i++)
		all[count++] = arguments[i];
	all[count++] = timeout;
	child = process_fork();
	if (child)
		return child;
	check(chdir(server->folder) == 0);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	unsetenv("PEERLANE_KEY_FILE");
	execv(command, (char **)(uintptr_t)all);
	_exit(127);
}

/* Runs the command in the server's folder, with the server's address behind its first argument. */
const struct false_result *false_run(struct false_server *server, const char *const *arguments)
{
	static struct false_result result;
	char path[] = "/tmp/peerlane-output-XXXXXX";
	int output = mkstemp(path), status;
	struct rusage usage;
	ssize_t got;
	pid_t child;

	check(output >= 0 && unlink(path) == 0);
	server->requests = 0;
	child = start_command(server, arguments, output);
	serve_client(server);
	check(wait4(child, &status, 0, &usage) == child);
	check(WIFEXITED(status));
	got = pread(output, result.output, sizeof(result.output) - 1, 0);
	check(got >= 0);
	result.output[got] = '\0';
	close(output);
	result.status = WEXITSTATUS(status);
	result.memory = (uint64_t)usage.ru_maxrss << 10;
	for (const char *at = result.output; *at; at++)
		check((unsigned char)*at >= ' ' || *at == '\n' || *at == '\t');
	return &result;
}

void false_check_fails(const struct false_result *result, const char *text)
{
	check_number(result->status, 1);
	false_check_memory(result);
	if (!strstr(result->output, text))
		check_failed(__FILE__, __LINE__, "no \"%s\" in: %s", text, result->output);
}

void false_check_memory(const struct false_result *result)
{
	if (memory_is_exact())
		check(result->memory < MEMORY_MAX);
}

unsigned false_count_files(const struct false_server *server)
{
	DIR *directory = opendir(server->folder);
	struct dirent *entry;
	unsigned count = 0;

	check(directory);
	while ((entry = readdir(directory)))
		count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(directory);
	return count;
}

bool false_exists(const struct false_server *server, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", server->folder, name);
	return access(path, F_OK) == 0;
}
