/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks that all data arrives once and in order, while the links fail:
 *
 *     ledger FABRIC serve|narrow ADDRESS      serves one client, whose books must match the received data; with
 *                                             `narrow`, the client accesses grants through memory windows
 *     ledger FABRIC writes|sends ADDRESS      runs until either end gets SIGTERM; then prints the amount of data
 *
 * The client writes to the slots of a region in turn.  Before it writes a slot again, the server checks the slot's data
 * of the last round.  This shows a lost write, and an old write that arrives twice and overwrites a newer one.
 * Messages are numbered.  The receive with a number must get the message with that number.
 *
 * The program does not read, and its messages are small enough not to be read by the receiver.  When soft-RoCE
 * (Linux 6.1) gets an unexpected response, as after a link comes back, it reports failed reads as successful, with a
 * warning in rxe_completer().
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/check.h"

#define SECOND 1000000000ull
#define LIMIT (60 * SECOND)

/* Slots are large enough that the library splits each write over two rails. */
#define SLOTS 16
#define SLOT ((size_t)160 << 10)
/* Offset, after the slots, of the buffers for messages. */
#define ARRIVALS (SLOTS * SLOT)
#define DEPTH 4
#define RECEIVES 32
#define MESSAGE_MAX ((size_t)8192)

enum { TAG_HELLO = 1, TAG_TOKEN, TAG_DATA, TAG_WHOLE, TAG_ENOUGH, TAG_END, TAG_AGREED };

/* Question of the client: is the data of this round in the slot?  The answer contains the slot. */
struct question {
	uint64_t slot, round;
};

/* Mode of the client, and at its end the amount of data: number of messages, or the round of each slot. */
struct books {
	uint64_t sends;
	uint64_t count;
	uint64_t rounds[SLOTS];
};

struct end {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *region; /* slots, and buffers for messages */
	struct pl_region *words;  /* buffer for messages that control the test */
	bool told;                /* asked to end: the server by a signal, the client by the server */
};

static uint64_t *region_words(const struct end *end, size_t offset)
{
	return (uint64_t *)((uint8_t *)pl_region_address(end->region) + offset);
}

/* Returns the word for a position.  The value identifies the position, so that a misplaced word can be traced. */
static uint64_t pattern_word(uint64_t number, uint64_t salt, size_t index)
{
	return number << 32 | salt << 24 | index;
}

static void pattern_fill_words(uint64_t *words, size_t length, uint64_t number, uint64_t salt)
{
	for (size_t i = 0; i < length / sizeof(*words); i++)
		words[i] = pattern_word(number, salt, i);
}

static void compare(const uint64_t *words, size_t length, uint64_t number, uint64_t salt, const char *what)
{
	size_t wrong = 0, first = 0, last = 0;

	for (size_t i = 0; i < length / sizeof(*words); i++)
		if (words[i] != pattern_word(number, salt, i)) {
			first = wrong++ ? first : i;
			last = i;
		}
	if (wrong)
		check_failed(__FILE__, __LINE__,
			     "%s %llu of %llu: %zu words of %zu differ from the sent ones, from %zu (%016llx) to %zu "
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
	options.narrow_grants = narrow ? PL_ON : PL_OFF;
	options.insecure = true;
	check_ok(pl_open(&end->context, &options, &error), &error);
	check_ok(pl_region_allocate(end->context, length, rights, &end->region, &error), &error);
	check_ok(pl_region_allocate(end->context, 4096, PL_ACCESS_LOCAL, &end->words, &error), &error);
}

static void send_control(struct end *end, uint64_t tag, const void *data, size_t length)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(end->peer, tag, data, length, NULL, &operation, &error), &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

static struct pl_operation *receive_control(struct end *end, uint64_t tag)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.timeout = UINT64_MAX;
	check_ok(pl_receive(end->peer, tag, UINT64_MAX, &(struct pl_buffer){ end->words, 0, 4096 }, &attributes,
			    &operation, &error),
		 &error);
	return operation;
}

/* Waits for a control message; returns its length. */
static size_t await_control(struct pl_operation *operation, uint64_t timeout)
{
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_wait(operation, timeout, &receipt, &error), &error);
	return receipt.bytes;
}

/* Returns a message's length: 64 messages of all lengths, then 64 short ones, which the library packs, in turn. */
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

/* Waits for the next completion, of an operation posted without a handle; it must be a success. */
static struct pl_completion await_completion(struct end *end)
{
	struct pollfd ready = { .fd = pl_fd(end->context), .events = POLLIN };
	struct pl_completion done;

	while (pl_poll(end->context, &done, 1) == 0)
		poll(&ready, 1, 100);
	check_completion(end->context, &done, 0);
	return done;
}

static void post_receive(struct end *end, uint64_t tag, unsigned slot)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = slot;
	check_ok(pl_receive(end->peer, tag, UINT64_MAX,
			    &(struct pl_buffer){ end->region, ARRIVALS + slot * MESSAGE_MAX, MESSAGE_MAX }, &attributes,
			    NULL, &error),
		 &error);
}

/* -- the server ------------------------------------------------------------------------------------------- */

/* Number of the message that each posted receive must get. */
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
	const uint64_t *words = region_words(end, ARRIVALS + done->user_data * MESSAGE_MAX);
	const struct question *question = (const struct question *)words;

	if (sends) {
		check_number(done->bytes, message_length(number));
		compare(words, done->bytes, number, 0, "message");
		return;
	}
	check_number(done->bytes, sizeof(*question));
	check(question->slot < SLOTS);
	compare(region_words(end, question->slot * SLOT), SLOT, question->round, question->slot, "round");
	send_control(end, TAG_WHOLE, &question->slot, sizeof(question->slot));
}

