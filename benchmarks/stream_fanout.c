/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stream_fanout FABRIC BYTES SECONDS SUBSCRIBERS [PERIOD [SLOTS]]: cost of a stream's publisher by its number of subscribers, each a
 * process of this host that does not hold slots back. The publisher fills each frame. PERIOD: microseconds from one frame to
 * the next; 0: at full speed. Prints a JSON object: frames a second; mean, median and 99th percentile of the nanoseconds that
 * the calls of the loan and of the publication take together; mean nanoseconds of the fill; processor time of the publishing
 * thread and of its process for each frame; times that the thread slept in calls for each frame; and the frames a second that
 * a subscriber gets, and the microseconds from publication to take (means).
 *
 * With FABRIC raw nothing of the library is used: each reader copies the newest frame from memory that all processes map, and
 * polls for the next one. So the fill shows what the readers' copies cost the writer: shared caches and memory bandwidth.
 */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "base/lock.h"

#define TIMEOUT (60 * NS_PER_S)
#define TIMES_MAX 4000000u
#define SUBSCRIBERS_MAX 256u

struct run {
	const char *fabric;
	size_t bytes;
	double seconds;
	unsigned subscribers, slots;
	uint64_t period; /* nanoseconds */
};

/* Memory that all processes share. */
struct shared {
	atomic_uint ready;           /* readers of the raw arm that have begun */
	atomic_bool over;            /* raw arm: no further frame */
	_Atomic uint64_t published;  /* raw arm: number of frames */
	_Atomic uint64_t taken[SUBSCRIBERS_MAX];
	_Atomic uint64_t latency[SUBSCRIBERS_MAX]; /* sum over all frames taken, in nanoseconds */
};

static struct shared *shared;
static uint64_t *times;

static void *map_shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		give_up("mmap", -errno, NULL);
	return memory;
}

static struct pl_context *open_end(const struct run *run)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.fabric = run->fabric;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

static void subscribe(const struct run *run, unsigned number, const char *address)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_context *context = open_end(run);
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct pl_peer *peer;

	MUST(pl_connect(context, address, TIMEOUT, &peer, &error), &error);
	MUST(pl_subscriber_open(peer, "fanout", &options, TIMEOUT, &subscriber, &error), &error);
	while (pl_subscriber_take(subscriber, &frame, 1, TIMEOUT, &error) == 1) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		pl_frame_query(frame, &info);
		pl_frame_release(frame);
		atomic_fetch_add_explicit(&shared->taken[number], 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&shared->latency[number], info.taken - info.published, memory_order_relaxed);
	}
	pl_close(context);
}

static void read_raw(const struct run *run, unsigned number, const char *ring)
{
	char *copy = malloc(run->bytes);
	uint64_t seen = 0;

	memset(copy, 1, run->bytes);
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load_explicit(&shared->over, memory_order_relaxed)) {
		uint64_t published = atomic_load_explicit(&shared->published, memory_order_acquire);

		if (published == seen) {
			pl_relax();
			continue;
		}
		seen = published;
		memcpy(copy, ring + (seen - 1) % run->slots * run->bytes, run->bytes);
		atomic_fetch_add_explicit(&shared->taken[number], 1, memory_order_relaxed);
	}
	free(copy);
}

/* Cost of the publishing thread. */
struct cost {
	uint64_t frames, calls, fills, wall, thread, process;
	long sleeps;
};

static uint64_t thread_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

static uint64_t await_period(const struct run *run, uint64_t begin, uint64_t frames)
{
	uint64_t at = begin + frames * run->period;
	const struct timespec until = { .tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S) };

	if (run->period)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	return now_ns();
}

/* Publishes for the run's time. `publisher` NULL: the raw arm, with this ring. */
static struct cost publish_frames(const struct run *run, struct pl_publisher *publisher, char *ring)
{
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct cost cost = { 0 };
	struct rusage usage;
	uint64_t begin = now_ns(), now = begin;

	frame_options.length = run->bytes;
	getrusage(RUSAGE_THREAD, &usage);
	cost.sleeps = usage.ru_nvcsw;
	cost.thread = thread_ns();
	cost.process = processor_ns();
	for (; now - begin < run->seconds * NS_PER_S; cost.frames++) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;
		struct pl_stream_frame *frame = NULL;
		uint64_t start = await_period(run, begin, cost.frames), loaned, filled;
		struct pl_error error;

