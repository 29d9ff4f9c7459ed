/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rates of peers over sockets, and numbers of imports: both directions share a rate, a paused socket costs no time of
 * the processor, reloads change the rate, and no transfer ends by a time limit while its bytes move.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/grant.h"
#include "support/cases.h"
#include "support/environment.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static const struct setting threads = { "threads", "auto", "127.0.0.1", PL_PROGRESS_THREAD, 4, false, false, false, false };
static const struct setting encrypted = { "encrypted", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 4, true, true, false, false };
static const struct setting manual = { "manual", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, false, false };

/* Rights that far's callback gives; changed before a reload. */
struct budget {
	_Atomic uint64_t rate;
	atomic_uint imports;
};

static struct budget unlimited;

static int give_budget(void *user, const struct pl_identity *identity, struct pl_rights *rights)
{
	struct budget *budget = user;

	(void)identity;
	rights->rate = atomic_load(&budget->rate);
	rights->imports = atomic_load(&budget->imports);
	return 0;
}

/* Opens both ends. The far end, which accepts, has a rate, or asks the callback (`budget`). */
static void open_ends(struct scenario_environment *ends, const struct setting *setting, uint64_t rate,
		      struct budget *budget)
{
	struct pl_options near = setting_options(setting), far = near;

	/* Polling would hide how often the threads wait. */
	near.poll_time = far.poll_time = PL_NO_POLLING;
	far.peers_rate = rate;
	far.authorize = budget ? give_budget : NULL;
	far.authorize_user = budget;
	/* Both ends use certificates, or neither. */
	near.authorize = budget ? give_budget : NULL;
	near.authorize_user = &unlimited;
	*ends = (struct scenario_environment){ .setting = setting };
	ends->near = context_open_with(&near);
	ends->far = context_open_with(&far);
	drive(ends, ends->near);
	drive(ends, ends->far);
	ends->listener = listener_open(setting, ends->far, ends->address);
	connect_pair(ends, ends->near, ends->listener, &ends->near_peer, &ends->far_peer);
}

/*
 * Takes the place of the C library's function, to count calls. An engine that polls a paused socket makes some 100,000 a
 * second, also on a busy machine thousands; a pause that sleeps needs a few.
 */
static atomic_uint waits;

int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	atomic_fetch_add(&waits, 1);
	return epoll_pwait(fd, events, count, timeout, NULL);
}

/* Most calls of epoll_wait() in a case. */
#define WAITS_MAX 4000

/* Memory of both ends for transfers of one direction. */
struct memory {
	struct buffer local, remote;
	struct pl_remote *handle;
	bool write;
};

static void memory_open(struct scenario_environment *ends, struct memory *memory, size_t length, bool write)
{
	memory->write = write;
	buffer_open(&memory->local, ends->near, length, PL_ACCESS_LOCAL);
	buffer_open(&memory->remote, ends->far, length, PL_ACCESS_ALL);
	memory->handle = share(ends, memory->remote.region, ends->near_peer, NULL);
	pattern_fill(write ? memory->local.bytes : memory->remote.bytes, length, write + 1, 0);
}

static struct pl_operation *memory_transfer(struct scenario_environment *ends, struct memory *memory)
{
	struct pl_transfer transfer = { memory->handle, 0, memory->local.region, 0, memory->local.length };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.timeout = 60 * SECOND;
	check_ok((memory->write ? pl_write : pl_read)(ends->near_peer, &transfer, &attributes, &operation, &error),
		 &error);
	return operation;
}

static void memory_close(struct memory *memory)
{
	pattern_check(memory->write ? memory->remote.bytes : memory->local.bytes, memory->local.length,
		      memory->write + 1, 0);
	pl_remote_release(memory->handle);
	buffer_close(&memory->local);
	buffer_close(&memory->remote);
}

/* Checks that the bytes took their time at the rate, with a tolerance for the burst and for a busy machine. */
static void check_rate(uint64_t bytes, uint64_t rate, uint64_t took)
{
	double expected = (double)bytes / (double)rate, seconds = (double)took / SECOND;

	if (seconds < 0.8 * expected || seconds > 10 * expected + 60)
		check_failed(__FILE__, __LINE__, "%llu bytes at %llu bytes a second took %.3f s",
			     (unsigned long long)bytes, (unsigned long long)rate, seconds);
}

