/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kill_peer [ROUNDS [MIB [KEY]]]: in each round a new process transfers MIB mebibytes with this one
 * and is killed (SIGKILL) at a random moment of it.  Every operation of this process must then end
 * with a named error well before its time-out; memory next to the regions, at both ends, must be as
 * it was; and after all rounds this process must have no more descriptors, threads, mappings and
 * memory than before.  Prints one JSON object; the exit status is 1 if anything of this did not hold.
 */
#include "support.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MARGIN (64ul << 10) /* bytes before and after each region, which nothing may touch */
#define MARGIN_BYTE 0xA5
#define OPERATION_TIMEOUT (10 * NS_PER_S)
#define PATIENCE (30 * NS_PER_S)
#define TAG 7
#define KINDS 5
#define IDS_MAX 16

/* What happens when the peer dies: ours are operations here, theirs are operations of the peer. */
enum kind { OUR_WRITE, OUR_READ, OUR_SEND, OUR_RECEIVE, THEIR_WRITE };

static const char *const kind_names[KINDS] = { "write", "read", "send", "receive", "write by the peer" };

struct memory {
	uint8_t *all; /* with its margins */
	size_t length;
};

struct killing {
	struct pl_context *context;
	struct memory ours, theirs; /* `theirs` is shared with the processes that are killed */
	struct pl_region *region;
	const char *key;
	uint64_t whole[KINDS]; /* nanoseconds that a whole transfer takes */

	unsigned rounds, interrupted, completed;
	unsigned late, unnamed, touched;
	uint64_t slowest; /* from the kill to the end of the operation */
	struct {
		char id[32];
		unsigned count;
	} ids[IDS_MAX];
};

/* What the two ends tell each other. */
struct hello {
	char address[80];
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

static void allocate(struct memory *memory, size_t length, int flags)
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

static bool margins_whole(const struct memory *memory)
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

static void share(struct pl_region *region, struct hello *hello)
{
	struct pl_error error;

	hello->token_length = sizeof(hello->token);
	MUST(pl_region_share(region, NULL, hello->token, &hello->token_length, &error), &error);
}

/* The process that is killed: it listens, and does its part of the transfer. */
static _Noreturn void be_killed(const struct killing *killing, enum kind kind, int socket)
{
	struct pl_context *context = open_context(killing->key);
	struct pl_region *region = register_memory(context, &killing->theirs);
	uint64_t length = killing->theirs.length;
	struct pl_operation *operation = NULL;
	struct pl_listener *listener;
	struct pl_remote *remote;
	struct hello hello = { .address = "" }, other;
	struct pl_error error;
	struct pl_peer *peer;
	char ready = 1;

	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, hello.address, sizeof(hello.address));
	share(region, &hello);
	put(socket, &hello, sizeof(hello));
	MUST(pl_accept(listener, PATIENCE, &peer, &error), &error);
	get(socket, &other, sizeof(other));
	if (kind == OUR_SEND)
		MUST(pl_receive(peer, TAG, UINT64_MAX, region, 0, length, NULL, &operation, &error), &error);
	if (kind == THEIR_WRITE)
		MUST(pl_remote_import(peer, other.token, other.token_length, 0, &remote, &error), &error);
	put(socket, &ready, 1);
	get(socket, &ready, 1);
	if (kind == OUR_RECEIVE)
		MUST(pl_send(peer, TAG, region, 0, length, NULL, &operation, &error), &error);
	if (kind == THEIR_WRITE)
		MUST(pl_write(peer, remote, 0, region, 0, length, NULL, &operation, &error), &error);
	if (operation)
		MUST(pl_wait(operation, PATIENCE, NULL, &error), &error);
	put(socket, &ready, 1);
	pause();
	exit(0);
}

static struct pl_operation *begin(struct killing *killing, enum kind kind, struct pl_peer *peer,
				  struct pl_remote *remote)
{
	struct pl_operation *operation = NULL;
	uint64_t length = killing->ours.length;
	struct pl_region *region = killing->region;
	struct pl_error error;

	switch (kind) {
	case OUR_WRITE:
		MUST(pl_write(peer, remote, 0, region, 0, length, NULL, &operation, &error), &error);
		break;
	case OUR_READ:
		MUST(pl_read(peer, remote, 0, region, 0, length, NULL, &operation, &error), &error);
		break;
	case OUR_SEND:
		MUST(pl_send(peer, TAG, region, 0, length, NULL, &operation, &error), &error);
		break;
	case OUR_RECEIVE:
	case THEIR_WRITE:
		/* In the second case nothing is ever sent to it: it ends because the peer does. */
		MUST(pl_receive(peer, TAG, UINT64_MAX, region, 0, length, NULL, &operation, &error), &error);
	}
	return operation;
}

static void count_id(struct killing *killing, const char *id)
{
	unsigned i = 0;

	while (i < IDS_MAX - 1 && killing->ids[i].id[0] && strcmp(killing->ids[i].id, id) != 0)
		i++;
	snprintf(killing->ids[i].id, sizeof(killing->ids[i].id), "%s", id);
	killing->ids[i].count++;
}

/* After the kill. */
static void finish(struct killing *killing, struct pl_operation *operation)
{
	uint64_t began = now_ns(), took;
	struct pl_error error = { 0 };
	int rc = pl_wait(operation, PATIENCE, NULL, &error);

	took = now_ns() - began;
	if (took > killing->slowest)
		killing->slowest = took;
	killing->late += took >= OPERATION_TIMEOUT;
	killing->completed += rc == 0;
	killing->interrupted += rc != 0;
	killing->unnamed += rc != 0 && (error.id[0] == '\0' || error.code != rc);
	if (rc)
		count_id(killing, error.id);
	killing->touched += !margins_whole(&killing->ours) || !margins_whole(&killing->theirs);
}

