/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests `peerlane serve` with clients that violate its protocol: it answers with an error or disconnects them. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

/* The library does not contain this part of the command. */
#include "cmd/transfer/service.c"
#include "cmd/transfer/service_client.c"

#define MEMORY_SIZE (1u << 20)
#define LARGE (1u << 20)
/* Seconds for which a client of a limited server may be idle: longer than a busy machine stands still. */
#define IDLE "4"
#define IDLE_MS 4000u

struct world {
	pid_t server;
	char folder[64], address[96];
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *region;
	uint32_t requests;
	bool limited;  /* --clients 1 --idle IDLE --rate 1G */
	bool deleting; /* --allow-delete --quota 100000 */
};

/* -- server and client --------------------------------------------------------------------------- */

static void server_start(struct world *world)
{
	const char *command = getenv("PEERLANE");
	char line[160] = "";
	int output[2];
	FILE *stream;

	check(command);
	strcpy(world->folder, "/tmp/peerlane-service-XXXXXX");
	check(mkdtemp(world->folder));
	check(pipe(output) == 0);
	world->server = process_fork();
	if (world->server == 0) {
		dup2(output[1], STDOUT_FILENO);
		close(output[0]);
		close(output[1]);
		unsetenv("PEERLANE_KEY_FILE");
		execl(command, "peerlane", "serve", "127.0.0.1:0", "--quiet", "--memory", "frames=1M", "--writable",
		      "--upload", world->folder,
		      world->limited    ? "--clients=1"
		      : world->deleting ? "--allow-delete"
					: NULL,
		      world->limited ? "--idle=" IDLE : "--quota=100000", world->limited ? "--rate=1G" : NULL, NULL);
		_exit(127);
	}
	close(output[1]);
	stream = fdopen(output[0], "r");
	check(stream && fgets(line, sizeof(line), stream));
	check_number(sscanf(line, "listening on %95s", world->address), 1);
	fclose(stream);
}

static void client_open(struct world *world)
{
	struct pl_error error;

	check_ok(pl_open(&world->context, NULL, &error), &error);
	check_ok(pl_region_allocate(world->context, LARGE, PL_ACCESS_LOCAL, &world->region, &error), &error);
	check_ok(pl_connect(world->context, world->address, 0, &world->peer, &error), &error);
}

static void client_close(struct world *world)
{
	pl_close(world->context);
}

static void world_open(struct world *world)
{
	*world = (struct world){ .server = 0 };
	server_start(world);
	client_open(world);
}

/* Stops the server, which must still run and must exit with status 0. */
static void world_close(struct world *world)
{
	int status;

	client_close(world);
	check(kill(world->server, SIGTERM) == 0);
	status = process_wait(world->server);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	check(rmdir(world->folder) == 0);
}

static void send_bytes(struct world *world, const void *bytes, size_t length)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(world->peer, SERVICE_TAG, bytes, length, NULL, &operation, &error), &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

static void receive_answer(struct world *world, struct service_message *answer)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_receive(world->peer, SERVICE_TAG, UINT64_MAX,
			    &(struct pl_buffer){ world->region, 0, SERVICE_ANSWER_MAX }, NULL, &operation, &error),
		 &error);
	check_ok(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	check_ok(service_decode(pl_region_address(world->region), receipt.bytes, answer), NULL);
	check(answer->answer);
}

/* Sends a request and returns the status of the answer. */
static int send_request(struct world *world, struct service_message *request, struct service_message *answer)
{
	uint8_t buffer[SERVICE_REQUEST_MAX];
	int length;

	request->request = ++world->requests;
	length = service_encode(request, buffer, sizeof(buffer));
	check(length > 0);
	send_bytes(world, buffer, (size_t)length);
	receive_answer(world, answer);
	check(answer->type == request->type && answer->request == request->request);
	return answer->status;
}

static void check_server_answers(struct world *world)
{
	struct service_message request = { .type = SERVICE_LIST }, answer;
	struct service_entry entry;
	size_t offset = 0;

	check_number(send_request(world, &request, &answer), 0);
	check(service_entry_next(&answer, &offset, &entry));
	check_text(entry.name, "frames");
}

/* A client that neither asks nor has open files leaves its place to the next one. */
static void idle_client(void *argument)
{
	struct service_message request = { .type = SERVICE_AREA }, answer;
	struct world world = { .limited = true }, other;
	struct pl_completion lost;

	(void)argument;
	server_start(&world);
	client_open(&world);
	check_server_answers(&world);
	/* An area is no transfer. */
	check_number(send_request(&world, &request, &answer), 0);
	other = world;
	client_open(&other);
	check_server_answers(&other);
	while (pl_poll(world.context, &lost, 1) == 0)
		sleep_ms(1);
	check_number(lost.kind, PL_KIND_LOST);
	client_close(&other);
	world_close(&world);
}

/* A server that did not run for a while disconnects an idle client and looks at the rates of all clients at once. */
static void stopped_server(void *argument)
{
	struct world world = { .limited = true };
	struct pl_completion lost;

	(void)argument;
	server_start(&world);
	client_open(&world);
	check_server_answers(&world);
	check_number(kill(world.server, SIGSTOP), 0);
	sleep_ms(IDLE_MS + 1000);
	check_number(kill(world.server, SIGCONT), 0);
	while (pl_poll(world.context, &lost, 1) == 0)
		sleep_ms(1);
	check_number(lost.kind, PL_KIND_LOST);
	client_close(&world);
	client_open(&world);
	check_server_answers(&world);
	world_close(&world);
}

