/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the seeds of the fuzz targets: make_corpus FOLDER.  Run it again after a change of the wire format. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "context/step.h"
#include "fabric/local/record.h"
#include "stream/ring.h"
#include "wire/stream_message.h"
#include "wire/wire.h"

/* The command is not part of the library, so its source is included. */
#include "cmd/transfer/service.c"
#include "cmd/transfer/service_client.c"

static const char *root;

static void save(const char *target, const char *name, const void *data, size_t length)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, target);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s", root, target, name);
	file = fopen(path, "wb");
	if (!file || fwrite(data, 1, length, file) != length || fclose(file)) {
		perror(path);
		exit(1);
	}
}

static void save_control(const char *name, const struct pl_control *message)
{
	uint8_t buffer[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];
	int length = pl_control_encode(message, buffer, sizeof(buffer));

	if (length < 0) {
		fprintf(stderr, "%s: cannot be encoded\n", name);
		exit(1);
	}
	save("control", name, buffer, (size_t)length);
}

static void rail_messages(void)
{
	struct pl_control message = { .type = PL_CONTROL_RAIL };

	message.rail = (struct pl_rail_message){
		.step = PL_RAIL_CONNECT,
		.index = 1,
		.generation = 7,
		.count = 2,
		.ports = { 1, 0 },
		.renewals = 1,
		.qp_number = 0x123456,
		.psn = 0xabcdef,
		.lid = 3,
		.gid = "identifier",
		.mtu = 5,
		.reads = 16,
		.global = true,
	};
	save_control("rail-connect", &message);
	message.rail.step = PL_RAIL_ACCEPT;
	message.rail.count = 0;
	memset(message.rail.ports, 0, sizeof(message.rail.ports));
	save_control("rail-accept", &message);
	message.rail.ece_vendor = 0x15b3;
	message.rail.ece_options = 0x30000002;
	save_control("rail-accept-options", &message);
	message.rail = (struct pl_rail_message){ .step = PL_RAIL_DOWN, .index = 1, .generation = 7 };
	save_control("rail-down", &message);
}

static void control(void)
{
	struct pl_control message = { .type = PL_CONTROL_HELLO };

	message.hello = (struct pl_hello){
		.version_min = PL_PROTOCOL_VERSION,
		.version_max = PL_PROTOCOL_VERSION,
		.boot_id = "boot",
		.context_id = "context",
		.lanes = 4,
		.eager_max = 8192,
		.window = 64,
		.software = "peerlane 0.1.0",
		.program = "peerlane serve",
		.fabric_count = 2,
		.fabrics = { { "tcp", 6, "blob-t" }, { .name = "local" } },
	};
	save_control("hello", &message);
	message = (struct pl_control){ .type = PL_CONTROL_REJECT };
	message.reject = (struct pl_reject){ PL_WIRE_VERSION, "PROTOCOL-VERSION", "no common version" };
	save_control("reject", &message);
	message = (struct pl_control){ .type = PL_CONTROL_IMPORT };
	message.import = (struct pl_import){ .request = 1, .grant = 2, .secret = "secret" };
	save_control("import", &message);
	message = (struct pl_control){ .type = PL_CONTROL_IMPORTED };
	message.imported = (struct pl_imported){
		.request = 1, .length = 4096, .rights = PL_ACCESS_ALL, .key_length = 8, .key = "the key"
	};
	save_control("imported", &message);
	message.imported = (struct pl_imported){ .request = 1, .status = PL_WIRE_EXPIRED };
	save_control("imported-failed", &message);
	message = (struct pl_control){ .type = PL_CONTROL_RELEASE };
	message.release = (struct pl_release){ .key_length = 8, .key = "the key" };
	save_control("release", &message);
	message = (struct pl_control){ .type = PL_CONTROL_LANES, .lanes = 4 };
	save_control("lanes", &message);
	message = (struct pl_control){ .type = PL_CONTROL_BYE };
	save_control("bye", &message);
	message = (struct pl_control){ .type = PL_CONTROL_MESSAGE };
	message.message = (struct pl_control_message){ .tag = 0x53, .length = 4, .payload = (const uint8_t *)"text" };
	save_control("message", &message);
	rail_messages();
}

