/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether all arrives, once and in order, whatever happens to the links meanwhile:
 *
 *     ledger FABRIC serve|narrow ADDRESS      one client, whose books must agree with what came here; `narrow` grants
 *                                             are reached by windows
 *     ledger FABRIC writes|sends ADDRESS      goes on until either end gets SIGTERM; then tells how much it was
 *
 * Writes go round the slots of a region, and before a slot is written again the server says whether what the last round
 * left there is whole: a write that is lost shows, and so does an old one that comes twice and lands on a newer.
 * Messages have numbers; the one of a number must be met by the receive of that number.
 *
 * Nothing is read, also not by large messages: at a response that it does not expect, as when a link comes back,
 * soft-RoCE (Linux 6.1) says that a read succeeded that failed, with a warning in rxe_completer().
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/check.h"

#define SECOND 1000000000ull
#define LIMIT (60 * SECOND)

/* Large enough that both of two rails have a part of each. */
#define SLOTS 16
#define SLOT ((size_t)160 << 10)
/* Behind the slots: where messages arrive. */
#define ARRIVALS (SLOTS * SLOT)
#define DEPTH 4
#define RECEIVES 32
#define MESSAGE_MAX ((size_t)8192)

enum { TAG_HELLO = 1, TAG_TOKEN, TAG_DATA, TAG_WHOLE, TAG_ENOUGH, TAG_END, TAG_AGREED };

/* A question: whether a slot has what this round left there.  The answer has the slot. */
struct question {
	uint64_t slot, round;
};

/* What the client does, and at its end, how much that was: messages, or the round of each slot. */
struct books {
	uint64_t sends;
	uint64_t count;
	uint64_t rounds[SLOTS];
};

struct end {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *region; /* what moves */
	struct pl_region *words;  /* the ends' own messages */
	bool told;                /* that it is enough: the server, by a signal; the client, by the server */
};

static uint64_t *at(const struct end *end, size_t offset)
{
	return (uint64_t *)((uint8_t *)pl_region_address(end->region) + offset);
}

/* Tells where it belongs, if it is found where it does not. */
static uint64_t word_of(uint64_t number, uint64_t salt, size_t index)
{
	return number << 32 | salt << 24 | index;
}

static void fill(uint64_t *words, size_t length, uint64_t number, uint64_t salt)
{
	for (size_t i = 0; i < length / sizeof(*words); i++)
		words[i] = word_of(number, salt, i);
}

static void compare(const uint64_t *words, size_t length, uint64_t number, uint64_t salt, const char *what)
{
	size_t wrong = 0, first = 0, last = 0;

	for (size_t i = 0; i < length / sizeof(*words); i++)
		if (words[i] != word_of(number, salt, i)) {
			first = wrong++ ? first : i;
			last = i;
		}
	if (wrong)
		check_failed(__FILE__, __LINE__,
			     "%s %llu of %llu: %zu words of %zu are not what was sent, from %zu (%016llx) to %zu "
			     "(%016llx)",
			     what, (unsigned long long)number, (unsigned long long)salt, wrong, length / sizeof(*words),
			     first, (unsigned long long)words[first], last, (unsigned long long)words[last]);
}

static void open_end(struct end *end, const char *fabric, bool narrow)
{
	const size_t length = ARRIVALS + RECEIVES * MESSAGE_MAX;
	const unsigned rights = PL_ACCESS_READ | PL_ACCESS_WRITE;
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	options.fabric = fabric;
	options.narrow_grants = narrow;
	options.insecure = true;
	check_ok(pl_open(&end->context, &options, &error), &error);
	check_ok(pl_region_allocate(end->context, length, rights, &end->region, &error), &error);
	check_ok(pl_region_allocate(end->context, 4096, PL_ACCESS_LOCAL, &end->words, &error), &error);
}

static void say(struct end *end, uint64_t tag, const void *data, size_t length)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(end->peer, tag, data, length, NULL, &operation, &error), &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

static struct pl_operation *listen_for(struct end *end, uint64_t tag)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.timeout = UINT64_MAX;
	check_ok(pl_receive(end->peer, tag, UINT64_MAX, end->words, 0, 4096, &attributes, &operation, &error), &error);
	return operation;
}

/* What came; returns its length. */
static size_t heard(struct pl_operation *operation, uint64_t timeout)
{
	struct pl_receipt receipt;
	struct pl_error error;

	check_ok(pl_wait(operation, timeout, &receipt, &error), &error);
	return receipt.bytes;
}

/* Of all lengths, and between them rows of some so short that they go several together. */
static size_t message_length(uint64_t number)
{
	return 8 + (number / 64 % 2 ? number * 8 % 200 : number * 72 % (MESSAGE_MAX - 8));
}