/* -- rates ------------------------------------------------------------------------------------------------------- */

static void both_directions(void *argument)
{
	const struct setting *setting = argument;
	struct scenario_environment ends;
	struct pl_operation *operations[2];
	struct pl_completion receipt;
	struct memory memory[2];
	uint64_t begin;

	open_ends(&ends, setting, 4 * MIB, NULL);
	check_text(peer_information_of(ends.near_peer).fabric, "tcp");
	check_text(peer_information_of(ends.far_peer).fabric, "tcp");
	check_number(peer_information_of(ends.far_peer).rate, 4 * MIB);
	check_number(peer_information_of(ends.near_peer).rate, 0);
	memory_open(&ends, &memory[0], 6 * MIB, true);
	memory_open(&ends, &memory[1], 4 * MIB, false);
	atomic_store(&waits, 0);
	begin = clock_now();
	for (int i = 0; i < 2; i++)
		operations[i] = memory_transfer(&ends, &memory[i]);
	for (int i = 0; i < 2; i++) {
		complete(&ends, operations[i], &receipt);
		check(strstr(receipt.reason, "limits the rate"));
	}
	check_rate(10 * MIB, 4 * MIB, clock_now() - begin);
	/* Both ends sleep while the sockets pause; waiting functions of tests without threads poll. */
	if (setting->progress == PL_PROGRESS_THREAD && atomic_load(&waits) > WAITS_MAX)
		check_failed(__FILE__, __LINE__, "%u waits", atomic_load(&waits));
	check(peer_information_of(ends.far_peer).rate_waits > 0);
	check_number(peer_information_of(ends.far_peer).lanes, 1);
	for (int i = 0; i < 2; i++)
		memory_close(&memory[i]);
	environment_close(&ends);
}

/* Messages count too, and wait at the sender without a loss. */
static void messages(void *argument)
{
	enum { COUNT = 600, LENGTH = 8000 };
	struct scenario_environment ends;
	struct pl_operation *sends[COUNT];
	struct pl_completion receipt;
	static uint8_t bytes[LENGTH];
	struct buffer buffer;
	struct pl_error error;
	uint64_t begin;

	(void)argument;
	open_ends(&ends, &threads, 2 * MIB, NULL);
	buffer_open(&buffer, ends.far, LENGTH, PL_ACCESS_LOCAL);
	begin = clock_now();
	for (int i = 0; i < COUNT; i++) {
		pattern_fill(bytes, LENGTH, (uint64_t)i, 0);
		check_ok(pl_send_copy(ends.near_peer, 1, bytes, LENGTH, NULL, &sends[i], &error), &error);
	}
	for (int i = 0; i < COUNT; i++) {
		struct pl_operation *receive;

		check_ok(pl_receive(ends.far_peer, 1, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, LENGTH }, NULL,
				    &receive, &error), &error);
		complete(&ends, receive, &receipt);
		pattern_check(buffer.bytes, LENGTH, (uint64_t)i, 0);
	}
	check_rate((uint64_t)COUNT * LENGTH, 2 * MIB, clock_now() - begin);
	for (int i = 0; i < COUNT; i++)
		complete(&ends, sends[i], &receipt);
	buffer_close(&buffer);
	environment_close(&ends);
}

/*
 * Resets the data socket of the near end: the newest one that is connected to the listener. ThreadSanitizer must not see
 * the call, as it takes connect() for the end of the setting up of a socket, before other threads use it.
 */
static void reset_data_socket(const char *address)
{
	const struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
	unsigned port = (unsigned)atoi(strrchr(address, ':') + 1);

	for (int fd = 1023; fd > 2; fd--) {
		struct sockaddr_in peer;
		socklen_t length = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.sin_family == AF_INET &&
		    ntohs(peer.sin_port) == port) {
			check_number(syscall(SYS_connect, fd, &nowhere, sizeof(nowhere)), 0);
			return;
		}
	}
	check(!"no data socket");
}

