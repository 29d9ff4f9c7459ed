/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ucx_blocks read|write SIZE BLOCKS DEPTH SECONDS: the requests of `peerlane bench kv` with UCX, between two processes.  A
 * request is one get or put a block, from and to scattered blocks.  An active message notifies the target once all
 * blocks are in place: behind the last get, or behind a flush of the puts.  Both processes poll.  Prints JSON.
 */
#include "support.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#define DEPTH_MAX 64u
#define TIMES_MAX 4000000u
#define NOTIFY_ID 7u
#define POLLS_BETWEEN_LOOKS 1000u
#define WORD(seed, block, at) (((block) + (seed)) * 0x9e3779b97f4a7c15ull + (at))

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_mem_h memory;
static uint8_t *bytes;
static size_t size, blocks, depth, slots;
static uint32_t *local_slots, *remote_slots; /* by block */
static volatile uint64_t notified;

struct arm {
	size_t pending; /* blocks, or 1: the flush or the notification */
	uint64_t begun; /* time from which the request could run: a get or put may move the bytes within its call */
	enum { IDLE, BLOCKS, FLUSH, NOTIFY } state;
};

static struct initiator {
	ucp_ep_h ep;
	ucp_rkey_h rkey;
	uint64_t remote; /* address of the target's memory */
	bool write;
	struct arm arms[DEPTH_MAX];
	uint64_t *times, requests;
} initiator;

struct target_memory {
	uint64_t address;
	uint32_t worker_length, key_length;
};

static void check(const char *call, ucs_status_t status)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "%s: %s\n", call, ucs_status_string(status));
	exit(1);
}

static uint32_t *shuffled(uint32_t state)
{
	uint32_t *order = malloc(slots * sizeof(*order));

	if (!order)
		exit(1);
	for (uint32_t i = 0; i < slots; i++) {
		uint32_t other;

		state = state * 1664525u + 1013904223u;
		other = (uint32_t)((uint64_t)state * (i + 1) >> 32);
		order[i] = order[other];
		order[other] = i;
	}
	return order;
}

static ucs_status_t count_notification(void *argument, const void *header, size_t header_length, void *data,
				       size_t length, const ucp_am_recv_param_t *param)
{
	(void)argument, (void)header, (void)header_length, (void)data, (void)length, (void)param;
	notified++;
	return UCS_OK;
}

static void open_worker(void)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA | UCP_FEATURE_AM };
	ucp_worker_params_t worker_params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					      .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_am_handler_param_t handler = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
					   .id = NOTIFY_ID,
					   .cb = count_notification };
	ucp_mem_map_params_t map = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = slots * size,
		.flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t attributes = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };

	check("ucp_init", ucp_init(&params, NULL, &context));
	check("ucp_worker_create", ucp_worker_create(context, &worker_params, &worker));
	check("ucp_worker_set_am_recv_handler", ucp_worker_set_am_recv_handler(worker, &handler));
	check("ucp_mem_map", ucp_mem_map(context, &map, &memory));
	check("ucp_mem_query", ucp_mem_query(memory, &attributes));
	bytes = attributes.address;
}

static void fill(const uint32_t *order, uint64_t seed)
{
	for (size_t block = 0; block < slots; block++)
		for (size_t at = 0; at + 8 <= size; at += 8) {
			uint64_t word = WORD(seed, block, at);

			memcpy(bytes + order[block] * size + at, &word, sizeof(word));
		}
}

static int filled(const uint32_t *order, uint64_t seed)
{
	for (size_t block = 0; block < slots; block++)
		for (size_t at = 0; at + 8 <= size; at += 8) {
			uint64_t word = WORD(seed, block, at);

			if (memcmp(bytes + order[block] * size + at, &word, sizeof(word)))
				return 0;
		}
	return 1;
}

/* -- target ------------------------------------------------------------------------------------------------ */

