/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners: sockets of the caller, connections of strangers at the limit, accepts after the close. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/fabric.h"
#include "core/greeting.h"
#include "core/socket.h"
#include "support/socket.h"

#define STRANGERS_MAX 256
/* Engines of contexts with threads: strangers are those of all engines, and the listener is of the first one. */
#define WORKERS 3
#define PATIENCE (20 * PL_NS_PER_S)

struct rig {
	struct pl_context *context;
	struct pl_listener *listener;
	char address[64];
};

static void rig_open_with(struct rig *rig, enum pl_progress progress)
{
	struct pl_options options = PL_OPTIONS_INIT;

	options.progress = progress;
	options.workers = WORKERS;
	options.connect_timeout = 60 * PL_NS_PER_S;
	options.fabric = "tcp";
	assert_int_equal(pl_open(&rig->context, &options, NULL), 0);
	assert_int_equal(pl_listen(rig->context, "127.0.0.1:0", &rig->listener, NULL), 0);
	assert_true(pl_listener_address(rig->listener, rig->address, sizeof(rig->address)) > 0);
}

static void rig_open(struct rig *rig)
{
	rig_open_with(rig, PL_PROGRESS_THREAD);
}

static void rig_close(struct rig *rig)
{
	pl_listener_close(rig->listener);
	pl_close(rig->context);
}

/* -- connections that have not identified themselves ----------------------------------------------- */

static unsigned count_strangers(struct rig *rig)
{
	unsigned count;

	/* The listener closes others, and takes up a new one, under its engine's lock. */
	pl_engine_lock(rig->listener->engine);
	pthread_mutex_lock(&rig->listener->lock);
	count = rig->listener->greeting_count;
	pthread_mutex_unlock(&rig->listener->lock);
	pl_engine_unlock(rig->listener->engine);
	return count;
}

/* Waits until there are that many, or until a time. Returns true if there are. */
static bool wait_for_strangers_until(struct rig *rig, unsigned count, uint64_t end)
{
	while (count_strangers(rig) != count) {
		if (pl_now() >= end)
			return false;
		usleep(1000);
	}
	return true;
}

static bool is_closed(int fd, int milliseconds)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, milliseconds) == 1;
}

/* Limits the descriptors of this process. Returns the old limit. */
static struct rlimit limit_descriptors(rlim_t descriptors)
{
	struct rlimit old;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){ descriptors, old.rlim_max }) < 0)
		skip();
	return old;
}

