/* SPDX-License-Identifier: BSD-2-Clause */
/* The plugin between two processes, over the fabric that PEERLANE_FABRIC names. */
#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ends.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"

#define MIDDLE ((size_t)1 << 20)
#define LENGTH ((size_t)8 << 20)
/* Place of the address, as text, in the plugin's handle. */
#define HANDLE_ADDRESS 32
/* Its nonce, and the number of its listener. */
#define HANDLE_NONCE 24
#define HANDLE_LISTENER 96

static void end_open(struct end *end, bool sends)
{
	driver_open(&end->driver, 11);
	end->comm = sends ? end_send_comm(end) : end_receive_comm(end);
	end->data = calloc(1, LENGTH);
	check(end->data);
	end->memory = driver_register(&end->driver, end->comm, end->data, LENGTH);
}

static void end_close(struct end *end, bool sends)
{
	driver_deregister(&end->driver, end->comm, end->memory);
	free(end->data);
	if (sends)
		driver_close_send(&end->driver, end->comm);
	else
		driver_close_receive(&end->driver, end->comm);
	driver_close(&end->driver);
}

/* Verbs need a device, as in the virtual machines, or the stand-in card with a cable for the processes. */
static bool has_rdma_device(void)
{
	DIR *folder = opendir("/sys/class/infiniband");
	const struct dirent *entry = NULL;

	while (folder && (entry = readdir(folder)) && entry->d_name[0] == '.')
		continue;
	if (folder)
		closedir(folder);
	return entry;
}

static void use_fabric(const void *fabric)
{
	if (!strcmp(fabric, "verbs") && !has_rdma_device() && !getenv("STANDIN_CABLE")) {
		fprintf(stderr, "there is no RDMA device\n");
		exit(SKIPPED);
	}
	check_number(setenv("PEERLANE_FABRIC", fabric, 1), 0);
}

/* -- messages ------------------------------------------------------------------------------------- */

static const size_t sizes[] = { 0, 1, 8, 992, 993, 4096, 16384, 16385, 65536, 262144, 262145, MIDDLE, LENGTH };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void sizes_receive(struct end *end)
{
	for (unsigned i = 0; i < 2 * SIZES; i++) {
		size_t size = sizes[i / 2], room = i % 2 ? LENGTH : size;
		void *request;

		memset(end->data, 0, LENGTH);
		request = driver_must_receive(&end->driver, end->comm, end->data, room, end->memory);
		check_number(driver_finish(&end->driver, request), size);
		check(content_is(end->data, size, i));
		for (size_t at = size; at < room; at++)
			check(end->data[at] == 0);
	}
}

static void sizes_send(struct end *end)
{
	for (unsigned i = 0; i < 2 * SIZES; i++) {
		content_fill(end->data, sizes[i / 2], i);
		driver_finish(&end->driver,
			      driver_must_send(&end->driver, end->comm, end->data, sizes[i / 2], end->memory));
	}
}

static void sizes_receiver(struct end *end)
{
	end_open(end, false);
	sizes_receive(end);
	end_close(end, false);
}

static void sizes_sender(struct end *end)
{
	end_open(end, true);
	sizes_send(end);
	/* The last message arrives although the sender ends at once. */
	end_close(end, true);
}

static void case_sizes(void *fabric)
{
	struct end end;

	use_fabric(fabric);
	start_child(&end, sizes_receiver);
	sizes_sender(&end);
	check_number(process_wait(end.other), 0);
}

/* Streams of messages, with several in flight, the oldest of which is tested. */
#define STREAM 240u
#define WINDOW 8u

static size_t stream_size(unsigned number)
{
	return number % 3 == 2 ? 64 + number : MIDDLE - number * 128;
}

static void stream_receiver(struct end *end)
{
	void *requests[WINDOW];

	end_open(end, false);
	for (unsigned i = 0; i < STREAM + WINDOW; i++) {
		uint8_t *slot = end->data + i % WINDOW * MIDDLE;

		if (i >= WINDOW) {
			unsigned number = i - WINDOW;

			check_number(driver_finish(&end->driver, requests[i % WINDOW]), stream_size(number));
			check(content_is(slot, stream_size(number), number));
		}
		if (i < STREAM)
			requests[i % WINDOW] = driver_must_receive(&end->driver, end->comm, slot, MIDDLE, end->memory);
	}
	end_close(end, false);
}

