/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kill_peer [ROUNDS [MIB [KEY]]]: in each round a new process transfers MIB mebibytes with this one and is killed
 * (SIGKILL) at a random moment.  Every operation of this process must then end with a named error well before its
 * time-out.  Memory next to the regions of both processes must be unchanged.  After all rounds this process must not
 * have more descriptors, threads, mappings and memory than before.  Prints one JSON object; the exit status is 1 if any
 * of these conditions failed.
 */
#include "support.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MARGIN (64ul << 10) /* bytes before and after each region, which no transfer may change */
#define MARGIN_BYTE 0xA5
#define OPERATION_TIMEOUT (10 * NS_PER_S)
#define WAIT_TIMEOUT (30 * NS_PER_S)
#define TAG 7
#define KINDS 5
#define IDS_MAX 16

/* Operation in flight when the peer dies: of this process (OUR) or of the peer (THEIR). */
enum kind { OUR_WRITE, OUR_READ, OUR_SEND, OUR_RECEIVE, THEIR_WRITE };

static const char *const kind_names[KINDS] = { "write", "read", "send", "receive", "write by the peer" };

struct memory {
	uint8_t *all; /* including the margins */
	size_t length;
};

struct kill_test {
	struct pl_context *context;
	struct memory ours, theirs; /* `theirs` is shared with the killed processes */
	struct pl_region *region;
	const char *key;
	uint64_t complete_time[KINDS]; /* nanoseconds of a complete transfer */

	unsigned rounds, interrupted, completed;
	unsigned late, without_id, margins_changed;
	uint64_t slowest; /* time from the kill to the end of the operation */
	struct {
		char id[32];
		unsigned count;
	} ids[IDS_MAX];
};

/* Data that both processes exchange. */
struct hello {
	char address[80];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

static void allocate_memory(struct memory *memory, size_t length, int flags)
{
	memory->length = length;
	memory->all =
		mmap(NULL, length + 2 * MARGIN, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory->all == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	memset(memory->all, MARGIN_BYTE, MARGIN);
	memset(memory->all + MARGIN + length, MARGIN_BYTE, MARGIN);
}

static bool margins_unchanged(const struct memory *memory)
{
	const uint8_t *after = memory->all + MARGIN + memory->length;

	for (size_t i = 0; i < MARGIN; i++)
		if (memory->all[i] != MARGIN_BYTE || after[i] != MARGIN_BYTE)
			return false;
	return true;
}

static struct pl_context *open_context(const char *key)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.fabric = "tcp";
	options.key = key;
	options.key_length = key ? strlen(key) : 0;
	options.operation_timeout = OPERATION_TIMEOUT;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static struct pl_region *register_memory(struct pl_context *context, const struct memory *memory)
{
	struct pl_region *region;
	struct pl_error error;

	MUST(pl_region_register(context, memory->all + MARGIN, memory->length, PL_ACCESS_ALL, &region, &error), &error);
	return region;
}

static void grant_region(struct pl_region *region, struct hello *hello)
{
	struct pl_error error;

	hello->token_length = sizeof(hello->token);
	MUST(pl_region_share(region, NULL, hello->token, &hello->token_length, &error), &error);
}

/* Process that is killed: listens, and performs its part of the transfer. */
static _Noreturn void run_victim(const struct kill_test *kill_test, enum kind kind, int socket)
{
	struct pl_context *context = open_context(kill_test->key);
	struct pl_region *region = register_memory(context, &kill_test->theirs);
	uint64_t length = kill_test->theirs.length;
	struct pl_operation *operation = NULL;
	struct pl_listener *listener;
	struct pl_remote *remote;
	struct hello hello = { .address = "" }, other;
	struct pl_error error;
	struct pl_peer *peer;
	char ready = 1;

	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, hello.address, sizeof(hello.address));
	grant_region(region, &hello);
	put(socket, &hello, sizeof(hello));
	MUST(pl_accept(listener, WAIT_TIMEOUT, &peer, &error), &error);
	get(socket, &other, sizeof(other));
	if (kind == OUR_SEND)
		MUST(pl_receive(peer, TAG, UINT64_MAX, &(struct pl_buffer){ region, 0, length }, NULL, &operation,
				&error),
		     &error);
	if (kind == THEIR_WRITE)
		MUST(pl_remote_import(peer, other.token, other.token_length, 0, &remote, &error), &error);
	put(socket, &ready, 1);
	get(socket, &ready, 1);
	if (kind == OUR_RECEIVE)
		MUST(pl_send(peer, TAG, &(struct pl_buffer){ region, 0, length }, NULL, &operation, &error), &error);
	if (kind == THEIR_WRITE)
		MUST(pl_write(peer, &(struct pl_transfer){ remote, 0, region, 0, length }, NULL, &operation, &error),
		     &error);
	if (operation)
		MUST(pl_wait(operation, WAIT_TIMEOUT, NULL, &error), &error);
	put(socket, &ready, 1);
	pause();
	exit(0);
}

static struct pl_operation *start_operation(struct kill_test *kill_test, enum kind kind, struct pl_peer *peer,
					    struct pl_remote *remote)
{
	struct pl_operation *operation = NULL;
	uint64_t length = kill_test->ours.length;
	struct pl_region *region = kill_test->region;
	struct pl_error error;