static uint32_t create(struct world *world, const char *name, uint64_t size)
{
	struct service_message request = { .type = SERVICE_CREATE, .size = size }, answer;

	strcpy(request.name, name);
	check_number(send_request(world, &request, &answer), 0);
	return answer.handle;
}

/* -- cases ---------------------------------------------------------------------------------------- */

static void malformed_requests(void *argument)
{
	struct service_message request = { .type = SERVICE_OPEN, .request = 7, .name = "frames" }, answer;
	uint8_t good[SERVICE_REQUEST_MAX], bad[SERVICE_REQUEST_MAX];
	struct world world;
	int length = service_encode(&request, good, sizeof(good));

	(void)argument;
	world_open(&world);
	/* Truncates the request at every byte, then changes every byte.  A change behind the header may be accepted. */
	for (int cut = 0; cut < length; cut++) {
		send_bytes(&world, good, (size_t)cut);
		receive_answer(&world, &answer);
		check_number(answer.status, -EPROTO);
	}
	for (int at = 0; at < length; at++) {
		memcpy(bad, good, (size_t)length);
		bad[at] ^= 0x40;
		send_bytes(&world, bad, (size_t)length);
		receive_answer(&world, &answer);
		check(answer.status < 0 || at >= 8);
	}
	memset(bad, 0, sizeof(bad));
	memcpy(bad, good, (size_t)length);
	send_bytes(&world, bad, (size_t)length + 1);
	receive_answer(&world, &answer);
	check_number(answer.status, -EPROTO);
	/* The longest request. */
	send_bytes(&world, bad, sizeof(bad));
	receive_answer(&world, &answer);
	check_number(answer.status, -EPROTO);
	check_server_answers(&world);
	world_close(&world);
}

static void oversized_message(void *argument)
{
	struct service_message answer;
	struct pl_operation *operation;
	struct pl_error error;
	struct world world;

	(void)argument;
	world_open(&world);
	check_ok(pl_send(world.peer, SERVICE_TAG + 1, &(struct pl_buffer){ world.region, 0, LARGE }, NULL, &operation,
			 &error),
		 &error);
	receive_answer(&world, &answer);
	check_number(answer.status, -EPROTO);
	check_one_of(pl_wait(operation, UINT64_MAX, NULL, &error), 0, -EMSGSIZE);
	for (int i = 0; i < 100; i++) {
		check_ok(pl_notify(world.peer, (uint64_t)i, NULL, 0, NULL, &operation, &error), &error);
		check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
	}
	check_server_answers(&world);
	world_close(&world);
}

static void bad_handles_and_ranges(void *argument)
{
	static const enum service_type with_handle[] = { SERVICE_HASH, SERVICE_COMMIT, SERVICE_CLOSE };
	struct service_message request, answer;
	struct world world;
	uint32_t handle;

	(void)argument;
	world_open(&world);
	for (size_t i = 0; i < 3; i++) {
		request = (struct service_message){ .type = with_handle[i], .handle = i ? UINT32_MAX : 5 };
		check_number(send_request(&world, &request, &answer), -EINVAL);
		check_text(answer.error.id, "NO-HANDLE");
	}
	handle = create(&world, "frames", MEMORY_SIZE);
	request =
		(struct service_message){ .type = SERVICE_HASH, .handle = handle, .offset = 1, .length = MEMORY_SIZE };
	check_number(send_request(&world, &request, &answer), -ERANGE);
	request.offset = UINT64_MAX;
	check_number(send_request(&world, &request, &answer), -ERANGE);
	request.offset = MEMORY_SIZE;
	check_number(send_request(&world, &request, &answer), -ERANGE);
	/* All bytes, and none at the end. */
	request.offset = 0;
	check_number(send_request(&world, &request, &answer), 0);
	request.offset = MEMORY_SIZE;
	request.length = 0;
	check_number(send_request(&world, &request, &answer), 0);
	request = (struct service_message){ .type = SERVICE_CREATE, .size = MEMORY_SIZE + 1, .name = "frames" };
	check_number(send_request(&world, &request, &answer), -ENOSPC);
	request = (struct service_message){ .type = SERVICE_CREATE, .size = UINT64_MAX, .name = "file" };
	check_number(send_request(&world, &request, &answer), -EFBIG);
	/* A handle opened for reading cannot be committed. */
	request = (struct service_message){ .type = SERVICE_OPEN, .name = "frames" };
	check_number(send_request(&world, &request, &answer), 0);
	check(answer.size == MEMORY_SIZE && answer.kind == SERVICE_MEMORY);
	request = (struct service_message){ .type = SERVICE_COMMIT, .handle = answer.handle };
	check_number(send_request(&world, &request, &answer), -EINVAL);
	check_server_answers(&world);
	world_close(&world);
}