static void serve(int fd, bool write)
{
	struct target_memory own = { 0 };
	ucp_address_t *address;
	size_t address_length, key_length;
	unsigned polls = 0;
	uint64_t requests;
	int correct;
	void *key;

	open_worker();
	own.address = (uint64_t)(uintptr_t)bytes;
	fill(remote_slots, write ? 2 : 1);
	check("ucp_worker_get_address", ucp_worker_get_address(worker, &address, &address_length));
	check("ucp_rkey_pack", ucp_rkey_pack(context, memory, &key, &key_length));
	own.worker_length = (uint32_t)address_length;
	own.key_length = (uint32_t)key_length;
	put(fd, &own, sizeof(own));
	put(fd, address, address_length);
	put(fd, key, key_length);
	/* The initiator's last message is the number of requests. */
	while (ucp_worker_progress(worker) || ++polls % POLLS_BETWEEN_LOOKS ||
	       recv(fd, &requests, sizeof(requests), MSG_DONTWAIT | MSG_PEEK) != (ssize_t)sizeof(requests))
		;
	get(fd, &requests, sizeof(requests));
	while (notified < requests)
		ucp_worker_progress(worker);
	correct = filled(remote_slots, 1);
	put(fd, &correct, sizeof(correct));
	/* Answers what the initiator still has in flight. */
	while (recv(fd, &requests, sizeof(requests), MSG_DONTWAIT) < 0)
		ucp_worker_progress(worker);
	_exit(0);
}

/* -- initiator --------------------------------------------------------------------------------------------- */

static void part_done(void *request, ucs_status_t status, void *argument)
{
	struct arm *arm = argument;

	check("operation", status);
	arm->pending--;
	ucp_request_free(request);
}

/* Counts an operation that has completed at once. */
static void part_posted(struct arm *arm, ucs_status_ptr_t posted)
{
	if (UCS_PTR_IS_ERR(posted))
		check("posting", UCS_PTR_STATUS(posted));
	if (!posted)
		arm->pending--;
}

static ucp_request_param_t part_params(struct arm *arm)
{
	return (ucp_request_param_t){ .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				      .cb.send = part_done,
				      .user_data = arm };
}

static void post_blocks(struct arm *arm)
{
	size_t first = (size_t)(arm - initiator.arms) * blocks;
	ucp_request_param_t params = part_params(arm);

	arm->state = BLOCKS;
	arm->pending = blocks;
	for (size_t i = first; i < first + blocks; i++) {
		uint64_t remote = initiator.remote + remote_slots[i] * size;
		uint8_t *local = bytes + local_slots[i] * size;

		part_posted(arm, initiator.write
					 ? ucp_put_nbx(initiator.ep, local, size, remote, initiator.rkey, &params)
					 : ucp_get_nbx(initiator.ep, local, size, remote, initiator.rkey, &params));
	}
}

/* Moves a request to its next step while its parts have completed.  Returns 1 if the request has ended. */
static int advance(struct arm *arm)
{
	ucp_request_param_t params = part_params(arm);

	if (arm->state == BLOCKS && arm->pending == 0) {
		arm->state = FLUSH;
		if (initiator.write) {
			arm->pending = 1;
			part_posted(arm, ucp_ep_flush_nbx(initiator.ep, &params));
		}
	}
	if (arm->state == FLUSH && arm->pending == 0) {
		arm->state = NOTIFY;
		arm->pending = 1;
		part_posted(arm, ucp_am_send_nbx(initiator.ep, NOTIFY_ID, NULL, 0, &initiator.requests,
						 sizeof(initiator.requests), &params));
	}
	if (arm->state != NOTIFY || arm->pending)
		return 0;
	arm->state = IDLE;
	return 1;
}