static void frames(void)
{
	static const struct pl_frame all[] = {
		{ .type = PL_FRAME_WRITE, .ack = 1, .length = 8, .key = 2, .offset = 3 },
		{ .type = PL_FRAME_READ, .length = PL_FRAME_BULK_MAX, .cookie = 4, .key = 2 },
		{ .type = PL_FRAME_DATA, .length = PL_FRAME_BULK_MAX, .cookie = 4 },
		{ .type = PL_FRAME_ATOMIC, .flags = PL_ATOMIC_SWAP, .length = 16, .cookie = 4, .key = 2 },
		{ .type = PL_FRAME_VALUE, .cookie = 4, .offset = UINT64_MAX },
		{ .type = PL_FRAME_FAIL, .flags = PL_FRAME_READ, .cookie = 4, .offset = PL_WIRE_RANGE },
		{ .type = PL_FRAME_EAGER, .length = PL_FRAME_SMALL_MAX, .key = 5 },
		{ .type = PL_FRAME_RENDEZVOUS, .length = 64, .cookie = 6, .key = 5, .offset = 1 << 30 },
		{ .type = PL_FRAME_CREDIT, .ack = UINT32_MAX, .offset = 7 },
	};
	uint8_t stream[PL_ARRAY_SIZE(all) * PL_FRAME_HEADER];

	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++)
		pl_frame_encode(&all[i], stream + i * PL_FRAME_HEADER);
	save("frame", "write", stream, PL_FRAME_HEADER);
	save("frame", "stream", stream, sizeof(stream));
}

static void local_copies(void)
{
	struct local_copy_request request = { .count = 2 };
	uint8_t buffer[PL_FRAME_SMALL_MAX];

	for (unsigned i = 0; i < LOCAL_COPY_RANGES; i++)
		request.ranges[i] = (struct local_copy_range){ 0x1234567800000003, i * 65536, i * 4096, 4096 };
	save("local", "copy", buffer, local_copy_request_encode(&request, buffer));
	request.key_length = LOCAL_KEY;
	request.count = LOCAL_COPY_RANGES;
	save("local", "copy-key", buffer, local_copy_request_encode(&request, buffer));
}

static void local(void)
{
	struct local_record record = { .type = LOCAL_RECORD_MEMORY, .key = 0x1234567800000003, .size = 8192 };
	struct local_invitation invitation = { .name = "sixteen letters", .process_namespace = 1, .user_namespace = 2 };
	struct local_key key = { .id = 0x1234567800000003,
				 .paths = LOCAL_PATH_MAPPED | LOCAL_PATH_PROCESS,
				 .gate = 3,
				 .number = 0x12345679,
				 .address = 0x7f0012345000,
				 .expires = 17 };
	uint8_t buffer[PL_KEY_BLOB_MAX];

	local_record_encode(&record, buffer);
	save("local", "memory", buffer, LOCAL_RECORD);
	record = (struct local_record){ .type = LOCAL_RECORD_GATES, .size = 262144 };
	local_record_encode(&record, buffer);
	save("local", "gates", buffer, LOCAL_RECORD);
	record =
		(struct local_record){ .type = LOCAL_RECORD_FDS, .fds = 3, .key = 0x1234567800000003, .size = 2 << 20 };
	local_record_encode(&record, buffer);
	save("local", "fds", buffer, LOCAL_RECORD);
	local_invitation_encode(&invitation, buffer);
	save("local", "invitation", buffer, LOCAL_INVITATION);
	save("local", "key", buffer, (size_t)local_key_encode(&key, buffer));
	key.paths = LOCAL_PATH_STAGED | LOCAL_PATH_DEVICE;
	key.ipc_handle_length = sizeof(key.ipc_handle);
	memset(key.ipc_handle, 0x5a, sizeof(key.ipc_handle));
	save("local", "key-device", buffer, (size_t)local_key_encode(&key, buffer));
	local_copies();
}

static void lanes(void)
{
	struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION, .lane = 3, .peer_index = 9, .nonce = "nonce" };
	const struct pl_lane_challenge challenge = { .nonce = "nonce", .tag = "tag" };
	uint8_t buffer[PL_LANE_HELLO + 1] = { 0 };

	pl_lane_hello_encode(&hello, buffer);
	save("lane", "hello", buffer, PL_LANE_HELLO);
	pl_lane_challenge_encode(&challenge, buffer);
	save("lane", "challenge", buffer, PL_LANE_CHALLENGE + 1);
	pl_lane_welcome_encode(PL_WIRE_OK, buffer);
	save("lane", "welcome", buffer, PL_LANE_WELCOME);
	pl_lane_welcome_encode(PL_WIRE_BUSY, buffer);
	save("lane", "refused", buffer, PL_LANE_WELCOME);
}