/* Reports that bytes are written, and begins again.  Returns the bytes that the server need not get again. */
static uint64_t done_after_extent(struct world *world, uint64_t size, uint64_t done)
{
	struct service_message request = { .type = SERVICE_EXTENT, .handle = create(world, "file", size), .done = done };
	struct service_message again = { .type = SERVICE_CREATE, .size = size, .name = "file" }, answer;
	uint8_t buffer[SERVICE_REQUEST_MAX];

	/* EXTENT has no answer. */
	send_bytes(world, buffer, (size_t)service_encode(&request, buffer, sizeof(buffer)));
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = request.handle };
	check_number(send_request(world, &request, &answer), 0);
	check_number(send_request(world, &again, &answer), 0);
	done = answer.done;
	request.handle = answer.handle;
	check_number(send_request(world, &request, &answer), 0);
	return done;
}

static void extents(void *argument)
{
	struct service_message request = { .type = SERVICE_CLOSE, .flags = SERVICE_DISCARD }, answer;
	struct world world;

	(void)argument;
	world_open(&world);
	check_number(done_after_extent(&world, 1000, 600), 600);
	check_number(done_after_extent(&world, 1000, 1000), 1000);
	/* More than the file has is ignored. */
	check_number(done_after_extent(&world, 1000, 1001), 1000);
	check_number(done_after_extent(&world, 1000, UINT64_MAX), 1000);
	request.handle = create(&world, "file", 1000);
	check_number(send_request(&world, &request, &answer), 0);
	world_close(&world);
}

static void names_outside_the_folder(void *argument)
{
	static const char *const names[] = { "../x", "/tmp/x", "a/../../x", "..",      ".",
					     "",     "a//b",   "a/",        ".x.part", "no/x" };
	struct service_message request, answer;
	struct world world;

	(void)argument;
	world_open(&world);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		request = (struct service_message){ .type = SERVICE_CREATE, .size = 5 };
		strcpy(request.name, names[i]);
		check_one_of(send_request(&world, &request, &answer), -EINVAL, -ENOENT);
		request.type = SERVICE_OPEN;
		check_number(send_request(&world, &request, &answer), -ENOENT);
	}
	check_server_answers(&world);
	world_close(&world);
}

static void too_many_handles(void *argument)
{
	struct service_message request = { .type = SERVICE_OPEN, .name = "frames" }, answer;
	unsigned count = 0;
	struct world world;

	(void)argument;
	world_open(&world);
	while (send_request(&world, &request, &answer) == 0 && count < 1000)
		count++;
	check_number(count, 64);
	check_number(answer.status, -EMFILE);
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = 63 };
	check_number(send_request(&world, &request, &answer), 0);
	request = (struct service_message){ .type = SERVICE_OPEN, .name = "frames" };
	check_number(send_request(&world, &request, &answer), 0);
	check_number(answer.handle, 63 | SERVICE_HANDLE_STAGED);
	world_close(&world);
}

/* Closing a handle revokes its token. */
static void a_closed_handle_gives_no_access(void *argument)
{
	struct service_message request = { .type = SERVICE_OPEN, .name = "frames" }, answer;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	struct world world;

	(void)argument;
	world_open(&world);
	check_number(send_request(&world, &request, &answer), 0);
	check_ok(pl_remote_import(world.peer, answer.token, answer.token_length, 0, &remote, &error), &error);
	check_number(pl_remote_rights(remote), PL_ACCESS_READ);
	check_ok(pl_read(world.peer, &(struct pl_transfer){ remote, 0, world.region, 0, 4096 }, NULL, &operation,
			 &error),
		 &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = answer.handle };
	check_number(send_request(&world, &request, &answer), 0);
	check_ok(pl_read(world.peer, &(struct pl_transfer){ remote, 0, world.region, 0, 4096 }, NULL, &operation,
			 &error),
		 &error);
	check_status(pl_wait(operation, UINT64_MAX, NULL, &error), -EACCES, &error);
	pl_remote_release(remote);
	world_close(&world);
}

#define NOTIFICATIONS 120000u
#define TOGETHER 250u
#define FLOOD_MEMORY ((uint64_t)60 << 20) /* half of the data of all notifications */