	switch (kind) {
	case OUR_WRITE:
		MUST(pl_write(peer, &(struct pl_transfer){ remote, 0, region, 0, length }, NULL, &operation, &error),
		     &error);
		break;
	case OUR_READ:
		MUST(pl_read(peer, &(struct pl_transfer){ remote, 0, region, 0, length }, NULL, &operation, &error),
		     &error);
		break;
	case OUR_SEND:
		MUST(pl_send(peer, TAG, &(struct pl_buffer){ region, 0, length }, NULL, &operation, &error), &error);
		break;
	case OUR_RECEIVE:
	case THEIR_WRITE:
		/* No message is ever sent in the second case: the receive ends because the peer dies. */
		MUST(pl_receive(peer, TAG, UINT64_MAX, &(struct pl_buffer){ region, 0, length }, NULL, &operation,
				&error),
		     &error);
	}
	return operation;
}

static void count_id(struct kill_test *kill_test, const char *id)
{
	unsigned i = 0;

	while (i < IDS_MAX - 1 && kill_test->ids[i].id[0] && strcmp(kill_test->ids[i].id, id) != 0)
		i++;
	snprintf(kill_test->ids[i].id, sizeof(kill_test->ids[i].id), "%s", id);
	kill_test->ids[i].count++;
}

/* Waits for the end of an operation after the kill, and counts its result. */
static void count_result(struct kill_test *kill_test, struct pl_operation *operation)
{
	uint64_t began = now_ns(), took;
	struct pl_error error = { 0 };
	int rc = pl_wait(operation, WAIT_TIMEOUT, NULL, &error);

	took = now_ns() - began;
	if (took > kill_test->slowest)
		kill_test->slowest = took;
	kill_test->late += took >= OPERATION_TIMEOUT;
	kill_test->completed += rc == 0;
	kill_test->interrupted += rc != 0;
	kill_test->without_id += rc != 0 && (error.id[0] == '\0' || error.code != rc);
	if (rc)
		count_id(kill_test, error.id);
	kill_test->margins_changed += !margins_unchanged(&kill_test->ours) || !margins_unchanged(&kill_test->theirs);
}

static void sleep_ns(uint64_t duration)
{
	struct timespec time = { (time_t)(duration / NS_PER_S), (long)(duration % NS_PER_S) };

	nanosleep(&time, NULL);
}

/* Starts a transfer, then kills the process; with `complete` lets it complete to measure its time. */
static void run_round(struct kill_test *kill_test, enum kind kind, bool complete)
{
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct hello hello, ours;
	struct pl_error error;
	struct pl_peer *peer;
	uint64_t began;
	int sockets[2];
	pid_t child;
	char ready;

	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), NULL);
	child = fork();
	if (child == 0)
		run_victim(kill_test, kind, sockets[1]);
	close(sockets[1]);
	get(sockets[0], &hello, sizeof(hello));
	MUST(pl_connect(kill_test->context, hello.address, WAIT_TIMEOUT, &peer, &error), &error);
	MUST(pl_remote_import(peer, hello.token, hello.token_length, 0, &remote, &error), &error);
	grant_region(kill_test->region, &ours);
	put(sockets[0], &ours, sizeof(ours));
	get(sockets[0], &ready, 1);
	began = now_ns();
	operation = start_operation(kill_test, kind, peer, remote);
	put(sockets[0], &ready, 1);
	if (complete) {
		get(sockets[0], &ready, 1);
		if (kind == THEIR_WRITE)
			pl_cancel(operation);
		(void)pl_wait(operation, WAIT_TIMEOUT, NULL, &error);
		kill_test->complete_time[kind] = now_ns() - began;
	} else {
		sleep_ns((uint64_t)(drand48() * 0.9 * (double)kill_test->complete_time[kind]));
	}
	kill(child, SIGKILL);
	if (!complete)
		count_result(kill_test, operation);
	waitpid(child, NULL, 0);
	close(sockets[0]);
	pl_remote_release(remote);
	pl_peer_close(peer);
	pl_region_revoke(kill_test->region, ours.token, ours.token_length);
}