static void sleep_ns(uint64_t duration)
{
	struct timespec time = { (time_t)(duration / NS_PER_S), (long)(duration % NS_PER_S) };

	nanosleep(&time, NULL);
}

/* Lets the transfer of a kind begin; then kills the process, or lets it end to see how long it takes. */
static void run_round(struct killing *killing, enum kind kind, bool whole)
{
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct hello hello, ours;
	struct pl_error error;
	struct pl_peer *peer;
	uint64_t began;
	int ends[2];
	pid_t child;
	char ready;

	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), NULL);
	child = fork();
	if (child == 0)
		be_killed(killing, kind, ends[1]);
	close(ends[1]);
	get(ends[0], &hello, sizeof(hello));
	MUST(pl_connect(killing->context, hello.address, PATIENCE, &peer, &error), &error);
	MUST(pl_remote_import(peer, hello.token, hello.token_length, 0, &remote, &error), &error);
	share(killing->region, &ours);
	put(ends[0], &ours, sizeof(ours));
	get(ends[0], &ready, 1);
	began = now_ns();
	operation = begin(killing, kind, peer, remote);
	put(ends[0], &ready, 1);
	if (whole) {
		get(ends[0], &ready, 1);
		if (kind == THEIR_WRITE)
			pl_cancel(operation);
		(void)pl_wait(operation, PATIENCE, NULL, &error);
		killing->whole[kind] = now_ns() - began;
	} else {
		sleep_ns((uint64_t)(drand48() * 0.9 * (double)killing->whole[kind]));
	}
	kill(child, SIGKILL);
	if (!whole)
		finish(killing, operation);
	waitpid(child, NULL, 0);
	close(ends[0]);
	pl_remote_release(remote);
	pl_peer_close(peer);
	pl_region_revoke(killing->region, ours.token, ours.token_length);
}

struct usage {
	unsigned descriptors, threads, mappings;
	long memory;
};

static struct usage usage(void)
{
	return (struct usage){ open_descriptors(), running_threads(), memory_mappings(), resident_bytes() };
}

static void print_growth(const char *name, const struct usage *before, const struct usage *after)
{
	printf("\"%s\": {\"descriptors\": %d, \"threads\": %d, \"mappings\": %d, \"resident_bytes\": %ld}", name,
	       (int)(after->descriptors - before->descriptors), (int)(after->threads - before->threads),
	       (int)(after->mappings - before->mappings), after->memory - before->memory);
}

/* The allocator keeps a little of what was freed; a leak of every round is more than that. */
static bool grown(const struct usage *before, const struct usage *after)
{
	return after->descriptors > before->descriptors || after->threads > before->threads ||
	       after->mappings > before->mappings + 8 || after->memory > before->memory + (4l << 20);
}

static void print_result(const struct killing *killing)
{
	printf("{\"rounds\": %u, \"bytes\": %zu, \"key\": %s, \"interrupted\": %u, \"completed\": %u,\n",
	       killing->rounds, killing->ours.length, killing->key ? "true" : "false", killing->interrupted,
	       killing->completed);
	printf(" \"whole_transfer_ms\": {");
	for (int kind = 0; kind < KINDS; kind++)
		printf("%s\"%s\": %.0f", kind ? ", " : "", kind_names[kind], (double)killing->whole[kind] / NS_PER_MS);
	printf("},\n \"after_the_kill_ms_max\": %.1f, \"timeout_ms\": %llu, \"late\": %u, \"without_name\": %u, "
	       "\"margins_touched\": %u,\n \"errors\": {",
	       (double)killing->slowest / NS_PER_MS, OPERATION_TIMEOUT / NS_PER_MS, killing->late, killing->unnamed,
	       killing->touched);
	for (int i = 0; i < IDS_MAX && killing->ids[i].count; i++)
		printf("%s\"%s\": %u", i ? ", " : "", killing->ids[i].id, killing->ids[i].count);
	printf("},\n ");
}

static void run_all(struct killing *killing, struct usage *warm)
{
	for (int kind = 0; kind < KINDS; kind++)
		run_round(killing, (enum kind)kind, true);
	*warm = usage();
	for (unsigned i = 0; i < killing->rounds; i++) {
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%u of %u ", i + 1, killing->rounds);
		run_round(killing, (enum kind)(i % KINDS), false);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r                \r");
}

int main(int argc, char **argv)
{
	struct killing killing = { .rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100,
				   .key = argc > 3 ? argv[3] : NULL };
	size_t mebibytes = argc > 2 ? (size_t)atoi(argv[2]) : 1024;
	struct usage before, warm, after, closed;
	bool leaked;

	if (argc > 4 || killing.rounds < 1 || mebibytes < 1 || mebibytes > 8192) {
		fprintf(stderr, "usage: kill_peer [ROUNDS [MIB [KEY]]], MIB is 1 to 8192\n");
		return 2;
	}
	srand48((long)now_ns());
	allocate(&killing.ours, mebibytes << 20, MAP_PRIVATE);
	allocate(&killing.theirs, mebibytes << 20, MAP_SHARED);
	before = usage();
	killing.context = open_context(killing.key);
	killing.region = register_memory(killing.context, &killing.ours);
	run_all(&killing, &warm);
	after = usage();
	pl_close(killing.context);
	closed = usage();
	leaked = grown(&warm, &after) || closed.descriptors > before.descriptors || closed.threads > before.threads;
	print_result(&killing);
	print_growth("growth_by_rounds", &warm, &after);
	printf(",\n ");
	print_growth("left_after_close", &before, &closed);
	printf(", \"leaked\": %s}\n", leaked ? "true" : "false");
	return leaked || killing.late || killing.unnamed || killing.touched;
}