static void blobs(void)
{
	uint8_t token[PL_TOKEN_SIZE] = "token", buffer[PL_REGIONS_BLOB_SIZE(3)];
	struct pl_blob_writer writer;

	pl_blob_begin(&writer, buffer, 3);
	for (unsigned i = 0; i < 3; i++)
		pl_blob_add(&writer, i << 20, token);
	save("blob", "good", buffer, pl_blob_end(&writer));
	save("blob", "short", buffer, sizeof(buffer) - 1);
	buffer[8]++;
	save("blob", "count", buffer, sizeof(buffer));
}

/* Steps of fuzz_record.c: type, length, content. */
static void records(void)
{
	static const uint8_t data[] = "\27\5\0hello\27\3\0abc\27\1\0x\26\5\0\30\0\0\1\0\376\0\0\27\2\0yz\25\2\0\1";
	static const uint8_t raw[] = "\27\3\0abc\377\5\0\27\3\3\0\40\27\1\0x";

	save("record", "data", data, sizeof(data));
	save("record", "raw", raw, sizeof(raw));
}

static void trust_files(void)
{
	static const char print[] = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
	char text[1000];

	snprintf(text, sizeof(text),
		 "# list\n%s read,write names=a/*,b quota=2G clients=4 until=20301231 # x\nrevoked %s\n"
		 "name:*.example read\nspiffe://x/*/b atomic\n* read\n",
		 print, print);
	save("trust", "authorized", text, strlen(text));
	snprintf(text, sizeof(text), "[gpu1]:19875,[10.0.0.*]:* %s comment\n@revoked * %s\n", print, print);
	save("trust", "known_hosts", text, strlen(text));
}

static void tokens(void)
{
	struct pl_token token = {
		.rights = PL_ACCESS_ALL, .context_id = "context", .grant = 1, .secret = "secret", .length = 4096
	};
	uint8_t buffer[PL_TOKEN_SIZE];

	pl_token_encode(&token, buffer);
	save("token", "good", buffer, sizeof(buffer));
	save("token", "short", buffer, sizeof(buffer) - 1);
	buffer[20] ^= 1;
	save("token", "damaged", buffer, sizeof(buffer));
	token.kind = PL_TOKEN_STREAM;
	token.rights = 0;
	token.length = 0;
	pl_token_encode(&token, buffer);
	save("token", "stream", buffer, sizeof(buffer));
}

static void save_stream(const char *name, const struct pl_stream_message *message)
{
	uint8_t buffer[8192];
	int length = pl_stream_message_encode(message, buffer, sizeof(buffer));

	if (length < 0) {
		fprintf(stderr, "%s: cannot be encoded\n", name);
		exit(1);
	}
	save("stream", name, buffer, (size_t)length);
}

static void save_push_messages(const uint8_t *frame, size_t length)
{
	struct pl_stream_message message = { .type = PL_STREAM_SLOTS, .number = 1 };

	message.slots.count = 4;
	message.slots.stride = 8192;
	save_stream("slots", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_CREDIT, .number = 1 };
	message.credit.accounts = (struct pl_accounts){ .next = 2, .delivered = 1, .pending = 1 };
	message.credit.count = 2;
	message.credit.slots[1] = 3;
	save_stream("credit", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_PUSHED, .number = 1 };
	message.pushed.next = message.pushed.published = 6;
	message.pushed.state = PL_STREAM_LIVE;
	message.pushed.slot = 3;
	message.pushed.frame = frame;
	message.pushed.frame_length = length;
	save_stream("pushed", &message);
}

static void save_token_messages(void)
{
	const struct pl_stream_token token = { true, 7, "secret" };
	struct pl_stream_message message = { .type = PL_STREAM_LIST, .number = 1, .token = token };

	save_stream("list-token", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE, .number = 1, .token = token };
	strcpy(message.subscribe.name, "cam0");
	message.subscribe.every = 1;
	save_stream("subscribe-token", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_LISTED, .number = 1 };
	message.listed.status = PL_SUBSCRIBE_WRONG_TOKEN;
	save_stream("listed-refused", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_CLOSED, .number = 1, .closed = PL_CLOSED_REVOKED };
	save_stream("closed-revoked", &message);
}