static bool signalled(void)
{
	sigset_t set;

	sigpending(&set);
	return sigismember(&set, SIGTERM);
}

/* The next completion of what was posted without a handle, which must be a success. */
static struct pl_completion next(struct end *end)
{
	struct pollfd ready = { .fd = pl_fd(end->context), .events = POLLIN };
	struct pl_completion done;

	while (pl_poll(end->context, &done, 1) == 0)
		poll(&ready, 1, 100);
	check_ok(done.receipt.status, &done.error);
	return done;
}

static void post_receive(struct end *end, uint64_t tag, unsigned slot)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = slot;
	check_ok(pl_receive(end->peer, tag, UINT64_MAX, end->region, ARRIVALS + slot * MESSAGE_MAX, MESSAGE_MAX,
			    &attributes, NULL, &error),
		 &error);
}

/* -- the server ------------------------------------------------------------------------------------------- */

/* Which message each receive must get. */
struct receives {
	uint64_t numbers[RECEIVES];
	uint64_t posted;
};

static void post_next(struct end *end, struct receives *receives, unsigned slot)
{
	receives->numbers[slot] = receives->posted++;
	post_receive(end, TAG_DATA, slot);
}

static void take_message(struct end *end, const struct pl_completion *done, uint64_t number, bool sends)
{
	const uint64_t *words = at(end, ARRIVALS + done->receipt.user_data * MESSAGE_MAX);
	const struct question *question = (const struct question *)words;

	if (sends) {
		check_number(done->receipt.bytes, message_length(number));
		compare(words, done->receipt.bytes, number, 0, "message");
		return;
	}
	check_number(done->receipt.bytes, sizeof(*question));
	check(question->slot < SLOTS);
	compare(at(end, question->slot * SLOT), SLOT, question->round, question->slot, "round");
	say(end, TAG_WHOLE, &question->slot, sizeof(question->slot));
}

/*
 * Until the client's books are here, and the messages that are in them: those have another tag, so the books may
 * overtake what waits for a receive.  Returns the number of messages.
 */
static uint64_t attend(struct end *end, struct receives *receives, bool sends)
{
	struct pollfd ready = { .fd = pl_fd(end->context), .events = POLLIN };
	const struct books *books = pl_region_address(end->words);
	struct pl_operation *closing = listen_for(end, TAG_END);
	time_t limit = 0;
	uint64_t count = 0;
	struct pl_error error;
	struct pl_completion done;
	int rc = -EINPROGRESS;

	do {
		if (!end->told && signalled()) {
			end->told = true;
			say(end, TAG_ENOUGH, "", 0);
		}
		if (rc == -EINPROGRESS) {
			rc = pl_test(closing, NULL, &error);
			limit = time(NULL) + LIMIT / SECOND;
		}
		for (; pl_poll(end->context, &done, 1) > 0; count++) {
			unsigned slot = (unsigned)done.receipt.user_data;

			check_ok(done.receipt.status, &done.error);
			take_message(end, &done, receives->numbers[slot], sends);
			post_next(end, receives, slot);
		}
		poll(&ready, 1, 100);
	} while (rc == -EINPROGRESS || (rc == 0 && sends && count < books->count && time(NULL) < limit));
	check_ok(rc, &error);
	return count;
}

static void share_slots(struct end *end)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	for (unsigned i = 0; i < SLOTS; i++)
		fill(at(end, i * SLOT), SLOT, 0, i);
	check_ok(pl_region_share(end->region, NULL, token, &length, &error), &error);
	say(end, TAG_TOKEN, token, length);
}

static void await_leave(struct end *end)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	do {
		poll(NULL, 0, 20);
		pl_peer_query(end->peer, &info);
	} while (info.connected);
}

static void serve(struct end *end, const char *address)
{
	const struct books *books = pl_region_address(end->words);
	struct receives receives = { .posted = 0 };
	struct pl_listener *listener;
	struct pl_error error;
	uint64_t count;

	check_ok(pl_listen(end->context, address, &listener, &error), &error);
	check_ok(pl_accept(listener, LIMIT, &end->peer, &error), &error);
	check_number(heard(listen_for(end, TAG_HELLO), LIMIT), sizeof(*books));
	for (unsigned i = 0; i < RECEIVES; i++)
		post_next(end, &receives, i);
	/* The client begins with this. */
	share_slots(end);
	count = attend(end, &receives, books->sends);
	if (books->sends)
		check_number(count, books->count);
	for (unsigned i = 0; !books->sends && i < SLOTS; i++)
		compare(at(end, i * SLOT), SLOT, books->rounds[i], i, "round");
	say(end, TAG_AGREED, "", 0);
	await_leave(end);
}

/* -- the client ------------------------------------------------------------------------------------------- */

