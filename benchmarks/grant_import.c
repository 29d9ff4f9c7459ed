/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grant_import [GRANTS [PEERS [SHARED [HOST]]]]: cost of grants that are memory windows, compared with grants that are
 * registrations.  SHARED peers import each grant.  HOST is the address of an RDMA device of this host.  Both ends are
 * contexts of this process.  Each round measures both kinds in turn; prints medians of the rounds, and their ratio.
 *
 * import      one at a time, until the remote region exists: median of all imports
 * usable      import and a read of 8 bytes, which waits for the key: median of all imports
 * burst       import and read of 64 regions at a time: time for each, median of all bursts
 * revoke      one grant with all its importers: median
 * deregister  the region with half of the grants
 */
#include "support.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#define GRANTS 1000
#define GRANTS_MAX 16384
#define PEERS 100
#define PEERS_MAX 200
#define IMPORTS_MAX 200000
#define ROUNDS 3
/* Imports under way at a time in a burst. */
#define TOGETHER 64
/* Bytes of a grant. */
#define GRANT_BYTES (16u << 10)
#define TIMEOUT (60 * NS_PER_S)

enum measure { IMPORT, USABLE, BURST, REVOKE, DEREGISTER, MEASURES };

static const char *const names[MEASURES] = { "import", "usable", "burst", "revoke", "deregister" };

struct run {
	unsigned grants, peers, shared;
	const char *host;
	unsigned imports;
};

/* Both ends, with all peers connected. */
struct ends {
	struct pl_context *owner, *importer;
	struct pl_listener *listener;
	struct pl_peer *peers[PEERS_MAX];
	struct pl_region *region, *sink;
	uint8_t (*tokens)[PL_TOKEN_MAX];
	size_t token_length;
	uint8_t *memory;
	uint8_t word[8];
	struct pl_remote **remotes;
	uint64_t *times[MEASURES];
};

static uint64_t median_of(uint64_t *values, size_t count)
{
	sort_times(values, count);
	return values[count / 2];
}

static void *must_calloc(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		give_up("calloc", -ENOMEM, NULL);
	return memory;
}

static struct pl_context *open_end(enum pl_choice windows)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.insecure = PL_ON;
	options.fabric = "verbs";
	options.narrow_grants = windows;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static void connect_peers(const struct run *run, struct ends *ends)
{
	char address[80];
	struct pl_error error;

	snprintf(address, sizeof(address), "%s:0", run->host);
	MUST(pl_listen(ends->owner, address, &ends->listener, &error), &error);
	pl_listener_address(ends->listener, address, sizeof(address));
	for (unsigned i = 0; i < run->peers; i++) {
		struct pl_completion completion;
		struct pl_operation *connecting;
		struct pl_peer *accepted;

		MUST(pl_connect_start(ends->importer, address, TIMEOUT, 0, &connecting, &error), &error);
		MUST(pl_accept(ends->listener, TIMEOUT, &accepted, &error), &error);
		MUST(pl_wait(connecting, TIMEOUT, &completion, &error), &error);
		ends->peers[i] = completion.peer;
	}
}

static void share_grants(const struct run *run, struct ends *ends)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	size_t length = (size_t)run->grants * GRANT_BYTES;
	struct pl_error error;

	ends->tokens = must_calloc(run->grants, sizeof(*ends->tokens));
	ends->memory = must_calloc(1, length);
	memset(ends->memory, 1, length);
	MUST(pl_region_register(ends->owner, ends->memory, length, PL_ACCESS_READ | PL_ACCESS_WRITE, &ends->region,
				&error),
	     &error);
	MUST(pl_region_register(ends->importer, ends->word, sizeof(ends->word), PL_ACCESS_LOCAL, &ends->sink, &error),
	     &error);
	options.length = GRANT_BYTES;
	for (unsigned i = 0; i < run->grants; i++) {
		options.offset = (size_t)i * GRANT_BYTES;
		ends->token_length = PL_TOKEN_MAX;
		MUST(pl_region_share(ends->region, &options, ends->tokens[i], &ends->token_length, &error), &error);
	}
}