/* Returns the resident bytes of the server. */
static uint64_t server_memory(const struct world *world)
{
	unsigned long total, resident;
	char path[32];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", world->server);
	file = fopen(path, "r");
	check(file && fscanf(file, "%lu %lu", &total, &resident) == 2);
	fclose(file);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The server keeps no data of notifications, which it does not want. */
static void notifications(void *argument)
{
	static const uint8_t data[PL_NOTIFY_DATA_MAX];
	struct pl_completion completions[TOGETHER];
	struct world world;
	uint64_t before;

	(void)argument;
	world_open(&world);
	check_server_answers(&world);
	before = server_memory(&world);
	for (unsigned i = 0; i < NOTIFICATIONS / TOGETHER; i++) {
		for (unsigned n = 0; n < TOGETHER; n++)
			check_ok(pl_notify(world.peer, n, data, sizeof(data), NULL, NULL, NULL), NULL);
		for (unsigned n = 0; n < TOGETHER;)
			n += (unsigned)pl_poll(world.context, completions, TOGETHER);
	}
	check_server_answers(&world);
	if (memory_is_exact())
		check(server_memory(&world) < before + FLOOD_MEMORY);
	world_close(&world);
}

/* Clients that disconnect during an answer or an upload. */
static void clients_that_disconnect(void *argument)
{
	struct service_message request = { .type = SERVICE_HASH, .length = MEMORY_SIZE, .request = 1 };
	uint8_t buffer[SERVICE_REQUEST_MAX];
	char name[64], path[192];
	struct world world;

	(void)argument;
	world_open(&world);
	client_close(&world);
	for (int i = 0; i < 20; i++) {
		int length;

		client_open(&world);
		snprintf(name, sizeof(name), "file%d", i);
		create(&world, name, 100000);
		request.handle = create(&world, "frames", MEMORY_SIZE);
		length = service_encode(&request, buffer, sizeof(buffer));
		for (int j = 0; j < i; j++)
			send_bytes(&world, buffer, (size_t)length);
		client_close(&world);
	}
	client_open(&world);
	check_server_answers(&world);
	/* Partial files remain, for another attempt, and are unlocked. */
	for (int i = 0; i < 20; i++) {
		struct service_message answer;

		snprintf(path, sizeof(path), "%s/.file%d.part", world.folder, i);
		check(access(path, F_OK) == 0);
		memset(&request, 0, sizeof(request));
		snprintf(request.name, sizeof(request.name), "file%d", i);
		request.size = 100000;
		/* The server may not yet have noticed the last disconnect. */
		do {
			request.type = SERVICE_CREATE;
			send_request(&world, &request, &answer);
		} while (answer.status == -EBUSY);
		check_number(answer.status, 0);
		request = (struct service_message){ .type = SERVICE_CLOSE,
						    .handle = answer.handle,
						    .flags = SERVICE_DISCARD };
		check_number(send_request(&world, &request, &answer), 0);
		check(access(path, F_OK) != 0);
	}
	world_close(&world);
}

/* Clients that leave while their file is stored: the server stores it, and goes on. */
static void clients_that_leave_a_commit(void *argument)
{
	enum { CLIENTS = 10 };
	uint8_t buffer[SERVICE_REQUEST_MAX];
	char name[64], path[192];
	struct world world;

	(void)argument;
	world_open(&world);
	client_close(&world);
	for (int i = 0; i < CLIENTS; i++) {
		struct service_message request = { .type = SERVICE_COMMIT, .request = 2 };

		client_open(&world);
		snprintf(name, sizeof(name), "stored%d", i);
		request.handle = create(&world, name, 100000);
		send_bytes(&world, buffer, (size_t)service_encode(&request, buffer, sizeof(buffer)));
		client_close(&world);
	}
	client_open(&world);
	for (int i = 0; i < CLIENTS; i++) {
		snprintf(path, sizeof(path), "%s/stored%d", world.folder, i);
		for (uint64_t end = clock_now() + AMPLE_TIME; access(path, F_OK) != 0; sleep_ms(1))
			check(clock_now() < end);
		check(unlink(path) == 0);
	}
	check_server_answers(&world);
	world_close(&world);
}

/* -- progress -------------------------------------------------------------------------------------- */

#define HASHED_SIZE (64ull << 20) /* slices of a hash, between which the server handles messages */

static void post_request(struct world *world, struct service_message *request)
{
	uint8_t buffer[SERVICE_REQUEST_MAX];

	request->request = ++world->requests;
	send_bytes(world, buffer, (size_t)service_encode(request, buffer, sizeof(buffer)));
}

static uint64_t written_bytes(const struct service_message *answer)
{
	struct service_client client;
	size_t offset = 0;

	check_number(answer->type, SERVICE_WATCH);
	check_number(answer->status, 0);
	check_number(answer->done, 1);
	check(service_client_next(answer, &offset, &client));
	check_number(client.written, answer->length);
	return client.written;
}

/* Reports of progress count, once; false ones do not. */
static void progress(void *argument)
{
	static const struct {
		uint64_t done, written;
	} reports[] = { { 1000, 1000 }, { 1000, 1000 }, { 0, 1000 }, { 900, 1000 }, { 5001, 1000 }, { 5000, 5000 } };
	struct service_message watch = { .type = SERVICE_WATCH }, answer;
	struct world world;
	uint32_t handle;

	(void)argument;
	world_open(&world);
	handle = create(&world, "up", 5000);
	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		struct service_message report = { .type = SERVICE_EXTENT, .handle = handle, .done = reports[i].done };

		post_request(&world, &report);
		check_number(send_request(&world, &watch, &answer), 0);
		check_number(written_bytes(&answer), reports[i].written);
	}
	answer = (struct service_message){ .type = SERVICE_CLOSE, .handle = handle, .flags = SERVICE_DISCARD };
	check_number(send_request(&world, &answer, &answer), 0);
	world_close(&world);
}

#define ROUTES_AND_SUMS (SERVICE_WATCH_ROUTES | SERVICE_WATCH_SUMS)

static void check_routes(struct world *world, struct service_message *watch, uint64_t direct, uint64_t staged)
{
	struct service_message answer;
	struct service_client client;
	size_t offset = 0;

	check_number(send_request(world, watch, &answer), 0);
	check_number(answer.more, SERVICE_MORE_ROUTES | SERVICE_MORE_SUMS);
	check_number(answer.direct, direct);
	check_number(answer.staged, staged);
	check(service_client_next(&answer, &offset, &client) && client.routes);
	check_number(client.direct, direct);
	check_number(client.staged, staged);
}