struct resource_usage {
	unsigned descriptors, threads, mappings;
	long memory;
};

static struct resource_usage read_resource_usage(void)
{
	return (struct resource_usage){ open_descriptors(), running_threads(), memory_mappings(), resident_bytes() };
}

static void print_growth(const char *name, const struct resource_usage *before, const struct resource_usage *after)
{
	printf("\"%s\": {\"descriptors\": %d, \"threads\": %d, \"mappings\": %d, \"resident_bytes\": %ld}", name,
	       (int)(after->descriptors - before->descriptors), (int)(after->threads - before->threads),
	       (int)(after->mappings - before->mappings), after->memory - before->memory);
}

/* True if a resource has grown by more than the memory that the allocator caches. */
static bool has_grown(const struct resource_usage *before, const struct resource_usage *after)
{
	return after->descriptors > before->descriptors || after->threads > before->threads ||
	       after->mappings > before->mappings + 8 || after->memory > before->memory + (4l << 20);
}

static void print_result(const struct kill_test *kill_test)
{
	printf("{\"rounds\": %u, \"bytes\": %zu, \"key\": %s, \"interrupted\": %u, \"completed\": %u,\n",
	       kill_test->rounds, kill_test->ours.length, kill_test->key ? "true" : "false", kill_test->interrupted,
	       kill_test->completed);
	printf(" \"whole_transfer_ms\": {");
	for (int kind = 0; kind < KINDS; kind++)
		printf("%s\"%s\": %.0f", kind ? ", " : "", kind_names[kind],
		       (double)kill_test->complete_time[kind] / NS_PER_MS);
	printf("},\n \"after_the_kill_ms_max\": %.1f, \"timeout_ms\": %llu, \"late\": %u, \"without_name\": %u, "
	       "\"margins_touched\": %u,\n \"errors\": {",
	       (double)kill_test->slowest / NS_PER_MS, OPERATION_TIMEOUT / NS_PER_MS, kill_test->late,
	       kill_test->without_id, kill_test->margins_changed);
	for (int i = 0; i < IDS_MAX && kill_test->ids[i].count; i++)
		printf("%s\"%s\": %u", i ? ", " : "", kill_test->ids[i].id, kill_test->ids[i].count);
	printf("},\n ");
}

static void run_all(struct kill_test *kill_test, struct resource_usage *warm)
{
	for (int kind = 0; kind < KINDS; kind++)
		run_round(kill_test, (enum kind)kind, true);
	*warm = read_resource_usage();
	for (unsigned i = 0; i < kill_test->rounds; i++) {
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%u of %u ", i + 1, kill_test->rounds);
		run_round(kill_test, (enum kind)(i % KINDS), false);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r                \r");
}

int main(int argc, char **argv)
{
	struct kill_test kill_test = { .rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100,
				       .key = argc > 3 ? argv[3] : NULL };
	size_t mebibytes = argc > 2 ? (size_t)atoi(argv[2]) : 1024;
	struct resource_usage before, warm, after, closed;
	bool leaked;

	if (argc > 4 || kill_test.rounds < 1 || mebibytes < 1 || mebibytes > 8192) {
		fprintf(stderr, "usage: kill_peer [ROUNDS [MIB [KEY]]], MIB is 1 to 8192\n");
		return 2;
	}
	srand48((long)now_ns());
	allocate_memory(&kill_test.ours, mebibytes << 20, MAP_PRIVATE);
	allocate_memory(&kill_test.theirs, mebibytes << 20, MAP_SHARED);
	before = read_resource_usage();
	kill_test.context = open_context(kill_test.key);
	kill_test.region = register_memory(kill_test.context, &kill_test.ours);
	run_all(&kill_test, &warm);
	after = read_resource_usage();
	pl_close(kill_test.context);
	closed = read_resource_usage();
	leaked = has_grown(&warm, &after) || closed.descriptors > before.descriptors || closed.threads > before.threads;
	print_result(&kill_test);
	print_growth("growth_by_rounds", &warm, &after);
	printf(",\n ");
	print_growth("left_after_close", &before, &closed);
	printf(", \"leaked\": %s}\n", leaked ? "true" : "false");
	return leaked || kill_test.late || kill_test.without_id || kill_test.margins_changed;
}