/* A peer that ends, or whose data socket is reset, while that socket pauses, is lost at once, without polling. */
static void loss_during_a_pause(void *argument)
{
	bool reset = argument;
	struct scenario_environment ends;
	struct pl_transfer transfer;
	struct memory memory;
	struct pl_error error;
	uint64_t begin;

	open_ends(&ends, &threads, 64 * KIB, NULL);
	memory_open(&ends, &memory, MIB, true);
	transfer = (struct pl_transfer){ memory.handle, 0, memory.local.region, 0, MIB };
	check_ok(pl_write(ends.near_peer, &transfer, NULL, NULL, &error), &error);
	begin = clock_now();
	for (; peer_information_of(ends.far_peer).rate_waits == 0; usleep(1000))
		check(clock_now() - begin < AMPLE_TIME);
	begin = clock_now();
	atomic_store(&waits, 0);
	if (reset)
		reset_data_socket(ends.address);
	else
		pl_close(ends.near);
	while (peer_information_of(ends.far_peer).connected && clock_now() - begin < AMPLE_TIME)
		usleep(1000);
	check(!peer_information_of(ends.far_peer).connected);
	usleep(500000);
	if (atomic_load(&waits) > WAITS_MAX)
		check_failed(__FILE__, __LINE__, "%u waits", atomic_load(&waits));
	if (reset)
		pl_close(ends.near);
	buffer_close_bare(&memory.local);
	buffer_close(&memory.remote);
	pl_close(ends.far);
}

/* An end that connects limits the other end too. */
static void rate_of_an_acceptor(void *argument)
{
	struct budget budget = { .rate = 1000 }; /* less than the least rate */
	struct pl_options options = setting_options(&threads);
	struct scenario_environment ends = { .setting = &threads };

	(void)argument;
	options.authorize = give_budget;
	options.authorize_user = &unlimited;
	ends.far = context_open_with(&options);
	options.authorize_user = &budget;
	ends.near = context_open_with(&options);
	drive(&ends, ends.near);
	drive(&ends, ends.far);
	ends.listener = listener_open(&threads, ends.far, ends.address);
	connect_pair(&ends, ends.near, ends.listener, &ends.near_peer, &ends.far_peer);
	check_number(peer_information_of(ends.near_peer).rate, 65536);
	check_number(peer_information_of(ends.far_peer).rate, 0);
	check_text(peer_information_of(ends.far_peer).fabric, "tcp");
	environment_close(&ends);
}

static void wrong_options(void *argument)
{
	struct pl_options options = setting_options(&threads);
	struct pl_context *context;
	struct pl_error error;

	(void)argument;
	options.peers_rate = 65535;
	check_status(pl_open(&context, &options, &error), -EINVAL, &error);
	check_text(error.object, "peers_rate");
}

/* -- reloads ----------------------------------------------------------------------------------------------------- */

static void reload_far(struct scenario_environment *ends)
{
	struct pl_error error;

	check_ok(pl_context_reload(ends->far, NULL, &error), &error);
}

/* A rate given to a connection with several sockets, which share it; then other rates while transfers wait. */
static void reload(void *argument)
{
	struct setting setting = threads;
	struct scenario_environment ends;
	struct pl_completion receipt;
	struct pl_operation *operation;
	struct budget budget = { 0 };
	struct memory memory[2];
	uint64_t begin;

	(void)argument;
	setting.fabric = "tcp";
	open_ends(&ends, &setting, 0, &budget);
	for (int i = 0; i < 2; i++) {
		memory_open(&ends, &memory[i], 32 * MIB, i == 0);
		complete(&ends, memory_transfer(&ends, &memory[i]), &receipt);
	}
	/* Threads of a busy machine may open the lanes later. */
	progress_until(&ends, peer_information_of(ends.near_peer).lanes == 4);
	for (int i = 0; i < 2; i++) {
		atomic_store(&budget.rate, 16 * MIB);
		reload_far(&ends);
		check_number(peer_information_of(ends.far_peer).rate, 16 * MIB);
		begin = clock_now();
		operation = memory_transfer(&ends, &memory[i]);
		complete(&ends, operation, &receipt);
		check_rate(32 * MIB, 16 * MIB, clock_now() - begin);
		/* Most of the bytes wait when the rate ends. */
		atomic_store(&budget.rate, MIB);
		reload_far(&ends);
		begin = clock_now();
		operation = memory_transfer(&ends, &memory[i]);
		usleep(500000);
		atomic_store(&budget.rate, 0);
		reload_far(&ends);
		complete(&ends, operation, &receipt);
		/* At the old rate: 31 s. */
		check(clock_now() - begin < 25 * SECOND);
		check_number(peer_information_of(ends.far_peer).rate, 0);
	}
	for (int i = 0; i < 2; i++)
		memory_close(&memory[i]);
	environment_close(&ends);
}