static void streams(void)
{
	static const uint8_t frames[128 + 3] = { 6, [8] = 1, [16] = 10, [40] = 3 };
	struct pl_stream_message message = { .type = PL_STREAM_LIST, .number = 1, .from = 2 };
	struct pl_stream_entry entry = { .name = "cam0", .slots = 4, .slot_bytes = 5000, .state = PL_STREAM_LIVE };
	struct pl_ring_header header = { .geometry = { .slots = 4, .slot_bytes = 5000 }, .name = "cam0" };
	uint8_t page[PL_RING_HEADER];

	save_stream("list", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_LISTED, .number = 1 };
	message.listed.total = message.listed.count = 1;
	message.listed.entries[0] = entry;
	save_stream("listed", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE, .number = 1 };
	strcpy(message.subscribe.name, "cam0");
	message.subscribe.every = 1;
	save_stream("subscribe", &message);
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	message.subscribe.in_place = true;
	save_stream("subscribe-in-place", &message);
	message.subscribe.in_place = false;
	message.subscribe.push = true;
	save_stream("subscribe-push", &message);
	message.subscribe.prepare = true;
	save_stream("subscribe-prepare", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBED, .number = 1 };
	message.subscribed.entry = entry;
	save_stream("subscribed", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 1 };
	message.taken.accounts = (struct pl_accounts){ .next = 2, .delivered = 1, .pending = 1 };
	save_stream("taken", &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_ANNOUNCE, .number = 1 };
	message.announce.claimed = message.announce.published = 6;
	message.announce.state = PL_STREAM_LIVE;
	message.announce.count = 1;
	message.announce.frames = frames;
	message.announce.frames_length = sizeof(frames);
	save_stream("announce", &message);
	save_push_messages(frames, sizeof(frames));
	save_token_messages();
	save("stream", "descriptor", frames, sizeof(frames));
	pl_ring_geometry_init(&header.geometry);
	pl_ring_header_encode(&header, page);
	save("stream", "header", page, sizeof(page));
}

static void write_address_seeds(void)
{
	static const struct {
		const char *name, *text;
	} all[] = {
		{ "name", "gpu-1.example.org:7471" },
		{ "v4", "127.0.0.1:0" },
		{ "v6", "[::1]:65535" },
		{ "scope", "[fe80::1%eth0]:7471" },
		{ "any", ":7471" },
		{ "bare", "gpu1" },
		{ "bare-v6", "::1" },
		{ "bad-port", "gpu1:65536" },
	};

	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++)
		save("address", all[i].name, all[i].text, strlen(all[i].text));
}

static void save_service(const char *name, const struct service_message *message)
{
	uint8_t buffer[SERVICE_ANSWER_MAX];
	int length = service_encode(message, buffer, sizeof(buffer));

	if (length < 0) {
		fprintf(stderr, "%s: cannot be encoded\n", name);
		exit(1);
	}
	save("service", name, buffer, (size_t)length);
}