/* One more than the descriptors allow costs the oldest its connection, when that is old enough. */
static void strangers_at_most(rlim_t descriptors, unsigned most)
{
	const struct rlimit old = limit_descriptors(descriptors);
	int fds[STRANGERS_MAX + 1];
	struct rig rig;

	rig_open(&rig);
	for (unsigned i = 0; i < most; i++) {
		fds[i] = socket_connect(rig.address);
		assert_true(fds[i] >= 0);
	}
	assert_true(wait_for_strangers_until(&rig, most, pl_now() + PATIENCE));
	usleep(3100000);
	fds[most] = socket_connect(rig.address);
	assert_true(is_closed(fds[0], 20000));
	assert_int_equal(count_strangers(&rig), most);
	for (unsigned i = 1; i <= most; i++)
		assert_false(is_closed(fds[i], 0));
	for (unsigned i = 0; i <= most; i++)
		close(fds[i]);
	rig_close(&rig);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static void test_few_descriptors(void **state)
{
	(void)state;
	strangers_at_most(160, 20);
}

static void test_many_descriptors(void **state)
{
	(void)state;
	strangers_at_most(4096, STRANGERS_MAX);
}

/* Four times as many may connect within three seconds; one more costs the oldest its connection. */
static void test_burst(void **state)
{
	static int fds[4 * STRANGERS_MAX + 1];
	const unsigned most = 4 * STRANGERS_MAX;
	const struct rlimit old = limit_descriptors(4096);
	struct rig rig;
	uint64_t began = pl_now();
	bool young;

	(void)state;
	rig_open(&rig);
	for (unsigned i = 0; i <= most; i++) {
		fds[i] = socket_connect(rig.address);
		assert_true(fds[i] >= 0);
		if (i == most - 1)
			wait_for_strangers_until(&rig, most, began + 3 * PL_NS_PER_S);
	}
	young = pl_now() - began < 3 * PL_NS_PER_S;
	assert_true(is_closed(fds[0], 20000));
	assert_true(count_strangers(&rig) <= most);
	for (unsigned i = 1; young && i <= most; i++)
		assert_false(is_closed(fds[i], 0));
	assert_false(is_closed(fds[most], 0));
	for (unsigned i = 0; i <= most; i++)
		close(fds[i]);
	rig_close(&rig);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

#define MOST (4 * STRANGERS_MAX)
#define SILENT 40 /* the only one that sends nothing */

static void poll_some(struct rig *rig)
{
	pl_poll(rig->context, &(struct pl_completion){ 0 }, 1);
}

/* Makes all connections young, however long the test took so far. Their last bytes are `silence` old. */
static void make_young(struct rig *rig, uint64_t silence)
{
	pl_engine_lock(rig->listener->engine);
	pl_list_for_each(at, &rig->listener->greetings) {
		struct greeting *greeting = pl_list_entry(at, struct greeting, link);

		greeting->since = pl_now();
		greeting->active = greeting->since - silence;
	}
	pl_engine_unlock(rig->listener->engine);
}

/* Connects until the listener has this many. */
static void connect_up_to(struct rig *rig, int *fds, unsigned from, unsigned count)
{
	uint64_t end = pl_now() + PATIENCE;

	for (unsigned i = from; i < count; i++) {
		fds[i] = socket_connect(rig->address);
		assert_true(fds[i] >= 0);
	}
	while (count_strangers(rig) < count) {
		assert_true(pl_now() < end);
		make_young(rig, 0);
		poll_some(rig);
	}
}

/* A young connection whose bytes this end has not read is not silent: others are closed. */
static void test_unread(void **state)
{
	const struct rlimit old = limit_descriptors(4096);
	static int fds[MOST];
	struct rig rig;

	(void)state;
	rig_open_with(&rig, PL_PROGRESS_MANUAL);
	connect_up_to(&rig, fds, 0, MOST);
	for (unsigned i = 0; i < MOST; i++)
		assert_true(i == SILENT || socket_send(fds[i], "\x16", 1));
	make_young(&rig, PL_NS_PER_S);
	pl_engine_lock(rig.listener->engine);
	assert_true(pl_greeting_room(rig.listener, STRANGERS_MAX));
	assert_true(pl_greeting_evict(rig.listener, 0, PL_NS_PER_S / 2));
	assert_int_equal(rig.listener->greeting_count, MOST - 1);
	for (unsigned i = 0; i < MOST; i++)
		assert_int_equal(is_closed(fds[i], 0), i == SILENT);
	pl_engine_unlock(rig.listener->engine);
	make_young(&rig, PL_NS_PER_S);
	pl_engine_lock(rig.listener->engine);
	assert_false(pl_greeting_evict(rig.listener, 0, PL_NS_PER_S / 2));
	/* Bytes do not protect old ones. */
	pl_list_first(&rig.listener->greetings, struct greeting, link)->since -= 2 * PL_NS_PER_S;
	assert_true(pl_greeting_evict(rig.listener, 0, PL_NS_PER_S / 2));
	assert_true(is_closed(fds[0], 0));
	pl_engine_unlock(rig.listener->engine);
	for (unsigned i = 0; i < MOST; i++)
		close(fds[i]);
	rig_close(&rig);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* True if the listener takes no more connections while all of them are young and at work. */
static bool has_no_room(struct rig *rig)
{
	uint64_t end = pl_now() + PATIENCE, began;
	bool room;

	/* They are silent if this thread stands still for half a second. */
	do {
		began = pl_now();
		make_young(rig, 0);
		pl_engine_lock(rig->listener->engine);
		room = pl_greeting_room(rig->listener, STRANGERS_MAX);
		pl_engine_unlock(rig->listener->engine);
	} while (room && pl_now() - began > PL_NS_PER_S / 4 && pl_now() < end);
	return !room;
}

/* A listener with too many connections that are at work accepts none until they are silent. */
static void test_pause(void **state)
{
	const struct rlimit old = limit_descriptors(4096);
	static int fds[MOST + 1];
	uint64_t end = pl_now() + PATIENCE;
	struct rig rig;

	(void)state;
	rig_open_with(&rig, PL_PROGRESS_MANUAL);
	connect_up_to(&rig, fds, 0, MOST);
	assert_true(has_no_room(&rig));
	fds[MOST] = socket_connect(rig.address);
	while (!is_closed(fds[0], 0)) {
		assert_true(pl_now() < end);
		poll_some(&rig);
	}
	for (unsigned i = 0; i <= MOST; i++)
		close(fds[i]);
	rig_close(&rig);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

/* Each engine has as many connections as the others. Those that end make room on their engine for later ones. */
static void test_engines(void **state)
{
	int fds[4 * WORKERS];
	struct rig rig;

	(void)state;
	rig_open(&rig);
	for (unsigned i = 0; i < 2 * WORKERS; i++)
		fds[i] = socket_connect(rig.address);
	assert_true(wait_for_strangers_until(&rig, 2 * WORKERS, pl_now() + PATIENCE));
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(atomic_load(&rig.context->greetings[i]), 2);
	for (unsigned i = 0; i < 2 * WORKERS - 1; i++)
		close(fds[i]);
	assert_true(wait_for_strangers_until(&rig, 1, pl_now() + PATIENCE));
	/* A connection leaves the list before it leaves its engine. */
	for (unsigned sum = 0; sum != 1; sched_yield()) {
		sum = 0;
		for (unsigned i = 0; i < WORKERS; i++)
			sum += atomic_load(&rig.context->greetings[i]);
	}
	for (unsigned i = 0; i < 2 * WORKERS - 1; i++)
		fds[i] = socket_connect(rig.address);
	assert_true(wait_for_strangers_until(&rig, 2 * WORKERS, pl_now() + PATIENCE));
	for (unsigned i = 0; i < WORKERS; i++)
		assert_int_equal(atomic_load(&rig.context->greetings[i]), 2);
	for (unsigned i = 0; i < 2 * WORKERS; i++)
		close(fds[i]);
	rig_close(&rig);
}

/* Closes a connection as the listener does. */
static void *evict_one(void *argument)
{
	struct rig *rig = argument;

	pl_engine_lock(rig->listener->engine);
	assert_true(pl_greeting_evict(rig->listener, 0, 0));
	pl_engine_unlock(rig->listener->engine);
	return NULL;
}

/* The listener closes a connection that identifies itself at the same time. Its engine leaves the freeing to the task. */
static void test_evicted_meanwhile(void **state)
{
	struct greeting *greeting;
	struct pl_engine *engine;
	struct pl_stream stream;
	pthread_t thread;
	struct rig rig;
	int fd;

	(void)state;
	rig_open(&rig);
	/* The first one is the first engine's, the second one that of another engine. */
	fd = socket_connect(rig.address);
	assert_true(wait_for_strangers_until(&rig, 1, pl_now() + PATIENCE));
	close(fd);
	assert_true(wait_for_strangers_until(&rig, 0, pl_now() + PATIENCE));
	fd = socket_connect(rig.address);
	assert_true(wait_for_strangers_until(&rig, 1, pl_now() + PATIENCE));
	pthread_mutex_lock(&rig.listener->lock);
	greeting = pl_list_first(&rig.listener->greetings, struct greeting, link);
	pthread_mutex_unlock(&rig.listener->lock);
	engine = pl_greeting_engine(greeting);
	assert_ptr_not_equal(engine, rig.listener->engine);
	pl_engine_lock(engine);
	assert_int_equal(pthread_create(&thread, NULL, evict_one, &rig), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(atomic_load(&rig.listener->evicted), 1);
	assert_int_equal(count_strangers(&rig), 0);
	assert_int_equal(pl_greeting_take_stream(greeting, &stream), -ECANCELED);
	pl_greeting_free(greeting);
	assert_false(is_closed(fd, 0));
	pl_engine_unlock(engine);
	assert_true(is_closed(fd, 20000));
	assert_int_equal(atomic_load(&rig.listener->evicted), 0);
	close(fd);
	rig_close(&rig);
}

static uint32_t watched_events(struct rig *rig)
{
	uint32_t events;

	pl_engine_lock(rig->listener->engine);
	events = rig->listener->source.events;
	pl_engine_unlock(rig->listener->engine);
	return events;
}

/* Without a free descriptor the listener pauses, and accepts again when there is one. */
static void test_no_descriptor(void **state)
{
	struct pollfd poll_fd = { .events = POLLOUT };
	const uint64_t end = pl_now() + PATIENCE;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rlimit old;
	struct rig rig;
	int lowest;

	(void)state;
	rig_open(&rig);
	address.sin_port = htons((uint16_t)atoi(strrchr(rig.address, ':') + 1));
	poll_fd.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	lowest = dup(poll_fd.fd);
	assert_true(lowest >= 0);
	close(lowest);
	/* The kernel gives the lowest free number: that of the limit, which is none. */
	old = limit_descriptors((rlim_t)lowest);
	assert_int_equal(connect(poll_fd.fd, (struct sockaddr *)&address, sizeof(address)), 0);
	while (watched_events(&rig)) {
		assert_true(pl_now() < end);
		usleep(1000);
	}
	assert_int_equal(count_strangers(&rig), 0);
	assert_false(is_closed(poll_fd.fd, 0));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(wait_for_strangers_until(&rig, 1, end));
	assert_int_equal(watched_events(&rig), EPOLLIN);
	close(poll_fd.fd);
	rig_close(&rig);
}

/* Neither TLS nor a lane nor an older release: the listener closes without an answer. */
static void test_unknown_bytes(void **state)
{
	static const char *const first[] = { "GET ", "PLC2", "PLC0", "PLL1", "\0\0\0\0" };
	struct rig rig;

	(void)state;
	rig_open(&rig);
	for (size_t i = 0; i < PL_ARRAY_SIZE(first); i++) {
		int fd = socket_connect(rig.address);
		char byte;

		assert_true(socket_send(fd, first[i], 4));
		assert_true(is_closed(fd, 20000));
		assert_int_equal(recv(fd, &byte, 1, 0), 0);
		close(fd);
	}
	rig_close(&rig);
}

/* -- accepts ----------------------------------------------------------------------------------------- */

/* An accept that runs after the close ends like one that ran before. */
static void test_accept_after_close(void **state)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	pthread_mutex_lock(&rig.listener->lock);
	rig.listener->closed = true;
	pthread_mutex_unlock(&rig.listener->lock);
	assert_int_equal(pl_accept_start(rig.listener, 0, &operation, &error), 0);
	assert_int_equal(pl_try_wait(operation, PATIENCE, NULL, &error), -ECANCELED);
	assert_string_equal(error.id, "LISTENER-CLOSED");
	rig_close(&rig);
}

/*
 * An accept whose task still waits is cancelled as well. The task waits for a thread that has unlocked the engine, and
 * that looks for new tasks next.
 */
static void test_cancel_before_task(void **state)
{
	struct pl_completion completion;
	struct pl_engine *engine;
	struct rig rig;

	(void)state;
	rig_open_with(&rig, PL_PROGRESS_MANUAL);
	engine = rig.listener->engine;
	pl_engine_lock(engine);
	assert_int_equal(pl_accept_start(rig.listener, 7, NULL, NULL), 0);
	atomic_store(&engine->owner, 0);
	pl_lock_release(&engine->lock);
	assert_int_equal(pl_cancel_posted(rig.context, 7), 1);
	assert_int_equal(pl_poll(rig.context, &completion, 1), 1);
	assert_int_equal(completion.status, -ECANCELED);
	rig_close(&rig);
}

#define LISTENERS 3

static void *cancel_accepts(void *context)
{
	return (void *)(intptr_t)pl_cancel_posted(context, 7);
}

/* Accepts of all listeners are cancelled, also if one of them is closed meanwhile. */
static void test_cancel_beside_close(void **state)
{
	struct pl_listener *more[LISTENERS - 1];
	struct pl_completion completions[LISTENERS];
	struct rig rig;
	pthread_t thread;
	void *count;

	(void)state;
	rig_open_with(&rig, PL_PROGRESS_MANUAL);
	assert_int_equal(pl_accept_start(rig.listener, 7, NULL, NULL), 0);
	for (unsigned i = 0; i < LISTENERS - 1; i++) {
		assert_int_equal(pl_listen(rig.context, "127.0.0.1:0", &more[i], NULL), 0);
		assert_int_equal(pl_accept_start(more[i], 7, NULL, NULL), 0);
	}
	/* The thread waits for the engine of the first listener, whose close begins. */
	pl_engine_lock(rig.listener->engine);
	pthread_mutex_lock(&rig.context->lock);
	assert_int_equal(pthread_create(&thread, NULL, cancel_accepts, rig.context), 0);
	pthread_mutex_unlock(&rig.context->lock);
	while (atomic_load(&rig.listener->references) < 3)
		usleep(1000);
	pthread_mutex_lock(&rig.context->lock);
	pl_list_remove(&rig.listener->link);
	pthread_mutex_unlock(&rig.context->lock);
	pl_engine_unlock(rig.listener->engine);
	assert_int_equal(pthread_join(thread, &count), 0);
	assert_int_equal((intptr_t)count, LISTENERS);
	assert_int_equal(pl_poll(rig.context, completions, LISTENERS), LISTENERS);
	for (unsigned i = 0; i < LISTENERS - 1; i++)
		pl_listener_close(more[i]);
	rig_close(&rig);
}

/* A refused connection that sends without end leaves the engine after some reads. */
static void test_refused_flood(void **state)
{
	struct greeting greeting = { .step = REFUSED };
	uint8_t bytes[4096] = { 0 };
	size_t sent = 0;
	int fds[2], left;
	ssize_t count;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	greeting.source.fd = greeting.stream.fd = fds[0];
	while ((count = send(fds[1], bytes, sizeof(bytes), 0)) > 0)
		sent += (size_t)count;
	assert_true(sent > sizeof(bytes) * 20);
	assert_true(pl_greeting_ready(&greeting.source, EPOLLIN));
	assert_int_equal(ioctl(fds[0], FIONREAD, &left), 0);
	assert_true(left > 0 && (size_t)left < sent);
	close(fds[0]);
	close(fds[1]);
}

/* The kernel takes 0 as no limit. */
static void test_short_keepalive(void **state)
{
	const uint64_t times[] = { 1, PL_NS_PER_MS, 15 * PL_NS_PER_S };
	const unsigned milliseconds[] = { 1, 1, 15000 };
	struct pl_options options = PL_OPTIONS_INIT;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	assert_true(fd >= 0);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(times); i++) {
		unsigned set = 0;
		socklen_t length = sizeof(set);

		options.keepalive = times[i];
		pl_socket_tune(fd, &options);
		assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &set, &length), 0);
		assert_int_equal(set, milliseconds[i]);
	}
	close(fd);
}

/* -- sockets of the caller --------------------------------------------------------------------------- */

static int open_socket(int family, int type, bool listening, in_addr_t host)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(host) };
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	int fd = socket(family, type, 0);

	assert_true(fd >= 0);
	/* An abstract name that the kernel chooses. */
	if (family == AF_UNIX)
		assert_int_equal(bind(fd, (struct sockaddr *)&local, sizeof(local.sun_family)), 0);
	else
		assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (listening)
		assert_int_equal(listen(fd, 5), 0);
	return fd;
}