/* Import number `i` is of this grant, by this peer. */
static const uint8_t *token_of(const struct run *run, const struct ends *ends, unsigned i)
{
	return ends->tokens[i / run->shared];
}

static struct pl_peer *peer_of(const struct run *run, const struct ends *ends, unsigned i)
{
	return ends->peers[(i / run->shared + i % run->shared) % run->peers];
}

static void read_word(struct ends *ends, struct pl_peer *peer, struct pl_remote *remote)
{
	const struct pl_transfer transfer = { remote, 0, ends->sink, 0, sizeof(ends->word) };
	struct pl_completion completion;
	struct pl_operation *reading;
	struct pl_error error;

	MUST(pl_read(peer, &transfer, NULL, &reading, &error), &error);
	MUST(pl_wait(reading, TIMEOUT, &completion, &error), &error);
}

/* Imports one region, and reads from it. */
static void import_single(const struct run *run, struct ends *ends, unsigned i)
{
	struct pl_peer *peer = peer_of(run, ends, i);
	uint64_t began = now_ns();
	struct pl_error error;

	MUST(pl_remote_import(peer, token_of(run, ends, i), ends->token_length, TIMEOUT, &ends->remotes[i], &error),
	     &error);
	ends->times[IMPORT][i] = now_ns() - began;
	read_word(ends, peer, ends->remotes[i]);
	ends->times[USABLE][i] = now_ns() - began;
}

/* Imports several regions at a time, then reads from each. */
static void import_burst(const struct run *run, struct ends *ends, unsigned first)
{
	unsigned count = run->imports - first < TOGETHER ? run->imports - first : TOGETHER;
	struct pl_operation *posted[TOGETHER];
	struct pl_completion completion;
	uint64_t began = now_ns();
	struct pl_error error;

	for (unsigned i = 0; i < count; i++)
		MUST(pl_remote_import_start(peer_of(run, ends, first + i), token_of(run, ends, first + i),
					    ends->token_length, 0, &posted[i], &error),
		     &error);
	for (unsigned i = 0; i < count; i++) {
		MUST(pl_wait(posted[i], TIMEOUT, &completion, &error), &error);
		ends->remotes[first + i] = completion.remote;
	}
	for (unsigned i = 0; i < count; i++)
		read_word(ends, peer_of(run, ends, first + i), ends->remotes[first + i]);
	ends->times[BURST][first / TOGETHER] = (now_ns() - began) / count;
}

static void revoke_grant(struct ends *ends, unsigned i)
{
	uint64_t began = now_ns();

	MUST(pl_region_revoke(ends->region, ends->tokens[i], ends->token_length), NULL);
	ends->times[REVOKE][i] = now_ns() - began;
}

static void deregister_region(const struct run *run, struct ends *ends)
{
	uint64_t began;

	for (unsigned i = 0; i < run->imports; i++)
		pl_remote_release(ends->remotes[i]);
	began = now_ns();
	MUST(pl_region_deregister(ends->region), NULL);
	ends->times[DEREGISTER][0] = now_ns() - began;
}

static void open_both(const struct run *run, struct ends *ends)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		memset(&ends[kind], 0, sizeof(ends[kind]));
		ends[kind].owner = open_end(kind ? PL_ON : PL_OFF);
		ends[kind].importer = open_end(PL_DEFAULT);
		ends[kind].remotes = must_calloc(run->imports, sizeof(struct pl_remote *));
		for (unsigned i = 0; i < MEASURES; i++)
			ends[kind].times[i] = must_calloc(run->imports, sizeof(uint64_t));
		connect_peers(run, &ends[kind]);
		share_grants(run, &ends[kind]);
	}
}