/* At most all bytes are staged; a report without routes counts as neither. */
static void routes(void *argument)
{
	static const struct {
		uint64_t done, reported;
		bool silent;
		uint64_t direct, staged;
	} reports[] = {
		{ 1000, 0, false, 1000, 0 },
		{ 2000, 300, false, 1700, 300 },
		{ 2000, 900, false, 1700, 300 },
		{ 5001, 900, false, 1700, 300 },
		{ 2100, 200, false, 1800, 300 },
		{ 3000, UINT64_MAX, false, 1800, 1200 },
		{ 4000, UINT64_MAX, true, 1800, 1200 },
		{ 5000, 0, false, 2800, 1200 },
	};
	struct service_message watch = { .type = SERVICE_WATCH, .offset = ROUTES_AND_SUMS }, answer;
	struct world world;
	char path[100];
	uint32_t handle;

	(void)argument;
	world_open(&world);
	handle = create(&world, "up", 5000);
	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		struct service_message report = { .type = SERVICE_EXTENT,
						  .handle = handle,
						  .done = reports[i].done,
						  .staged = reports[i].reported,
						  .has_staged = !reports[i].silent };

		post_request(&world, &report);
		check_routes(&world, &watch, reports[i].direct, reports[i].staged);
	}
	/* No client has a number below 1. */
	watch.offset |= 1;
	check_number(send_request(&world, &watch, &answer), 0);
	check(answer.more == (SERVICE_MORE_ROUTES | SERVICE_MORE_SUMS) && answer.clients_length == 0);
	/* Earlier clients know of clients' routes only, or of none. */
	for (uint64_t more = 0; more <= SERVICE_MORE_ROUTES; more += SERVICE_MORE_ROUTES) {
		watch.offset = more ? SERVICE_WATCH_ROUTES : 0;
		check_number(send_request(&world, &watch, &answer), 0);
		check_number(answer.more, more);
	}
	answer = (struct service_message){ .type = SERVICE_CLOSE, .handle = handle, .flags = SERVICE_DISCARD };
	check_number(send_request(&world, &answer, &answer), 0);
	/* COMMIT tells the rest, of a file and of memory. */
	watch.offset = ROUTES_AND_SUMS;
	for (uint64_t i = 1; i <= 2; i++) {
		handle = create(&world, i == 1 ? "routed" : "frames", 1000);
		answer = (struct service_message){
			.type = SERVICE_COMMIT_UNSYNCED, .handle = handle, .staged = 400, .has_staged = true
		};
		check_number(send_request(&world, &answer, &answer), 0);
		check_routes(&world, &watch, 2800 + i * 600, 1200 + i * 400);
	}
	snprintf(path, sizeof(path), "%s/routed", world.folder);
	check(unlink(path) == 0);
	world_close(&world);
}

/* While the server computes a hash, reports count, and any other message waits. */
static void messages_during_a_hash(void *argument)
{
	struct service_message hash = { .type = SERVICE_HASH, .length = HASHED_SIZE },
			       watch = { .type = SERVICE_WATCH };
	struct service_message report = { .type = SERVICE_EXTENT, .done = 1000 }, answer;
	struct world world;

	(void)argument;
	world_open(&world);
	hash.handle = report.handle = create(&world, "up", HASHED_SIZE);
	for (int round = 0; round < 3; round++) {
		post_request(&world, &hash);
		post_request(&world, &report);
		report.done += 1000;
		post_request(&world, &report);
		if (round == 1)
			send_bytes(&world, "", 1);
		post_request(&world, &watch);
		receive_answer(&world, &answer);
		check_number(answer.type, SERVICE_HASH);
		check_number(answer.status, 0);
		if (round == 1) {
			receive_answer(&world, &answer);
			check_number(answer.status, -EPROTO);
		}
		receive_answer(&world, &answer);
		check_number(written_bytes(&answer), report.done);
	}
	check_server_answers(&world);
	/* Leaves while a message waits. */
	post_request(&world, &hash);
	post_request(&world, &watch);
	client_close(&world);
	client_open(&world);
	check_server_answers(&world);
	/* The server may not yet have noticed the last disconnect. */
	do {
		watch = (struct service_message){ .type = SERVICE_CREATE, .size = HASHED_SIZE, .name = "up" };
		send_request(&world, &watch, &answer);
	} while (answer.status == -EBUSY);
	hash = (struct service_message){ .type = SERVICE_CLOSE, .handle = answer.handle, .flags = SERVICE_DISCARD };
	check_number(send_request(&world, &hash, &answer), 0);
	world_close(&world);
}

/* -- small files ------------------------------------------------------------------------------------ */

/* Area of a client, and the files of a request. */
struct area {
	struct world world;
	uint32_t handle;
	struct pl_remote *remote;
	uint8_t files[SERVICE_ENTRIES_MAX];
	size_t length;
};

static void area_open(struct area *area)
{
	struct service_message request = { .type = SERVICE_AREA, .length = UINT64_MAX }, answer;
	struct pl_error error;

	*area = (struct area){ .length = 0 };
	world_open(&area->world);
	check_number(send_request(&area->world, &request, &answer), 0);
	check_number(answer.length, SERVICE_AREA_MAX);
	area->handle = answer.handle;
	check_ok(pl_remote_import(area->world.peer, answer.token, answer.token_length, 0, &area->remote, &error),
		 &error);
	check_number(pl_remote_rights(area->remote), PL_ACCESS_READ | PL_ACCESS_WRITE);
}