/* Whether it is enough. */
static bool enough(struct end *end, struct pl_operation **told)
{
	struct pl_error error;
	int rc = *told ? pl_test(*told, NULL, &error) : -EINPROGRESS;

	if (rc != -EINPROGRESS) {
		check_ok(rc, &error);
		*told = NULL;
		end->told = true;
	}
	end->told = end->told || signalled();
	return end->told;
}

static void ask(struct end *end, const struct question *question)
{
	struct pl_error error;

	check_ok(pl_send_copy(end->peer, TAG_DATA, question, sizeof(*question), NULL, NULL, &error), &error);
}

static void write_next(struct end *end, struct pl_remote *remote, struct books *books, uint64_t slot)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	check(slot < SLOTS);
	attributes.user_data = slot;
	fill(at(end, slot * SLOT), SLOT, ++books->rounds[slot], slot);
	check_ok(pl_write(end->peer, remote, slot * SLOT, end->region, slot * SLOT, SLOT, &attributes, NULL, &error),
		 &error);
	books->count++;
}

static void write_slots(struct end *end, struct pl_remote *remote, struct books *books)
{
	struct pl_operation *told = listen_for(end, TAG_ENOUGH);
	bool under_way[SLOTS] = { false };
	unsigned busy = 0, turn = 0, place;
	struct pl_completion done;

	for (unsigned i = 0; i < DEPTH; i++)
		post_receive(end, TAG_WHOLE, i);
	while (!enough(end, &told) || busy) {
		if (!end->told && busy < DEPTH && !under_way[turn]) {
			const struct question question = { turn, books->rounds[turn] };

			ask(end, &question);
			under_way[turn] = true;
			turn = (turn + 1) % SLOTS;
			busy++;
			continue;
		}
		done = next(end);
		place = (unsigned)done.receipt.user_data;
		if (done.receipt.kind == PL_KIND_RECEIVE) {
			write_next(end, remote, books, *at(end, ARRIVALS + place * MESSAGE_MAX));
			post_receive(end, TAG_WHOLE, place);
		}
		if (done.receipt.kind == PL_KIND_WRITE) {
			under_way[place] = false;
			busy--;
		}
	}
}

static void send_messages(struct end *end, struct books *books)
{
	struct pl_operation *told = listen_for(end, TAG_ENOUGH);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	bool free_slots[SLOTS];
	unsigned busy = 0;
	struct pl_error error;

	memset(free_slots, true, sizeof(free_slots));
	while (!enough(end, &told) || busy) {
		uint64_t number = books->count;
		unsigned slot = number % SLOTS;

		if (!end->told && free_slots[slot]) {
			fill(at(end, slot * SLOT), message_length(number), number, 0);
			attributes.user_data = slot;
			check_ok(pl_send(end->peer, TAG_DATA, end->region, slot * SLOT, message_length(number),
					 &attributes, NULL, &error),
				 &error);
			free_slots[slot] = false;
			books->count++;
			busy++;
			continue;
		}
		free_slots[next(end).receipt.user_data] = true;
		busy--;
	}
}

static void keep_books(struct end *end, const char *address, bool sends)
{
	struct books books = { .sends = sends };
	struct pl_operation *agreed, *token;
	struct pl_remote *remote;
	struct pl_error error;
	size_t length;

	check_ok(pl_connect(end->context, address, 0, &end->peer, &error), &error);
	token = listen_for(end, TAG_TOKEN);
	say(end, TAG_HELLO, &books, sizeof(books));
	length = heard(token, LIMIT);
	check_ok(pl_remote_import(end->peer, pl_region_address(end->words), length, 0, &remote, &error), &error);
	if (sends)
		send_messages(end, &books);
	else
		write_slots(end, remote, &books);
	agreed = listen_for(end, TAG_AGREED);
	say(end, TAG_END, &books, sizeof(books));
	heard(agreed, LIMIT);
	printf("%llu %s, each arrived once\n", (unsigned long long)books.count, sends ? "messages" : "writes");
}

static int usage(void)
{
	fprintf(stderr, "usage: ledger FABRIC serve|narrow|writes|sends ADDRESS\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct end end = { 0 };
	bool serves, sends;
	sigset_t set;

	if (argc != 4)
		return usage();
	serves = !strcmp(argv[2], "serve") || !strcmp(argv[2], "narrow");
	sends = !strcmp(argv[2], "sends");
	if (!serves && !sends && strcmp(argv[2], "writes"))
		return usage();
	/* Before there are threads. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	open_end(&end, argv[1], !strcmp(argv[2], "narrow"));
	if (serves)
		serve(&end, argv[3]);
	else
		keep_books(&end, argv[3], sends);
	pl_close(end.context);
	return 0;
}