static void close_both(struct ends *ends)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		pl_close(ends[kind].importer);
		pl_close(ends[kind].owner);
		free(ends[kind].tokens);
		free(ends[kind].memory);
		free(ends[kind].remotes);
		for (unsigned i = 0; i < MEASURES; i++)
			free(ends[kind].times[i]);
	}
}

/* Measures both kinds in turn, one import or grant of each at a time, so that load of the machine hits both. */
static void measure_round(const struct run *run, uint64_t results[2][MEASURES])
{
	const unsigned counts[MEASURES] = { [IMPORT] = run->imports, [USABLE] = run->imports,
					    [BURST] = (run->imports + TOGETHER - 1) / TOGETHER,
					    [REVOKE] = run->grants / 2, [DEREGISTER] = 1 };
	struct ends ends[2];

	open_both(run, ends);
	for (unsigned i = 0; i < 2 * run->imports; i++)
		import_single(run, &ends[i % 2], i / 2);
	for (unsigned i = 0; i < 2 * (run->grants / 2); i++)
		revoke_grant(&ends[i % 2], i / 2);
	for (unsigned kind = 0; kind < 2; kind++)
		deregister_region(run, &ends[kind]);
	for (unsigned kind = 0; kind < 2; kind++)
		for (unsigned i = 0; i < MEASURES; i++)
			results[kind][i] = i == BURST ? 0 : median_of(ends[kind].times[i], counts[i]);
	close_both(ends);

	open_both(run, ends);
	for (unsigned i = 0; i < run->imports; i += TOGETHER)
		for (unsigned kind = 0; kind < 2; kind++)
			import_burst(run, &ends[kind], i);
	for (unsigned kind = 0; kind < 2; kind++)
		results[kind][BURST] = median_of(ends[kind].times[BURST], counts[BURST]);
	close_both(ends);
}

static void print_medians(const struct run *run, uint64_t all[2][MEASURES][ROUNDS])
{
	printf("{\"grants\": %u, \"peers\": %u, \"importers_of_each\": %u, \"rounds\": %d", run->grants, run->peers,
	       run->shared, ROUNDS);
	for (unsigned i = 0; i < MEASURES; i++) {
		double registration = (double)median_of(all[0][i], ROUNDS), window = (double)median_of(all[1][i], ROUNDS);

		printf(",\n \"%s\": {\"registration_us\": %.1f, \"window_us\": %.1f, \"ratio\": %.2f}", names[i],
		       registration / 1e3, window / 1e3, window / registration);
	}
	printf("}\n");
}

int main(int argc, char **argv)
{
	struct run run = { .grants = argc > 1 ? (unsigned)atoi(argv[1]) : GRANTS,
			   .peers = argc > 2 ? (unsigned)atoi(argv[2]) : PEERS,
			   .shared = argc > 3 ? (unsigned)atoi(argv[3]) : 1,
			   .host = argc > 4 ? argv[4] : "127.0.0.1" };
	uint64_t all[2][MEASURES][ROUNDS], results[2][MEASURES];
	struct rlimit limit;

	if (argc > 5 || run.grants < 2 || run.grants > GRANTS_MAX || run.peers < 1 || run.peers > PEERS_MAX ||
	    run.shared < 1 || run.shared > run.peers || run.grants * run.shared > IMPORTS_MAX) {
		fprintf(stderr, "usage: grant_import [GRANTS [PEERS [SHARED [HOST]]]], GRANTS is 2 to %d, PEERS 1 to %d, "
				"SHARED 1 to PEERS\n",
			GRANTS_MAX, PEERS_MAX);
		return 2;
	}
	run.imports = run.grants * run.shared;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (unsigned round = 0; round < ROUNDS; round++) {
		measure_round(&run, results);
		for (unsigned kind = 0; kind < 2; kind++)
			for (unsigned i = 0; i < MEASURES; i++)
				all[kind][i][round] = results[kind][i];
	}
	print_medians(&run, all);
	return 0;
}