		if (publisher) {
			MUST(pl_publisher_loan(publisher, TIMEOUT, &frame, &error), &error);
			pl_frame_query(frame, &info);
		} else {
			info.data = ring + cost.frames % run->slots * run->bytes;
		}
		loaned = now_ns();
		memset(info.data, (int)cost.frames, run->bytes);
		filled = now_ns();
		if (publisher)
			MUST(pl_frame_publish(frame, &frame_options, &error), &error);
		else
			atomic_store_explicit(&shared->published, cost.frames + 1, memory_order_release);
		now = now_ns();
		times[cost.frames % TIMES_MAX] = loaned - start + now - filled;
		cost.calls += loaned - start + now - filled;
		cost.fills += filled - loaned;
	}
	cost.wall = now - begin;
	cost.thread = thread_ns() - cost.thread;
	cost.process = processor_ns() - cost.process;
	getrusage(RUSAGE_THREAD, &usage);
	/* Each pause is a sleep. */
	cost.sleeps = usage.ru_nvcsw - cost.sleeps - (run->period ? (long)cost.frames : 0);
	return cost;
}

static void print_cost(const struct run *run, const struct cost *cost)
{
	size_t count = cost->frames < TIMES_MAX ? cost->frames : TIMES_MAX;
	double frames = (double)cost->frames, taken = 0, latency = 0;

	for (unsigned i = 0; i < run->subscribers; i++) {
		taken += (double)atomic_load(&shared->taken[i]);
		latency += (double)atomic_load(&shared->latency[i]);
	}
	sort_times(times, count);
	printf("{\"frames_per_second\": %.0f, \"calls_ns\": %.0f, \"calls_p50_ns\": %llu, \"calls_p99_ns\": %llu, "
	       "\"fill_ns\": %.0f, \"thread_ns\": %.0f, \"process_ns\": %.0f, \"sleeps\": %.3f, \"taken_per_second\": "
	       "%.0f, "
	       "\"latency_us\": %.1f}\n",
	       frames * NS_PER_S / (double)cost->wall, (double)cost->calls / frames,
	       (unsigned long long)times[count / 2], (unsigned long long)times[count * 99 / 100],
	       (double)cost->fills / frames, (double)cost->thread / frames, (double)cost->process / frames,
	       (double)cost->sleeps / frames,
	       run->subscribers ? taken / run->subscribers * NS_PER_S / (double)cost->wall : 0,
	       taken > 0 ? latency / taken / 1000 : 0);
}

static void publish_raw(const struct run *run)
{
	char *ring = map_shared(run->slots * run->bytes);
	struct cost cost;

	for (unsigned i = 0; i < run->subscribers; i++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		read_raw(run, i, ring);
		_exit(0);
	}
	while (atomic_load(&shared->ready) < run->subscribers)
		usleep(1000);
	cost = publish_frames(run, NULL, ring);
	atomic_store(&shared->over, true);
	print_cost(run, &cost);
}

static void publish_stream(const struct run *run, const int address_pipe[2])
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_context *context = open_end(run);
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];
	struct cost cost;

	options.slot_bytes = run->bytes;
	options.slots = run->slots;
	MUST(pl_publisher_open(context, "fanout", &options, &publisher, &error), &error);
	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	for (unsigned i = 0; i < run->subscribers; i++)
		put(address_pipe[1], address, sizeof(address));
	for (unsigned i = 0; i < run->subscribers; i++)
		MUST(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	for (; info.subscribers < run->subscribers; usleep(1000))
		pl_publisher_query(publisher, &info);
	cost = publish_frames(run, publisher, NULL);
	print_cost(run, &cost);
	pl_publisher_end(publisher, 0, NULL);
	pl_close(context);
}

int main(int argc, char **argv)
{
	struct run run = { .slots = 64 };
	int address_pipe[2];
	char address[96];

	if (argc < 5) {
		fprintf(stderr, "usage: stream_fanout local|tcp|raw BYTES SECONDS SUBSCRIBERS [PERIOD [SLOTS]]\n");
		return 2;
	}
	run.fabric = argv[1];
	run.bytes = strtoull(argv[2], NULL, 10);
	run.seconds = strtod(argv[3], NULL);
	run.subscribers = (unsigned)atoi(argv[4]);
	if (argc > 5)
		run.period = strtoull(argv[5], NULL, 10) * 1000;
	if (argc > 6)
		run.slots = (unsigned)atoi(argv[6]);
	if (run.subscribers > SUBSCRIBERS_MAX || run.bytes < 1 || run.slots < 2) {
		fprintf(stderr, "stream_fanout: at most %u subscribers, and at least 1 byte and 2 slots\n",
			SUBSCRIBERS_MAX);
		return 2;
	}
	shared = map_shared(sizeof(*shared));
	times = malloc(TIMES_MAX * sizeof(*times));
	if (!times || pipe(address_pipe) < 0)
		return 1;
	if (!strcmp(run.fabric, "raw")) {
		publish_raw(&run);
	} else {
		for (unsigned i = 0; i < run.subscribers; i++) {
			if (fork())
				continue;
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			get(address_pipe[0], address, sizeof(address));
			subscribe(&run, i, address);
			_exit(0);
		}
		publish_stream(&run, address_pipe);
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