static void service(void)
{
	static const struct {
		const char *name;
		struct service_message message;
	} all[] = {
		{ "list", { .type = SERVICE_LIST, .request = 1 } },
		{ "list-after", { .type = SERVICE_LIST, .request = 1, .name = "model.bin" } },
		{ "open", { .type = SERVICE_OPEN, .request = 2, .name = "sub/model.bin" } },
		{ "opened",
		  { .type = SERVICE_OPEN,
		    .answer = true,
		    .request = 2,
		    .handle = 3,
		    .size = 4096,
		    .modified = 5,
		    .identity = 6,
		    .token = "token",
		    .token_length = PL_TOKEN_SIZE } },
		{ "create",
		  { .type = SERVICE_CREATE, .request = 3, .size = 4096, .modified = 5, .identity = 6, .name = "up" } },
		{ "created",
		  { .type = SERVICE_CREATE,
		    .answer = true,
		    .request = 3,
		    .handle = 1,
		    .done = 4096,
		    .token = "t",
		    .token_length = PL_TOKEN_SIZE } },
		{ "extent", { .type = SERVICE_EXTENT, .request = 4, .done = 8192 } },
		{ "hash", { .type = SERVICE_HASH, .request = 5, .offset = 8, .length = 16 } },
		{ "hashed", { .type = SERVICE_HASH, .answer = true, .request = 5, .hash = { 1, 2 } } },
		{ "commit", { .type = SERVICE_COMMIT, .request = 6, .handle = 1 } },
		{ "close", { .type = SERVICE_CLOSE, .request = 7, .handle = 1, .flags = SERVICE_DISCARD } },
		{ "closed", { .type = SERVICE_CLOSE, .answer = true, .request = 7, .size = 1 } },
		{ "delete", { .type = SERVICE_DELETE, .request = 11, .flags = SERVICE_UNSYNCED, .name = "sub/up" } },
		{ "deleted", { .type = SERVICE_DELETE, .answer = true, .request = 11, .size = 4096 } },
		{ "watch", { .type = SERVICE_WATCH, .request = 12, .offset = SERVICE_WATCH_ROUTES | 9 } },
		{ "failed",
		  { .type = SERVICE_OPEN,
		    .answer = true,
		    .request = 8,
		    .status = -ENOENT,
		    .error = { .id = "NOT-PUBLISHED", .object = "name", .message = "nothing", .hint = "hint" } } },
	};
	struct service_message listed = { .type = SERVICE_LIST, .answer = true, .request = 1, .more = 1 };
	static const struct service_entry entries[] = {
		{ .kind = SERVICE_MEMORY, .size = 4096, .name = "frames" },
		{ .kind = SERVICE_FILE, .size = 1 << 20, .modified = 1700000000000000000, .name = "sub/model.bin" },
	};
	uint8_t buffer[SERVICE_ENTRIES_MAX];

	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++)
		save_service(all[i].name, &all[i].message);
	for (size_t i = 0; i < PL_ARRAY_SIZE(entries); i++)
		service_entry_put(&entries[i], buffer, sizeof(buffer), &listed.entries_length);
	listed.entries = buffer;
	save_service("listed", &listed);
}

static void service_routes(void)
{
	struct service_message extent = { .type = SERVICE_EXTENT, .handle = SERVICE_HANDLE_STAGED, .done = 8192 },
			       watched = { .type = SERVICE_WATCH, .answer = true, .more = SERVICE_MORE_ROUTES };
	struct service_client client = { .number = 9, .address = "a:1", .routes = true, .direct = 8 };
	uint8_t clients[512];

	extent.has_staged = true;
	extent.staged = 4096;
	save_service("staged", &extent);
	watched.clients = clients;
	service_client_put(&client, clients, sizeof(clients), &watched.clients_length);
	save_service("watched-routes", &watched);
	watched.more |= SERVICE_MORE_SUMS;
	watched.direct = watched.staged = 8;
	save_service("watched-sums", &watched);
}

static void service_clients(void)
{
	struct service_message watched = { .type = SERVICE_WATCH, .answer = true, .request = 1, .size = 8, .done = 2 };
	struct service_client client = {
		.number = 9, .read = 8, .open = 1, .address = "a:1", .fabric = "tcp", .name = "n"
	};
	uint8_t clients[512];

	service_client_put(&client, clients, sizeof(clients), &watched.clients_length);
	client.number = 1;
	service_client_put(&client, clients, sizeof(clients), &watched.clients_length);
	watched.clients = clients;
	save_service("watched", &watched);
}

static void small_files(void)
{
	static const struct service_file all[] = {
		{ .size = 3, .modified = 5, .identity = 6, .mode = 0640, .hash = { 1, 2 }, .name = "sub/one" },
		{ .size = 7, .offset = 3, .name = "two" },
	};
	struct service_message request = {
		.type = SERVICE_PUT_SMALL, .request = 9, .handle = 1, .flags = SERVICE_HASHED
	};
	struct service_message answer = { .type = SERVICE_GET_SMALL, .answer = true, .request = 9, .done = 3 };
	struct service_message area = { .type = SERVICE_AREA, .request = 8, .length = SERVICE_AREA_MAX };
	struct service_file failed = { .status = -ENOENT,
				       .error = { .id = "NOT-PUBLISHED", .hint = "hint" },
				       .name = "three" };
	uint8_t files[SERVICE_ENTRIES_MAX];

	save_service("area", &area);
	area.answer = true;
	save_service("area-opened", &area);
	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++)
		service_file_put(&all[i], files, sizeof(files), &request.files_length);
	request.files = answer.files = files;
	save_service("put-small", &request);
	answer.files_length = request.files_length;
	service_file_put(&failed, files, sizeof(files), &answer.files_length);
	save_service("got-small", &answer);
}