static void area_write(struct area *area, const char *bytes)
{
	struct pl_operation *operation;
	struct pl_error error;

	memcpy(pl_region_address(area->world.region), bytes, strlen(bytes));
	check_ok(pl_write(area->world.peer,
			  &(struct pl_transfer){ area->remote, 0, area->world.region, 0, strlen(bytes) }, NULL,
			  &operation, &error),
		 &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

static void area_add(struct area *area, const char *name, uint64_t offset, uint64_t size)
{
	struct service_file file = { .size = size, .offset = offset, .mode = 0600 };

	strcpy(file.name, name);
	check(service_file_put(&file, area->files, sizeof(area->files), &area->length));
}

static int area_send(struct area *area, enum service_type type, unsigned flags, struct service_message *answer)
{
	struct service_message request = {
		.type = type, .handle = area->handle, .flags = flags, .files = area->files, .files_length = area->length
	};
	int status = send_request(&area->world, &request, answer);

	area->length = 0;
	return status;
}

static void area_close(struct area *area)
{
	pl_remote_release(area->remote);
	world_close(&area->world);
}

static void check_file(const struct area *area, const char *name, const char *content)
{
	char path[192], bytes[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", area->world.folder, name);
	file = fopen(path, "r");
	if (!content) {
		check(!file);
		return;
	}
	check(file && fread(bytes, 1, sizeof(bytes) - 1, file) == strlen(content));
	check_text(bytes, content);
	fclose(file);
	check(unlink(path) == 0);
}

static void small_files(void *argument)
{
	struct service_message answer;
	struct service_file file;
	struct area area;
	size_t at = 0;

	(void)argument;
	area_open(&area);
	area_write(&area, "onetwo");
	area_add(&area, "one", 0, 3);
	area_add(&area, "missing/two", 3, 3);
	area_add(&area, "empty", SERVICE_AREA_MAX, 0);
	check_number(area_send(&area, SERVICE_PUT_SMALL, 0, &answer), 0);
	check_number(answer.done, 3);
	check(service_file_next(&answer, &at, &file));
	check_text(file.name, "missing/two");
	check_number(file.status, -ENOENT);
	check(!service_file_next(&answer, &at, &file));
	check_file(&area, "one", "one");
	check_file(&area, "empty", "");
	area_add(&area, "missing/two", 3, 3);
	check_number(area_send(&area, SERVICE_PUT_SMALL, SERVICE_FOLDERS, &answer), 0);
	check_number(answer.files_length, 0);
	check_file(&area, "missing/two", "two");
	check_file(&area, ".one.part", NULL);
	/* A wrong hash keeps the file from its name. */
	area_add(&area, "wrong", 0, 3);
	check_number(area_send(&area, SERVICE_PUT_SMALL, SERVICE_HASHED, &answer), 0);
	at = 0;
	check(service_file_next(&answer, &at, &file));
	check_number(file.status, -ESTALE);
	check_text(file.error.id, "HASH-MISMATCH");
	check_file(&area, "wrong", NULL);
	check_file(&area, ".wrong.part", NULL);
	snprintf(file.name, sizeof(file.name), "%s/missing", area.world.folder);
	check(rmdir(file.name) == 0);
	area_close(&area);
}

static void small_files_outside(void *argument)
{
	static const char *const names[] = { "../x", "/tmp/x", "a/../../x", ".x.part", "..", "a//b" };
	static const struct {
		uint64_t offset, size;
	} ranges[] = { { SERVICE_AREA_MAX, 1 }, { UINT64_MAX, 1 }, { 1, UINT64_MAX }, { 1, SERVICE_AREA_MAX } };
	struct service_message request = { .type = SERVICE_AREA, .length = 1 }, answer;
	struct service_file file;
	struct area area;
	uint32_t frames;

	(void)argument;
	area_open(&area);
	check_number(send_request(&area.world, &request, &answer), -EBUSY);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		area_add(&area, "file", ranges[i].offset, ranges[i].size);
		check_number(area_send(&area, SERVICE_PUT_SMALL, SERVICE_UNSYNCED, &answer), -EINVAL);
	}
	check_file(&area, "file", NULL);
	for (unsigned put = 0; put < 2; put++) {
		size_t at = 0;

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			area_add(&area, names[i], 0, 1);
		check_number(area_send(&area, put ? SERVICE_PUT_SMALL : SERVICE_GET_SMALL, SERVICE_FOLDERS, &answer),
			     0);
		check_number(answer.done, sizeof(names) / sizeof(names[0]));
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			check(service_file_next(&answer, &at, &file));
			check_text(file.name, names[i]);
			check_number(file.status, put ? -EINVAL : -ENOENT);
		}
	}
	/* Blocks of memory, and handles that are no area. */
	area_add(&area, "frames", 0, 1);
	check_number(area_send(&area, SERVICE_PUT_SMALL, 0, &answer), 0);
	check(service_file_next(&answer, &(size_t){ 0 }, &file));
	check_number(file.status, -ENOTSUP);
	frames = create(&area.world, "frames", 1);
	area_add(&area, "file", 0, 1);
	area.handle = frames;
	check_number(area_send(&area, SERVICE_PUT_SMALL, 0, &answer), -EINVAL);
	check_server_answers(&area.world);
	area_close(&area);
}

/* An answer ends at the first file that cannot travel through the area. The server does not open those behind it. */
static void large_among_small_files(void *argument)
{
	struct service_message answer;
	struct service_file file;
	struct area area;
	size_t at = 0;

	(void)argument;
	area_open(&area);
	area_add(&area, "missing", 0, 0);
	area_add(&area, "frames", 0, 0);
	area_add(&area, "missing", 0, 0);
	check_number(area_send(&area, SERVICE_GET_SMALL, 0, &answer), 0);
	check_number(answer.done, 2);
	check(service_file_next(&answer, &at, &file));
	check_number(file.status, -ENOENT);
	check(service_file_next(&answer, &at, &file));
	check_number(file.status, -ENOTSUP);
	check(!service_file_next(&answer, &at, &file));
	area_close(&area);
}

/* A client of an earlier release asks for 256 KiB, and gets as much: it takes no larger area. */
static void area_of_an_earlier_client(void *argument)
{
	struct service_message request = { .type = SERVICE_AREA, .length = 256u << 10 }, answer;
	struct world world;

	(void)argument;
	world_open(&world);
	check_number(send_request(&world, &request, &answer), 0);
	check_number(answer.length, 256u << 10);
	check_number(service_small_max(answer.length), 64u << 10);
	world_close(&world);
}

/* The longest request: all its files fail, and the texts of their errors do not fit into one answer. */
static void many_small_failures(void *argument)
{
	struct service_message answer;
	struct service_file file;
	struct area area;
	unsigned count = 0;
	size_t at = 0;

	(void)argument;
	area_open(&area);
	memset(&file, 0, sizeof(file));
	strcpy(file.name, "n/o");
	while (service_file_put(&file, area.files, sizeof(area.files), &area.length))
		count++;
	check_number(area_send(&area, SERVICE_PUT_SMALL, 0, &answer), 0);
	check(answer.done > 0 && answer.done <= count);
	for (uint64_t i = 0; i < answer.done; i++) {
		check(service_file_next(&answer, &at, &file));
		check_number(file.status, -ENOENT);
	}
	check(!service_file_next(&answer, &at, &file));
	area_close(&area);
}

/* Clients that disconnect while the server stores their files. */
static void disconnects_with_small_files(void *argument)
{
	struct service_message request = { .type = SERVICE_PUT_SMALL, .request = 9 };
	uint8_t buffer[SERVICE_REQUEST_MAX];
	char name[64], path[192];
	struct area area;

	(void)argument;
	area_open(&area);
	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "file%u", i);
		area_add(&area, name, 0, 3);
	}
	request.handle = area.handle;
	request.files = area.files;
	request.files_length = area.length;
	send_bytes(&area.world, buffer, (size_t)service_encode(&request, buffer, sizeof(buffer)));
	pl_remote_release(area.remote);
	client_close(&area.world);
	client_open(&area.world);
	check_server_answers(&area.world);
	/* The server stores all or, if the end of the connection came first, none. */
	for (unsigned i = 0; i < 50; i++) {
		snprintf(path, sizeof(path), "%s/file%u", area.world.folder, i);
		for (unsigned wait = 0; i == 0 && access(path, F_OK) && wait < 100; wait++)
			sleep_ms(10);
	}
	client_close(&area.world);
	check(kill(area.world.server, SIGTERM) == 0);
	check_number(process_wait(area.world.server), 0);
	for (unsigned i = 0; i < 50; i++) {
		snprintf(path, sizeof(path), "%s/file%u", area.world.folder, i);
		unlink(path);
	}
	/* No partial file is left. */
	check(rmdir(area.world.folder) == 0);
}