static void case_stream(void *fabric)
{
	void *requests[WINDOW];
	struct end end;

	use_fabric(fabric);
	start_child(&end, stream_receiver);
	end_open(&end, true);
	for (unsigned i = 0; i < STREAM + WINDOW; i++) {
		uint8_t *slot = end.data + i % WINDOW * MIDDLE;

		if (i >= WINDOW)
			driver_finish(&end.driver, requests[i % WINDOW]);
		if (i >= STREAM)
			continue;
		content_fill(slot, stream_size(i), i);
		requests[i % WINDOW] = driver_must_send(&end.driver, end.comm, slot, stream_size(i), end.memory);
	}
	end_close(&end, true);
	check_number(process_wait(end.other), 0);
}

/* Many comms, in both directions, share the connection. */
#define COMMS 64

static void exchange_comms(struct end *end, bool first, void *sends[COMMS], void *receives[COMMS])
{
	unsigned descriptors = 0;

	for (unsigned i = 0; i < COMMS; i++) {
		if (first) {
			sends[i] = end_send_comm(end);
			receives[i] = end_receive_comm(end);
		} else {
			receives[i] = end_receive_comm(end);
			sends[i] = end_send_comm(end);
		}
		/* Lanes of the first connections may still open. */
		if (i == COMMS / 2)
			descriptors = open_descriptors();
	}
	check(open_descriptors() <= descriptors + 4);
}

static void move_both_ways(struct end *end, void *send_comm, void *receive_comm, unsigned number, bool first)
{
	static uint8_t from[20000], to[20000];
	struct driver *driver = &end->driver;
	void *from_memory = driver_register(driver, send_comm, from, sizeof(from));
	void *to_memory = driver_register(driver, receive_comm, to, sizeof(to));
	void *send, *receive;

	content_fill(from, sizeof(from), number * 2 + first);
	receive = driver_must_receive(driver, receive_comm, to, sizeof(to), to_memory);
	send = driver_must_send(driver, send_comm, from, sizeof(from), from_memory);
	driver_finish(driver, send);
	check_number(driver_finish(driver, receive), sizeof(to));
	check(content_is(to, sizeof(to), number * 2 + !first));
	driver_deregister(driver, send_comm, from_memory);
	driver_deregister(driver, receive_comm, to_memory);
}

static void many_comms(struct end *end, bool first)
{
	void *sends[COMMS], *receives[COMMS];

	driver_open(&end->driver, 11);
	exchange_comms(end, first, sends, receives);
	for (unsigned i = 0; i < COMMS; i++)
		move_both_ways(end, sends[i], receives[i], i, first);
	end_meet(end);
	for (unsigned i = 0; i < COMMS; i++) {
		driver_close_send(&end->driver, sends[i]);
		driver_close_receive(&end->driver, receives[i]);
	}
	driver_close(&end->driver);
}

static void many_comms_receiver(struct end *end)
{
	many_comms(end, false);
}

static void case_many_comms(void *fabric)
{
	struct end end;

	use_fabric(fabric);
	start_child(&end, many_comms_receiver);
	many_comms(&end, true);
	check_number(process_wait(end.other), 0);
}

/* Several processes connect and send their greetings while NCCL does not call the receiver. */
static void case_several_at_once(void *fabric)
{
	enum { SENDERS = 4 };
	struct end ends[SENDERS];
	struct driver driver;

	use_fabric(fabric);
	for (int i = 0; i < SENDERS; i++)
		start_child(&ends[i], sizes_sender);
	driver_open(&driver, 11);
	for (int i = 0; i < SENDERS; i++) {
		ends[i].driver = driver;
		ends[i].comm = end_begin_listening(&ends[i]);
	}
	nanosleep(&(struct timespec){ .tv_nsec = 700000000 }, NULL);
	for (int i = 0; i < SENDERS; i++)
		ends[i].comm = end_accept(&ends[i], ends[i].comm);
	for (int i = 0; i < SENDERS; i++) {
		ends[i].data = calloc(1, LENGTH);
		check(ends[i].data);
		ends[i].memory = driver_register(&driver, ends[i].comm, ends[i].data, LENGTH);
		sizes_receive(&ends[i]);
		driver_deregister(&driver, ends[i].comm, ends[i].memory);
		driver_close_receive(&driver, ends[i].comm);
		free(ends[i].data);
		check_number(process_wait(ends[i].other), 0);
	}
	driver_close(&driver);
}