/* Rates that a connection cannot have end it: another fabric, and a small rate for several sockets. */
static void reload_disconnects(void *argument)
{
	static const char *const fabrics[] = { "auto", "tcp" };
	static const char *const first[] = { "local", "tcp" };

	(void)argument;
	for (int i = 0; i < 2; i++) {
		struct setting setting = threads;
		struct scenario_environment ends;
		struct budget budget = { 0 };
		struct pl_peer *near, *far;

		setting.fabric = fabrics[i];
		open_ends(&ends, &setting, 0, &budget);
		check_text(peer_information_of(ends.near_peer).fabric, first[i]);
		atomic_store(&budget.rate, i ? MIB - 1 : 1024 * MIB);
		reload_far(&ends);
		check(!peer_information_of(ends.far_peer).connected);
		connect_pair(&ends, ends.near, ends.listener, &near, &far);
		check_text(peer_information_of(near).fabric, "tcp");
		check_number(peer_information_of(far).rate, atomic_load(&budget.rate));
		/* A connection with one socket can have any rate. */
		atomic_store(&budget.rate, 64 * KIB);
		reload_far(&ends);
		check(peer_information_of(far).connected);
		check_number(peer_information_of(far).rate, 64 * KIB);
		pl_peer_close(near);
		pl_peer_close(far);
		environment_close(&ends);
	}
}

/* -- imports ----------------------------------------------------------------------------------------------------- */

static void imports(void *argument)
{
	struct scenario_environment ends;
	struct budget budget = { .imports = 2 };
	struct pl_remote *remotes[3];
	struct pl_error error;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct buffer buffer;
	struct pl_lent lent;

	(void)argument;
	open_ends(&ends, &threads, 0, &budget);
	buffer_open(&buffer, ends.far, 4096, PL_ACCESS_ALL);
	check_ok(pl_region_share(buffer.region, NULL, token, &length, &error), &error);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 2; i++)
			check_ok(pl_remote_import(ends.near_peer, token, length, 0, &remotes[i], &error), &error);
		check_status(pl_remote_import(ends.near_peer, token, length, 0, &remotes[2], &error), -EBUSY, &error);
		check_text(error.id, "IDENTITY-IMPORTS");
		/* Regions that the library lends, as for large messages, are no imports. */
		pl_engine_lock(ends.far_peer->home);
		check_number(pl_grant_lend(buffer.region, PL_ACCESS_READ, ends.far_peer, &lent), 0);
		pl_key_release(pl_grant_take_back(ends.far_peer, &lent));
		pl_engine_unlock(ends.far_peer->home);
		/* A released import makes room; the release arrives before the next import. */
		pl_remote_release(remotes[0]);
		check_ok(pl_remote_import(ends.near_peer, token, length, 0, &remotes[0], &error), &error);
		if (round == 1) {
			atomic_store(&budget.imports, 3);
			reload_far(&ends);
			check_ok(pl_remote_import(ends.near_peer, token, length, 0, &remotes[2], &error), &error);
			pl_remote_release(remotes[2]);
			atomic_store(&budget.imports, 2);
			reload_far(&ends);
		}
		for (int i = 0; i < 2; i++)
			pl_remote_release(remotes[i]);
	}
	buffer_close(&buffer);
	environment_close(&ends);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "both directions", both_directions, (void *)&threads, 60 },
		{ "both directions, encrypted", both_directions, (void *)&encrypted, 60 },
		{ "both directions, manual", both_directions, (void *)&manual, 60 },
		{ "messages", messages, NULL, 60 },
		{ "loss during a pause", loss_during_a_pause, NULL, 30 },
		{ "reset during a pause", loss_during_a_pause, (void *)&threads, 30 },
		{ "rate of an acceptor", rate_of_an_acceptor, NULL, 30 },
		{ "wrong options", wrong_options, NULL, 30 },
		{ "reload", reload, NULL, 90 },
		{ "reload disconnects", reload_disconnects, NULL, 30 },
		{ "imports", imports, NULL, 30 },
	};

	return cases_run("rate", cases, sizeof(cases) / sizeof(cases[0]));
}