/* Files that do not fit on the disk, data that lies, and ranges of what is no file. */
static void sparse_requests(void *argument)
{
	struct service_message request = { .type = SERVICE_CREATE, .size = 1ull << 60, .length = 1ull << 60 }, answer;
	struct statvfs space;
	struct world world;
	uint32_t handle;

	(void)argument;
	world_open(&world);
	strcpy(request.name, "huge");
	check_number(send_request(&world, &request, &answer), -ENOSPC);
	request.flags = SERVICE_SPARSE;
	check_number(send_request(&world, &request, &answer), -ENOSPC);
	request.length = UINT64_MAX;
	check_number(send_request(&world, &request, &answer), -ENOSPC);
	/* A length that file systems allow, with more data than fits. */
	check_number(statvfs(world.folder, &space), 0);
	request.length = space.f_bavail * space.f_frsize + (16ull << 30);
	request.size = request.length + LARGE;
	check_number(send_request(&world, &request, &answer), -ENOSPC);
	/* A file cannot be larger than the file system allows, whatever its data is. */
	request.size = INT64_MAX;
	request.length = 0;
	check(send_request(&world, &request, &answer) < 0);
	request.size = 1 << 20;
	check_number(send_request(&world, &request, &answer), 0);
	handle = answer.handle;
	request = (struct service_message){ .type = SERVICE_DATA, .handle = handle };
	check_number(send_request(&world, &request, &answer), -EINVAL);
	request.handle = 63;
	check_number(send_request(&world, &request, &answer), -EINVAL);
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = handle, .flags = SERVICE_DISCARD };
	check_number(send_request(&world, &request, &answer), 0);
	check_server_answers(&world);
	world_close(&world);
}