static void expect_refused(struct pl_context *context, int fd, int code, const char *id)
{
	struct pl_listener *listener;
	struct pl_error error;

	assert_int_equal(pl_listen_socket(context, fd, &listener, &error), code);
	assert_string_equal(error.id, id);
	/* Programs have no options of the command. */
	assert_null(strstr(error.hint, "--"));
	assert_null(listener);
	/* Refused sockets are closed. */
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_sockets(void **state)
{
	struct pl_listener *listener;
	struct pl_error error;
	struct rig rig;
	int fd;

	(void)state;
	rig_open(&rig);
	expect_refused(rig.context, open_socket(AF_INET, SOCK_STREAM, false, INADDR_LOOPBACK), -EINVAL, "LISTEN-FAILED");
	expect_refused(rig.context, open_socket(AF_INET, SOCK_DGRAM, false, INADDR_LOOPBACK), -EINVAL, "LISTEN-FAILED");
	expect_refused(rig.context, open_socket(AF_UNIX, SOCK_STREAM, true, 0), -EINVAL, "LISTEN-FAILED");
	expect_refused(rig.context, open_socket(AF_UNIX, SOCK_SEQPACKET, true, 0), -EINVAL, "LISTEN-FAILED");
	expect_refused(rig.context, open_socket(AF_INET, SOCK_STREAM, true, INADDR_ANY), -EPERM, "INSECURE-ADDRESS");
	fd = open("/dev/null", O_RDONLY);
	expect_refused(rig.context, fd, -ENOTSOCK, "LISTEN-FAILED");
	fd = open_socket(AF_INET, SOCK_STREAM, true, INADDR_LOOPBACK);
	assert_int_equal(pl_listen_socket(rig.context, fd, &listener, &error), 0);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	pl_listener_close(listener);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_descriptors),
		cmocka_unit_test(test_many_descriptors),
		cmocka_unit_test(test_burst),
		cmocka_unit_test(test_unread),
		cmocka_unit_test(test_pause),
		cmocka_unit_test(test_engines),
		cmocka_unit_test(test_evicted_meanwhile),
		cmocka_unit_test(test_no_descriptor),
		cmocka_unit_test(test_unknown_bytes),
		cmocka_unit_test(test_accept_after_close),
		cmocka_unit_test(test_cancel_before_task),
		cmocka_unit_test(test_cancel_beside_close),
		cmocka_unit_test(test_refused_flood),
		cmocka_unit_test(test_short_keepalive),
		cmocka_unit_test(test_sockets),
	};

	return cmocka_run_group_tests_name("listener", tests, NULL, NULL);
}