/* -- faults --------------------------------------------------------------------------------------- */

static void killed_receiver(struct end *end)
{
	end_open(end, false);
	driver_must_receive(&end->driver, end->comm, end->data, LENGTH, end->memory);
	driver_must_receive(&end->driver, end->comm, end->data, LENGTH, end->memory);
	end_meet(end);
	pause();
}

/* The receiver dies with messages under way. All calls then fail, and a new connection to another process works. */
static void case_receiver_killed(void *fabric)
{
	struct end end, second;
	struct patience patience;
	enum net_result rc;
	void *request;

	use_fabric(fabric);
	start_child(&end, killed_receiver);
	/* Before this process has threads: ThreadSanitizer wants it so. */
	start_child(&second, sizes_receiver);
	end_open(&end, true);
	end_meet(&end);
	driver_must_send(&end.driver, end.comm, end.data, LENGTH, end.memory);
	process_kill(end.other, SIGKILL);
	patience_begin(&patience, 30);
	do {
		rc = driver_send(&end.driver, end.comm, end.data, LENGTH, end.memory, &request);
		patience_wait(&patience);
	} while (rc == NET_SUCCESS);
	check_number(rc, NET_REMOTE_ERROR);
	driver_deregister(&end.driver, end.comm, end.memory);
	driver_close_send(&end.driver, end.comm);
	second.driver = end.driver;
	second.data = end.data;
	second.comm = end_send_comm(&second);
	second.memory = driver_register(&second.driver, second.comm, second.data, LENGTH);
	sizes_send(&second);
	end_close(&second, true);
	check_number(process_wait(second.other), 0);
}

static void killed_sender(struct end *end)
{
	end_open(end, true);
	end_meet(end);
	pause();
}

static void case_sender_killed(void *fabric)
{
	struct end end;
	void *request;

	use_fabric(fabric);
	start_child(&end, killed_sender);
	end_open(&end, false);
	request = driver_must_receive(&end.driver, end.comm, end.data, LENGTH, end.memory);
	end_meet(&end);
	process_kill(end.other, SIGKILL);
	check_number(driver_wait_failure(&end.driver, request), NET_REMOTE_ERROR);
	end_close(&end, false);
}

#define STOPPED_MESSAGES 4

static void stopped_receiver(struct end *end)
{
	void *requests[STOPPED_MESSAGES];

	end_open(end, false);
	for (unsigned i = 0; i < STOPPED_MESSAGES; i++)
		requests[i] = driver_must_receive(&end->driver, end->comm, end->data + i * MIDDLE, MIDDLE, end->memory);
	end_meet(end);
	for (unsigned i = 0; i < STOPPED_MESSAGES; i++) {
		check_number(driver_finish(&end->driver, requests[i]), MIDDLE);
		check(content_is(end->data + i * MIDDLE, MIDDLE, i));
	}
	end_close(end, false);
}