/*
 * Receives until the client's books and all messages counted in the books are here.  The books have another tag, so
 * they may overtake messages that wait for a receive.  Returns the number of messages.
 */
static uint64_t receive_all(struct end *end, struct receives *receives, bool sends)
{
	struct pollfd ready = { .fd = pl_fd(end->context), .events = POLLIN };
	const struct books *books = pl_region_address(end->words);
	struct pl_operation *closing = receive_control(end, TAG_END);
	time_t limit = 0;
	uint64_t count = 0;
	struct pl_error error;
	struct pl_completion done;
	int rc = -EINPROGRESS;

	do {
		if (!end->told && signalled()) {
			end->told = true;
			send_control(end, TAG_ENOUGH, "", 0);
		}
		if (rc == -EINPROGRESS) {
			rc = pl_test(closing, NULL, &error);
			limit = time(NULL) + LIMIT / SECOND;
		}
		for (; pl_poll(end->context, &done, 1) > 0; count++) {
			unsigned slot = (unsigned)done.user_data;

			check_completion(end->context, &done, 0);
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
		pattern_fill_words(region_words(end, i * SLOT), SLOT, 0, i);
	check_ok(pl_region_share(end->region, NULL, token, &length, &error), &error);
	send_control(end, TAG_TOKEN, token, length);
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
	check_number(await_control(receive_control(end, TAG_HELLO), LIMIT), sizeof(*books));
	for (unsigned i = 0; i < RECEIVES; i++)
		post_next(end, &receives, i);
	/* The client waits for the token. */
	share_slots(end);
	count = receive_all(end, &receives, books->sends);
	if (books->sends)
		check_number(count, books->count);
	for (unsigned i = 0; !books->sends && i < SLOTS; i++)
		compare(region_words(end, i * SLOT), SLOT, books->rounds[i], i, "round");
	send_control(end, TAG_AGREED, "", 0);
	await_leave(end);
}

/* -- the client ------------------------------------------------------------------------------------------- */

/* Returns true if the server has asked the client to end. */
static bool asked_to_end(struct end *end, struct pl_operation **told)
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

static void ask_slot(struct end *end, const struct question *question)
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
	pattern_fill_words(region_words(end, slot * SLOT), SLOT, ++books->rounds[slot], slot);
	check_ok(pl_write(end->peer, &(struct pl_transfer){ remote, slot * SLOT, end->region, slot * SLOT, SLOT },
			  &attributes, NULL, &error),
		 &error);
	books->count++;
}

static void write_slots(struct end *end, struct pl_remote *remote, struct books *books)
{
	struct pl_operation *told = receive_control(end, TAG_ENOUGH);
	bool busy_slots[SLOTS] = { false };
	unsigned busy = 0, turn = 0, slot;
	struct pl_completion done;

	for (unsigned i = 0; i < DEPTH; i++)
		post_receive(end, TAG_WHOLE, i);
	while (!asked_to_end(end, &told) || busy) {
		if (!end->told && busy < DEPTH && !busy_slots[turn]) {
			const struct question question = { turn, books->rounds[turn] };

			ask_slot(end, &question);
			busy_slots[turn] = true;
			turn = (turn + 1) % SLOTS;
			busy++;
			continue;
		}
		done = await_completion(end);
		slot = (unsigned)done.user_data;
		if (done.kind == PL_KIND_RECEIVE) {
			write_next(end, remote, books, *region_words(end, ARRIVALS + slot * MESSAGE_MAX));
			post_receive(end, TAG_WHOLE, slot);
		}
		if (done.kind == PL_KIND_WRITE) {
			busy_slots[slot] = false;
			busy--;
		}
	}
}

static void send_messages(struct end *end, struct books *books)
{
	struct pl_operation *told = receive_control(end, TAG_ENOUGH);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	bool free_slots[SLOTS];
	unsigned busy = 0;
	struct pl_error error;

	memset(free_slots, true, sizeof(free_slots));
	while (!asked_to_end(end, &told) || busy) {
		uint64_t number = books->count;
		unsigned slot = number % SLOTS;

		if (!end->told && free_slots[slot]) {
			pattern_fill_words(region_words(end, slot * SLOT), message_length(number), number, 0);
			attributes.user_data = slot;
			check_ok(pl_send(end->peer, TAG_DATA,
					 &(struct pl_buffer){ end->region, slot * SLOT, message_length(number) },
					 &attributes, NULL, &error),
				 &error);
			free_slots[slot] = false;
			books->count++;
			busy++;
			continue;
		}
		free_slots[await_completion(end).user_data] = true;
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

	check_ok(pl_connect(end->context, address, LIMIT, &end->peer, &error), &error);
	token = receive_control(end, TAG_TOKEN);
	send_control(end, TAG_HELLO, &books, sizeof(books));
	length = await_control(token, LIMIT);
	check_ok(pl_remote_import(end->peer, pl_region_address(end->words), length, 0, &remote, &error), &error);
	if (sends)
		send_messages(end, &books);
	else
		write_slots(end, remote, &books);
	agreed = receive_control(end, TAG_AGREED);
	send_control(end, TAG_END, &books, sizeof(books));
	await_control(agreed, LIMIT);
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
	/* Blocks the signal before any thread is created. */
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