/* Keeps requests in flight until the deadline, and runs each one once.  Returns the number of requests with a time, and the last time in *end. */
static uint64_t run_requests(uint64_t deadline, uint64_t *end)
{
	uint64_t count = 0, now = now_ns();
	size_t running = 0, posted = 0;

	for (size_t i = 0; i < depth; i++)
		initiator.arms[i].begun = now;
	do {
		for (size_t i = 0; i < depth; i++) {
			struct arm *arm = &initiator.arms[i];

			if (arm->state == IDLE && (now < deadline || posted < depth)) {
				post_blocks(arm);
				posted++;
				running++;
			}
			if (arm->state == IDLE || !advance(arm))
				continue;
			now = now_ns();
			if (count < TIMES_MAX)
				initiator.times[count++] = now - arm->begun;
			arm->begun = now;
			initiator.requests++;
			running--;
		}
		ucp_worker_progress(worker);
	} while (running || now < deadline);
	*end = now;
	return count;
}

static void connect_target(int fd)
{
	struct target_memory target;
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	uint8_t address[4096], key[4096];

	get(fd, &target, sizeof(target));
	if (target.worker_length > sizeof(address) || target.key_length > sizeof(key))
		exit(1);
	get(fd, address, target.worker_length);
	get(fd, key, target.key_length);
	params.address = (const ucp_address_t *)address;
	check("ucp_ep_create", ucp_ep_create(worker, &params, &initiator.ep));
	check("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(initiator.ep, key, &initiator.rkey));
	initiator.remote = target.address;
}

/* Returns the processor time of this process and the target, in nanoseconds. */
static uint64_t processor_of_both(clockid_t target)
{
	struct timespec time = { 0 };

	clock_gettime(target, &time);
	return processor_ns() + (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static void measure(int fd, clockid_t target, double seconds)
{
	uint64_t begin, processor, end, count;
	double moved, elapsed;
	int correct;

	open_worker();
	fill(local_slots, initiator.write ? 1 : 2);
	initiator.times = malloc(TIMES_MAX * sizeof(*initiator.times));
	if (!initiator.times)
		exit(1);
	connect_target(fd);
	run_requests(now_ns() + (uint64_t)(seconds * 1e8), &end);
	begin = now_ns();
	processor = processor_of_both(target);
	count = run_requests(begin + (uint64_t)(seconds * 1e9), &end);
	processor = processor_of_both(target) - processor;
	elapsed = (double)(end - begin) / 1e9;
	put(fd, &initiator.requests, sizeof(initiator.requests));
	get(fd, &correct, sizeof(correct));
	if (!initiator.write)
		correct = filled(local_slots, 1);
	sort_times(initiator.times, count);
	moved = (double)(count * blocks * size) / 1e9;
	printf("{\"bytes_per_second\": %.0f, \"requests_per_second\": %.1f, \"p50_us\": %.3f, \"p99_us\": %.3f, "
	       "\"cpu_seconds_per_gigabyte\": %.4f, \"verified\": %s}\n",
	       moved * 1e9 / elapsed, (double)count / elapsed, (double)initiator.times[count / 2] / 1000,
	       (double)initiator.times[count - 1 - count / 100] / 1000, (double)processor / 1e9 / moved,
	       correct ? "true" : "false");
	put(fd, &initiator.requests, sizeof(initiator.requests));
}

int main(int argc, char **argv)
{
	clockid_t clock;
	int fds[2];
	pid_t child;

	if (argc != 6 || (strcmp(argv[1], "read") && strcmp(argv[1], "write"))) {
		fprintf(stderr, "usage: ucx_blocks read|write SIZE BLOCKS DEPTH SECONDS\n");
		return 2;
	}
	initiator.write = !strcmp(argv[1], "write");
	size = strtoull(argv[2], NULL, 10) & ~7ull;
	blocks = strtoull(argv[3], NULL, 10);
	depth = strtoull(argv[4], NULL, 10);
	slots = blocks * depth;
	if (!size || !slots || depth > DEPTH_MAX)
		return 2;
	local_slots = shuffled(1);
	remote_slots = shuffled(2);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
		return 1;
	child = fork();
	if (child == 0) {
		close(fds[0]);
		serve(fds[1], initiator.write);
	}
	close(fds[1]);
	if (child < 0 || clock_getcpuclockid(child, &clock))
		return 1;
	measure(fds[0], clock, strtod(argv[5], NULL));
	waitpid(child, NULL, 0);
	return 0;
}