static void data_ranges(void)
{
	static const struct service_range all[] = { { 0, 4096 }, { 1 << 20, 100 }, { 1ull << 40, 1ull << 20 } };
	struct service_message message = { .type = SERVICE_DATA, .request = 10, .handle = 3, .offset = 4096 };
	uint8_t ranges[SERVICE_ENTRIES_MAX];

	save_service("data", &message);
	message.answer = true;
	message.more = 1;
	for (size_t i = 0; i < PL_ARRAY_SIZE(all); i++)
		service_range_put(&all[i], ranges, sizeof(ranges), &message.ranges_length);
	message.ranges = ranges;
	save_service("data-ranges", &message);
}

/* Saves steps for each kind of connection: from either end, in the clear and encrypted. */
static void save_steps(const char *name, const struct fuzz_step *steps, size_t count)
{
	static const uint8_t connections[] = { 0, FUZZ_VICTIM_CONNECTS | FUZZ_KEYED, FUZZ_ENCRYPTED | FUZZ_KEYED,
					       FUZZ_NEWEST };
	uint8_t bytes[STEP_HEAD + 16 * STEP_SIZE] = { 0, 1 };
	char full[64];

	for (size_t i = 0; i < PL_ARRAY_SIZE(connections); i++) {
		bytes[0] = connections[i];
		memcpy(bytes + STEP_HEAD, steps, count * STEP_SIZE);
		snprintf(full, sizeof(full), "%s-%u", name, connections[i]);
		save("context", full, bytes, STEP_HEAD + count * STEP_SIZE);
	}
}

#define SAVE_STEPS(name, ...) \
	save_steps(name, (const struct fuzz_step[]){ __VA_ARGS__ }, \
		   sizeof((const struct fuzz_step[]){ __VA_ARGS__ }) / sizeof(struct fuzz_step))
#define FRAME(type, ...) \
	{ \
		.op = STEP_FRAME, .kind = PL_FRAME_##type, __VA_ARGS__ \
	}
#define CONTROL(type, ...) \
	{ \
		.op = STEP_CONTROL, .kind = PL_CONTROL_##type, __VA_ARGS__ \
	}
#define CALL(call, ...) \
	{ \
		.op = STEP_PROGRAM, .kind = CALL_##call, __VA_ARGS__ \
	}
#define STREAM(type, ...) \
	{ \
		.op = STEP_STREAM, .kind = PL_STREAM_##type, __VA_ARGS__ \
	}
#define REPEAT(count) \
	{ \
		.op = STEP_REPEAT, .value = {(count) % 256, (count) / 256 } \
	}