/* A stopped process delays its peers, and nothing fails. */
static void case_receiver_stopped(void *fabric)
{
	bool finished[STOPPED_MESSAGES] = { false };
	void *requests[STOPPED_MESSAGES];
	struct end end;
	uint64_t until;
	int done;

	use_fabric(fabric);
	start_child(&end, stopped_receiver);
	end_open(&end, true);
	end_meet(&end);
	/* Takes the posted receives. */
	content_fill(end.data, MIDDLE, 0);
	requests[0] = driver_must_send(&end.driver, end.comm, end.data, MIDDLE, end.memory);
	process_stop(end.other);
	for (unsigned i = 1; i < STOPPED_MESSAGES; i++) {
		content_fill(end.data + i * MIDDLE, MIDDLE, i);
		requests[i] = driver_must_send(&end.driver, end.comm, end.data + i * MIDDLE, MIDDLE, end.memory);
	}
	until = clock_now() + 2000000000ull;
	while (clock_now() < until) {
		for (unsigned i = 0; i < STOPPED_MESSAGES; i++) {
			if (finished[i])
				continue;
			check_number(driver_test(&end.driver, requests[i], &done, NULL), NET_SUCCESS);
			finished[i] = done;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	check_number(kill(end.other, SIGCONT), 0);
	for (unsigned i = 0; i < STOPPED_MESSAGES; i++)
		if (!finished[i])
			driver_finish(&end.driver, requests[i]);
	end_close(&end, true);
	check_number(process_wait(end.other), 0);
}

/* Both ends abort with messages under way. The receiver's memory then belongs to the program again. */
static void aborting_receiver(struct end *end)
{
	end_open(end, false);
	for (unsigned i = 0; i < 4; i++)
		driver_must_receive(&end->driver, end->comm, end->data + i * MIDDLE, MIDDLE, end->memory);
	end_meet(end);
	driver_deregister(&end->driver, end->comm, end->memory);
	memset(end->data, 0xcc, LENGTH);
	end_meet(end);
	for (size_t at = 0; at < LENGTH; at++)
		check(end->data[at] == 0xcc);
	free(end->data);
	driver_close_receive(&end->driver, end->comm);
	driver_close(&end->driver);
}

static void case_abort(void *fabric)
{
	void *request;
	struct end end;

	use_fabric(fabric);
	start_child(&end, aborting_receiver);
	end_open(&end, true);
	content_fill(end.data, LENGTH, 1);
	request = driver_must_send(&end.driver, end.comm, end.data, MIDDLE, end.memory);
	check(request);
	end_meet(&end);
	/* The receiver may have revoked the memory already. */
	for (unsigned i = 1; i < 4; i++)
		driver_send(&end.driver, end.comm, end.data + i * MIDDLE, MIDDLE, end.memory, &request);
	driver_deregister(&end.driver, end.comm, end.memory);
	free(end.data);
	end_meet(&end);
	driver_close_send(&end.driver, end.comm);
	driver_close(&end.driver);
	check_number(process_wait(end.other), 0);
}

/* A stranger connects to the port before the sender, and sends bytes that are not Peerlane's. */
static void connect_stranger(const uint8_t handle[NET_HANDLE_SIZE], int descriptors[4])
{
	const char *address = (const char *)handle + HANDLE_ADDRESS;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	check(!strncmp(address, "127.0.0.1:", 10));
	to.sin_port = htons((uint16_t)atoi(address + 10));
	for (int i = 0; i < 4; i++) {
		descriptors[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		check_number(connect(descriptors[i], (struct sockaddr *)&to, sizeof(to)), 0);
		if (i % 2)
			check_number(send(descriptors[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
	}
}

static void case_stranger(void *fabric)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	void *listener, *comm = NULL;
	int descriptors[4];
	struct end end;

	use_fabric(fabric);
	start_child(&end, killed_sender);
	driver_open(&end.driver, 11);
	driver_listen(&end.driver, handle, &listener);
	connect_stranger(handle, descriptors);
	end_put(&end, handle, sizeof(handle));
	patience_begin(&patience, 30);
	while (!comm) {
		check_number(driver_accept(&end.driver, listener, &comm), NET_SUCCESS);
		patience_wait(&patience);
	}
	process_kill(end.other, SIGKILL);
	for (int i = 0; i < 4; i++)
		close(descriptors[i]);
	driver_close_listen(&end.driver, listener);
	driver_close_receive(&end.driver, comm);
	driver_close(&end.driver);
}

/* Peerlane without a key lets anybody connect, so a stranger can send any notification. */
#define HOSTILE_MESSAGES 6000u
#define HOSTILE_BYTES ((size_t)48)

static uint64_t hostile_message(uint32_t words[12], size_t *bytes, unsigned *seed)
{
	uint64_t value = 1ull << 32 | (1 + (unsigned)rand_r(seed) % 12);
	size_t length = HOSTILE_BYTES;

	for (unsigned i = 0; i < 12; i++)
		words[i] = i < 3 || rand_r(seed) % 4 ? (unsigned)rand_r(seed) % 6 : (unsigned)rand_r(seed);
	/* A reserved word. */
	words[3] = 0;
	switch (rand_r(seed) % 64) {
	case 0:
		length = (unsigned)rand_r(seed) % HOSTILE_BYTES;
		break;
	case 1:
		words[(unsigned)rand_r(seed) % 4] = (unsigned)rand_r(seed);
		break;
	case 2:
	case 3:
	case 4:
		value = (unsigned)rand_r(seed) % 4096;
		length = 0;
		break;
	case 5:
	case 6:
		value = 1ull << 62 | (uint64_t)(unsigned)rand_r(seed) << 22 | (unsigned)rand_r(seed) % 256;
		length = 0;
		break;
	}
	*bytes = length;
	return value;
}

/* What a stranger has of one connection. */
struct hostile {
	struct pl_context *context;
	struct pl_peer *peer;
	const uint8_t *handle; /* of the plugin's listener */
	struct pl_remote *inbox; /* of the plugin; NULL: not offered, or not over the local fabric */
	struct pl_region *memory;
	uint64_t written;
};

static void hostile_notify(struct hostile *hostile, unsigned *seed)
{
	uint32_t words[12] = { 0 };
	size_t length;
	uint64_t value = hostile_message(words, &length, seed);

	pl_notify(hostile->peer, value, words, length, NULL, NULL, NULL);
}

/* Offers an inbox of its own, takes that of the plugin, and agrees to send by it. */
static void hostile_map(struct hostile *hostile, const struct pl_completion *notification)
{
	uint8_t offer[32 + PL_TOKEN_MAX] = { 0 };
	size_t length = PL_TOKEN_MAX;

	/* The plugin may have closed the connection. */
	if (pl_remote_import(hostile->peer, (const uint8_t *)notification->data + 32, notification->data_length - 32, 0,
			     &hostile->inbox, NULL) < 0)
		return;
	check_ok(pl_region_share(hostile->memory, NULL, offer + 32, &length, NULL), NULL);
	pl_notify(hostile->peer, 1ull << 32 | 10, offer, 32 + length, NULL, NULL, NULL);
	pl_notify(hostile->peer, 1ull << 32 | 11, offer, 32, NULL, NULL, NULL);
	pl_notify(hostile->peer, 1ull << 32 | 12, offer, 32, NULL, NULL, NULL);
	hostile->written = 0;
}

/* Writes the next message into the inbox, or one that has no place there, or a wrong counter. */
static void hostile_write(struct hostile *hostile, unsigned *seed)
{
	uint64_t *slot = pl_region_address(hostile->memory);
	bool counter = rand_r(seed) % 8 == 0, next = !counter && rand_r(seed) % 16;
	uint64_t number = next ? hostile->written++ : (uint64_t)rand_r(seed);
	struct pl_transfer transfer = { .remote = hostile->inbox,
					.remote_offset = 64 + number % 128 * 1088,
					.region = hostile->memory,
					.length = 24 + HOSTILE_BYTES };
	size_t length;

	slot[0] = number + 1;
	slot[1] = hostile_message((uint32_t *)&slot[3], &length, seed);
	slot[2] = rand_r(seed) % 8 ? length : (uint64_t)rand_r(seed);
	if (counter) {
		transfer.remote_offset = 0;
		transfer.length = 8;
	}
	pl_write(hostile->peer, &transfer, NULL, NULL, NULL);
}

/* Greets the listener as NCCL's sender does: only then the plugin offers its inbox. */
static void hostile_connect(struct hostile *hostile)
{
	uint32_t words[8] = { 0 };

	pl_peer_close(hostile->peer);
	hostile->inbox = NULL;
	check_ok(pl_connect(hostile->context, (const char *)hostile->handle + HANDLE_ADDRESS, 0, &hostile->peer, NULL),
		 NULL);
	memcpy(&words[1], hostile->handle + HANDLE_LISTENER, sizeof(words[1]));
	memcpy(&words[4], hostile->handle + HANDLE_NONCE, sizeof(uint64_t));
	words[6] = 3;
	pl_notify(hostile->peer, 1ull << 32 | 1, words, sizeof(words), NULL, NULL, NULL);
}

static void hostile_poll(struct hostile *hostile)
{
	struct pl_completion taken[16];
	int count;

	do {
		count = pl_poll(hostile->context, taken, 16);
		for (int i = 0; i < count; i++) {
			if (taken[i].kind != PL_KIND_NOTIFIED)
				continue;
			if (taken[i].value == (1ull << 32 | 10) && taken[i].peer == hostile->peer && !hostile->inbox)
				hostile_map(hostile, &taken[i]);
			pl_notification_free(hostile->context, &taken[i]);
		}
	} while (count == 16);
}

static void hostile_sender(struct end *end)
{
	struct pl_options options = PL_OPTIONS_INIT;
	uint8_t handle[NET_HANDLE_SIZE];
	struct hostile hostile = { .handle = handle };
	unsigned seed = 7, inboxes = 0;

	end_get(end, handle, sizeof(handle));
	options.insecure = PL_ON;
	options.fabric = getenv("PEERLANE_FABRIC");
	check_ok(pl_open(&hostile.context, &options, NULL), NULL);
	check_ok(pl_region_allocate(hostile.context, 8 << 20, PL_ACCESS_ALL, &hostile.memory, NULL), NULL);
	for (unsigned i = 0; i < HOSTILE_MESSAGES; i++) {
		struct pl_peer_info info = PL_PEER_INFO_INIT;

		if (hostile.peer)
			pl_peer_query(hostile.peer, &info);
		if (!info.connected)
			hostile_connect(&hostile);
		inboxes += hostile.inbox && hostile.written == 0;
		if (hostile.inbox)
			hostile_write(&hostile, &seed);
		else
			hostile_notify(&hostile, &seed);
		/* A loss shows after a moment. */
		if (i % 16 == 0)
			nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
		hostile_poll(&hostile);
	}
	check(strcmp(options.fabric, "local") || inboxes > 0);
	pl_close(hostile.context);
}

static void case_hostile(void *fabric)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	void *listener, *comm;
	struct end end, hostile;
	int status;

	use_fabric(fabric);
	start_child(&hostile, hostile_sender);
	start_child(&end, sizes_sender);
	driver_open(&end.driver, 11);
	/* A connection of this process with itself, which the stranger's messages must not reach. */
	driver_listen(&end.driver, handle, &listener);
	check_number(driver_connect(&end.driver, handle, &comm), NET_SUCCESS);
	end_put(&hostile, handle, sizeof(handle));
	patience_begin(&patience, 40);
	while (waitpid(hostile.other, &status, WNOHANG) == 0) {
		void *accepted;

		check_number(driver_accept(&end.driver, listener, &accepted), NET_SUCCESS);
		patience_wait(&patience);
	}
	check_number(status, 0);
	end.comm = end_receive_comm(&end);
	end.data = calloc(1, LENGTH);
	check(end.data);
	end.memory = driver_register(&end.driver, end.comm, end.data, LENGTH);
	sizes_receive(&end);
	end_close(&end, false);
	check_number(process_wait(end.other), 0);
}

/* A rank without the plugin never connects: the wait ends with an error. */
static void case_nobody_connects(void *fabric)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	struct driver driver;
	enum net_result rc;
	void *listener, *comm;

	use_fabric(fabric);
	check_number(setenv("PEERLANE_ACCEPT_TIMEOUT", "1", 1), 0);
	driver_open(&driver, 11);
	driver_listen(&driver, handle, &listener);
	patience_begin(&patience, 20);
	while ((rc = driver_accept(&driver, listener, &comm)) == NET_SUCCESS) {
		check(!comm);
		patience_wait(&patience);
	}
	check_number(rc, NET_REMOTE_ERROR);
	check(strstr(driver_warning(), "PEERLANE_ACCEPT_TIMEOUT"));
	driver_close(&driver);
}

/* Connecting takes some calls, and ends with an error. */
static void expect_no_connection(struct driver *driver, uint8_t handle[NET_HANDLE_SIZE])
{
	struct patience patience;
	enum net_result rc;
	void *comm;

	patience_begin(&patience, 20);
	while ((rc = driver_connect(driver, handle, &comm)) == NET_SUCCESS) {
		check(!comm);
		patience_wait(&patience);
	}
	check_number(rc, NET_REMOTE_ERROR);
}

/* A receiver that listens, and does not accept. */
static void case_never_accepted(void *fabric)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct driver driver;
	void *listener;

	use_fabric(fabric);
	check_number(setenv("PEERLANE_ACCEPT_TIMEOUT", "1", 1), 0);
	driver_open(&driver, 11);
	driver_listen(&driver, handle, &listener);
	expect_no_connection(&driver, handle);
	check(strstr(driver_warning(), "cannot connect"));
	driver_close(&driver);
}

/* A receiver that stops to listen before the sender connects. */
static void case_refused(void *fabric)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct driver driver;
	void *listener;

	use_fabric(fabric);
	driver_open(&driver, 11);
	driver_listen(&driver, handle, &listener);
	driver_close_listen(&driver, listener);
	expect_no_connection(&driver, handle);
	driver_close(&driver);
}

/* -- keys ----------------------------------------------------------------------------------------- */

static void use_key_file(const char *key)
{
	char path[] = "/tmp/peerlane-nccl-XXXXXX";
	int fd = mkstemp(path);

	check(fd >= 0);
	check_number(write(fd, key, strlen(key)), strlen(key));
	close(fd);
	check_number(setenv("PEERLANE_KEY_FILE", path, 1), 0);
}

static void remove_key_file(void)
{
	check_number(unlink(getenv("PEERLANE_KEY_FILE")), 0);
}

static void case_encrypted(void *fabric)
{
	use_key_file("kQ7vX2pL9mR4tY8wB3nZ6cF1");
	check_number(setenv("PEERLANE_ENCRYPT", "1", 1), 0);
	case_sizes(fabric);
	remove_key_file();
}

static void refused_sender(struct end *end)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	enum net_result rc;
	void *comm;

	check_number(unsetenv("PEERLANE_KEY_FILE"), 0);
	driver_open(&end->driver, 11);
	end_get(end, handle, sizeof(handle));
	patience_begin(&patience, 30);
	while ((rc = driver_connect(&end->driver, handle, &comm)) == NET_SUCCESS) {
		check(!comm);
		patience_wait(&patience);
	}
	check_number(rc, NET_REMOTE_ERROR);
	driver_close(&end->driver);
}