static int delete_name(struct world *world, const char *name)
{
	struct service_message request = { .type = SERVICE_DELETE, .flags = SERVICE_UNSYNCED }, answer;
	int status;

	strcpy(request.name, name);
	status = send_request(world, &request, &answer);
	check_number(answer.size, 0);
	return status;
}

static void deletions_outside_the_folder(void *argument)
{
	static const char *const names[] = { "../x", "/tmp/x", "a/../../x", "..", ".", "", "a//b", "a/", ".x.part", "no/x" };
	struct world world = { .deleting = true };

	(void)argument;
	server_start(&world);
	client_open(&world);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check_one_of(delete_name(&world, names[i]), -EINVAL, -ENOENT);
	/* A block of memory is no upload. */
	check_number(delete_name(&world, "frames"), -ENOENT);
	check_server_answers(&world);
	world_close(&world);
}

/* The server returns the bytes of a deleted file before it sums the files again. */
static void deletions_return_bytes(void *argument)
{
	struct service_message request = { .type = SERVICE_CREATE, .size = 90000, .name = "other" }, answer;
	struct world world = { .deleting = true };
	uint32_t handle;

	(void)argument;
	server_start(&world);
	client_open(&world);
	handle = create(&world, "part", 90000);
	check_number(send_request(&world, &request, &answer), -EDQUOT);
	check_number(delete_name(&world, "part"), -EBUSY);
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = handle };
	check_number(send_request(&world, &request, &answer), 0);
	request = (struct service_message){ .type = SERVICE_DELETE, .name = "part" };
	check_number(send_request(&world, &request, &answer), 0);
	check(answer.size >= 90000);
	handle = create(&world, "other", 90000);
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = handle, .flags = SERVICE_DISCARD };
	check_number(send_request(&world, &request, &answer), 0);
	world_close(&world);
}

/* The bytes of a request to delete, and of its answer. */
static void deletion_messages(void *argument)
{
	static const uint8_t request_bytes[] = "PVS1\2\0\15\0\7\0\0\0\0\0\0\0\2\0\0\0\3\0a/b";
	static const uint8_t answer_bytes[] = "PVS1\2\0\15\200\7\0\0\0\0\0\0\0\0\20\0\0\0\0\0";
	struct service_message request = {
		.type = SERVICE_DELETE, .request = 7, .flags = SERVICE_UNSYNCED, .name = "a/b"
	};
	struct service_message answer = { .type = SERVICE_DELETE, .answer = true, .request = 7, .size = 4096 };
	uint8_t bytes[SERVICE_REQUEST_MAX];

	(void)argument;
	check_number(service_encode(&request, bytes, sizeof(bytes)), 25);
	check(memcmp(bytes, request_bytes, 25) == 0);
	check_number(service_encode(&answer, bytes, sizeof(bytes)), 24);
	check(memcmp(bytes, answer_bytes, 24) == 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "malformed requests are answered with an error", malformed_requests, NULL, 60 },
		{ "an oversized message is answered with an error", oversized_message, NULL, 30 },
		{ "bad handles and ranges are refused", bad_handles_and_ranges, NULL, 30 },
		{ "extents of a partial file are recorded", extents, NULL, 30 },
		{ "names outside the folder are refused", names_outside_the_folder, NULL, 30 },
		{ "a client can open at most 64 handles", too_many_handles, NULL, 30 },
		{ "an idle client makes room for another", idle_client, NULL, 30 },
		{ "a stopped server disconnects an idle client", stopped_server, NULL, 30 },
		{ "a closed handle gives no access", a_closed_handle_gives_no_access, NULL, 30 },
		{ "small files are stored together", small_files, NULL, 30 },
		{ "small files outside the folder or area are refused", small_files_outside, NULL, 30 },
		{ "an answer ends at a file that is not small", large_among_small_files, NULL, 30 },
		{ "an earlier client gets the area that it asks for", area_of_an_earlier_client, NULL, 30 },
		{ "many small files fail together", many_small_failures, NULL, 30 },
		{ "clients disconnect while small files are stored", disconnects_with_small_files, NULL, 30 },
		{ "deletions outside the folder are refused", deletions_outside_the_folder, NULL, 30 },
		{ "deletions return the bytes of quotas", deletions_return_bytes, NULL, 30 },
		{ "requests to delete have the documented bytes", deletion_messages, NULL, 5 },
		{ "sparse files and lies about them", sparse_requests, NULL, 30 },
		{ "reports of progress are counted", progress, NULL, 30 },
		{ "bytes are counted by route", routes, NULL, 30 },
		{ "messages wait for the end of a hash", messages_during_a_hash, NULL, 30 },
		{ "clients leave while their file is stored", clients_that_leave_a_commit, NULL, 60 },
		{ "disconnected clients leave only unlocked partial files", clients_that_disconnect, NULL, 60 },
		{ "notifications take no memory", notifications, NULL, 60 },
	};

	if (!getenv("PEERLANE")) {
		puts("skipped: PEERLANE does not name the command");
		return 77;
	}
	return cases_run("service", cases, sizeof(cases) / sizeof(cases[0]));
}