static void steps_of_peer(void)
{
	const struct fuzz_step answer = { .op = STEP_ANSWER, .flags = 8 };

	SAVE_STEPS("access", CONTROL(IMPORT), CONTROL(IMPORT, .key = 1), FRAME(READ, .length = 2, .cookie = 4),
		   FRAME(WRITE, .key = 1, .length = 5), FRAME(READ, .length = 18, .offset = 2),
		   FRAME(WRITE, .key = 1, .offset = 7, .length = 2), FRAME(ATOMIC, .flags = 1, .length = 1),
		   CONTROL(RELEASE, .length = 1), FRAME(READ, .length = 2));
	SAVE_STEPS("transfers", CALL(IMPORT), { .op = STEP_ANSWER, .flags = 1, .offset = 1, .length = 1, .key = 1 },
		   CALL(READ, .length = 5, .value = { 1 }), answer, CALL(WRITE, .length = 9, .value = { 1 }),
		   CALL(ATOMIC, .flags = 1), answer, CALL(VECTOR, .length = 6, .value = { 1 }), answer, answer, answer,
		   CALL(RELEASE), CALL(QUERY));
	SAVE_STEPS("long-answer", CALL(IMPORT), { .op = STEP_ANSWER, .flags = 1, .offset = 1, .length = 1, .key = 1 },
		   CALL(READ, .length = 5, .value = { 1 }), { .op = STEP_ANSWER, .flags = 6 });
	SAVE_STEPS("messages", CALL(RECEIVE, .length = 8, .offset = 1), FRAME(EAGER, .length = 4),
		   FRAME(NOTIFY, .length = 1), CALL(RECEIVE, .length = 9, .offset = 1),
		   FRAME(RENDEZVOUS, .length = 1, .offset = 8, .cookie = 4), answer, CALL(SEND, .length = 9),
		   FRAME(READ, .length = 6, .cookie = 4), answer, CALL(SEND_COPY, .length = 3),
		   CALL(NOTIFY, .length = 2), CONTROL(MESSAGE, .length = 4));
	SAVE_STEPS("short-key", CALL(RECEIVE, .length = 9, .offset = 1), FRAME(RENDEZVOUS, .offset = 8, .cookie = 4),
		   { .op = STEP_ANSWER, .flags = 7 });
	SAVE_STEPS("finish", CALL(SEND, .length = 9), CALL(SEND, .length = 9), FRAME(READ, .length = 6, .cookie = 4),
		   { .op = STEP_LANE, .channel = 1, .flags = 1 },
		   FRAME(FINISH, .channel = 1, .cookie = 2, .value = { 1 }), FRAME(FINISH, .cookie = 2, .value = { 2 }),
		   FRAME(READ, .length = 6, .cookie = 4), CALL(CLOSE));
	SAVE_STEPS("revocation", CALL(SHARE, .flags = 7), CONTROL(IMPORT, .key = 2), FRAME(WRITE, .length = 5),
		   FRAME(READ, .length = 18), CALL(REVOKE, .key = 2), FRAME(READ, .length = 18),
		   FRAME(WRITE, .length = 5), CALL(SHARE, .flags = 15), CONTROL(IMPORT, .key = 2),
		   { .op = STEP_ADVANCE, .kind = 1 }, FRAME(READ, .length = 18), CALL(DEREGISTER),
		   FRAME(READ, .length = 18));
}

static void steps_of_streams(void)
{
	const struct fuzz_step loan = CALL(STREAM),
			       publish = CALL(STREAM, .flags = 2, .length = 9, .value = { 200, 1 });

	SAVE_STEPS("stream", loan, publish, STREAM(LIST), STREAM(SUBSCRIBE, .flags = 9), CONTROL(IMPORT, .key = 198),
		   CONTROL(IMPORT, .key = 199), FRAME(READ, .length = 2), FRAME(READ, .key = 1, .length = 6), loan,
		   publish, loan, CALL(STREAM, .flags = 3), CALL(STREAM, .flags = 4, .value = { 100 }),
		   STREAM(TAKEN, .cookie = 1, .length = 3, .value = { 2 }), FRAME(WRITE, .key = 1, .length = 2),
		   STREAM(UNSUBSCRIBE, .cookie = 1, .length = 3, .value = { 2 }));
	SAVE_STEPS("stream-held", STREAM(SUBSCRIBE, .flags = 8), REPEAT(6), loan, publish, loan, publish, loan, publish,
		   loan, { .op = STEP_ADVANCE, .kind = 2 }, loan, publish, CALL(STREAM, .flags = 5), loan);
	SAVE_STEPS("stream-asked", STREAM(SUBSCRIBE, .flags = 8), REPEAT(4), loan, publish, publish,
		   STREAM(TAKEN, .cookie = 1, .length = 2, .value = { 1 }), loan, publish,
		   { .op = STEP_ADVANCE, .kind = 1 }, STREAM(TAKEN, .cookie = 1, .length = 3, .value = { 3 }), loan,
		   publish, CALL(STREAM, .flags = 5));
	SAVE_STEPS("stream-place", STREAM(SUBSCRIBE, .flags = 56), REPEAT(4), loan, publish, publish,
		   STREAM(TAKEN, .cookie = 1, .length = 2, .value = { 1 }), loan, { .op = STEP_ADVANCE, .kind = 2 },
		   loan, { .op = STEP_ADVANCE, .kind = 6 }, loan);
	SAVE_STEPS("stream-flood", REPEAT(1000), STREAM(SUBSCRIBE), REPEAT(100), STREAM(LIST), REPEAT(5),
		   STREAM(SUBSCRIBE, .key = 1), STREAM(SUBSCRIBE, .key = 2), STREAM(SUBSCRIBE, .key = 3));
	SAVE_STEPS("stream-push", STREAM(SUBSCRIBE, .flags = 12), STREAM(SLOTS, .flags = 3),
		   STREAM(CREDIT, .flags = 10), loan, publish, { .op = STEP_ANSWER, .flags = 1, .length = 4 }, loan,
		   publish, loan, publish, loan, publish, { .op = STEP_ANSWER },
		   STREAM(CREDIT, .flags = 2, .cookie = 1), STREAM(UNSUBSCRIBE));
	SAVE_STEPS("stream-push-close", STREAM(SUBSCRIBE, .flags = 12), STREAM(SLOTS, .flags = 3),
		   STREAM(CREDIT, .flags = 10), loan, publish, { .op = STEP_ANSWER, .flags = 1, .length = 4 },
		   CALL(STREAM, .flags = 5));
	SAVE_STEPS("stream-token", CALL(STREAM, .flags = 6), STREAM(SUBSCRIBE), STREAM(LIST),
		   STREAM(SUBSCRIBE, .cookie = 4), STREAM(LIST, .cookie = 5), STREAM(SUBSCRIBE, .cookie = 3),
		   STREAM(LIST, .cookie = 3), loan, publish, CALL(STREAM, .flags = 7), loan, publish,
		   STREAM(SUBSCRIBE, .cookie = 3, .key = 1), REPEAT(100), STREAM(SUBSCRIBE, .cookie = 5, .key = 2));
	SAVE_STEPS("stream-push-wrong", STREAM(SUBSCRIBE, .flags = 12), STREAM(SLOTS, .flags = 3),
		   STREAM(CREDIT, .flags = 10), STREAM(CREDIT, .flags = 10));
	SAVE_STEPS("stream-wrong", STREAM(SUBSCRIBE), STREAM(TAKEN, .cookie = 8, .value = { 9 }));
	SAVE_STEPS("stream-unasked", STREAM(SUBSCRIBED), STREAM(ANNOUNCE), STREAM(CLOSED));
}