static void case_without_key(void *fabric)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct end end;
	void *listener;

	use_fabric(fabric);
	use_key_file("kQ7vX2pL9mR4tY8wB3nZ6cF1");
	start_child(&end, refused_sender);
	driver_open(&end.driver, 11);
	driver_listen(&end.driver, handle, &listener);
	end_put(&end, handle, sizeof(handle));
	check_number(process_wait(end.other), 0);
	driver_close_listen(&end.driver, listener);
	driver_close(&end.driver);
	remove_key_file();
}

#define FABRIC_CASES(fabric) \
	{ "sizes_" fabric, case_sizes, fabric, 30 }, { "stream_" fabric, case_stream, fabric, 60 }, \
		{ "many_comms_" fabric, case_many_comms, fabric, 60 }, \
		{ "receiver_killed_" fabric, case_receiver_killed, fabric, 60 }, \
		{ "sender_killed_" fabric, case_sender_killed, fabric, 40 }, \
		{ "receiver_stopped_" fabric, case_receiver_stopped, fabric, 60 }, \
		{ "abort_" fabric, case_abort, fabric, 40 }, { "stranger_" fabric, case_stranger, fabric, 40 }, \
	{ \
		"hostile_" fabric, case_hostile, fabric, 60 \
	}

int main(void)
{
	static const struct test_case cases[] = {
		FABRIC_CASES("tcp"),
		FABRIC_CASES("local"),
		FABRIC_CASES("verbs"),
		{ "several_at_once", case_several_at_once, "tcp", 60 },
		{ "nobody_connects", case_nobody_connects, "tcp", 30 },
		{ "never_accepted", case_never_accepted, "tcp", 30 },
		{ "refused", case_refused, "tcp", 30 },
		{ "encrypted", case_encrypted, "tcp", 40 },
		{ "without_key", case_without_key, "tcp", 40 },
	};

	return cases_run("nccl_peers", cases, sizeof(cases) / sizeof(cases[0]));
}