static void steps_of_attacker(void)
{
	SAVE_STEPS("foreign", CONTROL(IMPORT, .key = 201), FRAME(READ, .key = 201, .length = 2),
		   FRAME(WRITE, .key = 201, .length = 2), FRAME(ATOMIC, .key = 201, .length = 1),
		   { .op = STEP_STRANGER, .key = 1, .offset = 1 }, { .op = STEP_STRANGER, .kind = 1 },
		   { .op = STEP_STRANGER, .kind = 2, .length = 40 }, { .op = STEP_LANE, .channel = 1 },
		   { .op = STEP_LANE, .channel = 2, .offset = 9 }, FRAME(READ, .channel = 1, .length = 2));
	SAVE_STEPS("close", CALL(RECEIVE, .length = 4), { .op = STEP_CLOSE, .channel = 1 },
		   { .op = STEP_ADVANCE, .kind = 2 }, { .op = STEP_ADVANCE, .kind = 3 }, CALL(QUERY));
	SAVE_STEPS("bye", CONTROL(BYE), { .op = STEP_CLOSE, .channel = 0, .kind = 2 },
		   { .op = STEP_CLOSE, .channel = 1, .kind = 3 });
	SAVE_STEPS("rail", CONTROL(RAIL, .flags = 2));
	SAVE_STEPS("flood-eager", REPEAT(400), FRAME(EAGER, .length = 8), REPEAT(1024), FRAME(EAGER));
	SAVE_STEPS("flood-notify", REPEAT(1025), FRAME(NOTIFY, .length = 13));
	SAVE_STEPS("flood-refused", REPEAT(1000), FRAME(WRITE, .key = 200), REPEAT(300),
		   FRAME(READ, .key = 200, .length = 2));
	SAVE_STEPS("flood-import", REPEAT(1000), CONTROL(IMPORT), REPEAT(1000), CONTROL(LANES, .length = 16));
	SAVE_STEPS("raw", { .op = STEP_RAW, .channel = 1, .length = 40, .flags = 1, .value = { 1, 2, 0, 0, 3 } },
		   { .op = STEP_RAW, .channel = 0, .length = 9, .value = { 0x17, 3, 3, 0, 1 } }, CALL(CLOSE));
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	root = argv[1];
	mkdir(root, 0777);
	control();
	frames();
	lanes();
	local();
	tokens();
	trust_files();
	records();
	blobs();
	write_address_seeds();
	streams();
	service();
	service_clients();
	service_routes();
	small_files();
	data_ranges();
	steps_of_peer();
	steps_of_streams();
	steps_of_attacker();
	return 0;
}
