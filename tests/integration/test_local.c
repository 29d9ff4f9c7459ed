/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local fabric: its transports and their reasons, a killed or stopped peer process, other users and namespaces, and
 * a peer that violates the protocol.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/local/local.h"
#include "scenarios/scenario.h"
#include "support/agent.h"
#include "support/cases.h"
#include "support/local.h"

#define LARGE (128u << 20)
#define SIZE (64u << 10)
/* Longest time until an operation fails. The kernel reports a death at once; a busy machine needs longer. */
#define SOON SLACK

static const struct setting open_choice = { "auto", "auto", "127.0.0.1", PL_PROGRESS_THREAD, 1, false,
					    false,  true,   false };

/* -- transports ----------------------------------------------------------------------------------- */

static void check_transports(void *argument)
{
	struct pl_grant_options part = PL_GRANT_OPTIONS_INIT;
	struct scenario_environment environment;
	struct pl_region *allocated;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;

	environment_open(&environment, argument);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &allocated, &error), &error);
	remote = share(&environment, allocated, environment.near_peer, NULL);
	check_reason(&environment, remote, near.region, "mapped");
	value_check(pl_region_address(allocated), 100, POISON);
	pl_remote_release(remote);
	/* A mapped descriptor would give access to more than the granted range. */
	part.length = 4096;
	remote = share(&environment, allocated, environment.near_peer, &part);
	check_reason(&environment, remote, near.region, "process_vm");
	pl_remote_release(remote);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_reason(&environment, remote, near.region, "process_vm");
	value_check(far.bytes, 100, POISON);
	pl_remote_release(remote);
	check_number(pl_region_deregister(allocated), 0);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* Checks that a read-only grant gives a read-only mapping, whose descriptor cannot be made writable. */
static void read_only(void *argument)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct scenario_environment environment;
	const struct local_access *access;
	struct pl_operation *operation;
	struct pl_region *allocated;
	struct pl_completion receipt;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer near;
	void *mapping;
	char text[8];

	environment_open(&environment, argument);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &allocated, &error), &error);
	options.rights = PL_ACCESS_READ;
	remote = share(&environment, allocated, environment.near_peer, &options);
	access = remote->fabric_data;
	check(access->path == &local_mapped_path);
	mapping = access->mapping;
	mapping_permissions(mapping, text);
	check_text(text, "r--s");
	check(mprotect(mapping, SIZE, PROT_READ | PROT_WRITE) < 0);
	check_number(write_some(&environment, remote, near.region, 8, NULL), -EACCES);
	check_ok(pl_read(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, SIZE }, NULL,
			 &operation, &error),
		 &error);
	complete(&environment, operation, &receipt);
	check(strstr(receipt.reason, "mapped"));
	value_check(near.bytes, SIZE, 0);
	pl_remote_release(remote);
	progress_until(&environment, (mapping_permissions(mapping, text), !*text));
	check_number(pl_region_deregister(allocated), 0);
	buffer_close(&near);
	environment_close(&environment);
}

/* Checks that a revoked region is unmapped although the remote region still exists. */
static void revoked(void *argument)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct scenario_environment environment;
	struct pl_region *allocated;
	struct pl_remote *remotes[2];
	struct pl_error error;
	struct buffer near;
	void *mappings[2];
	char text[8];

	environment_open(&environment, argument);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	check_ok(pl_region_allocate(environment.far, SIZE, PL_ACCESS_ALL, &allocated, &error), &error);
	check_ok(pl_region_share(allocated, NULL, token, &length, &error), &error);
	for (unsigned i = 0; i < 2; i++) {
		const struct local_access *access;

		remotes[i] = i ? share(&environment, allocated, environment.near_peer, NULL)
			       : import_token(&environment, environment.near_peer, token, length);
		access = remotes[i]->fabric_data;
		mappings[i] = access->mapping;
		check_reason(&environment, remotes[i], near.region, "mapped");
	}
	check_number(pl_region_revoke(allocated, token, length), 0);
	progress_until(&environment, !mapping_shared(mappings[0]));
	check_number(write_some(&environment, remotes[0], near.region, 8, NULL), -EACCES);
	mapping_permissions(mappings[1], text);
	check_text(text, "rw-s");
	check_reason(&environment, remotes[1], near.region, "mapped");
	check_number(pl_region_deregister(allocated), 0);
	progress_until(&environment, !mapping_shared(mappings[1]));
	check_number(write_some(&environment, remotes[1], near.region, 8, NULL), -EACCES);
	pl_remote_release(remotes[0]);
	pl_remote_release(remotes[1]);
	buffer_close(&near);
	environment_close(&environment);
}

/* -- the other process dies, or stops ------------------------------------------------------------- */

struct session {
	struct agent agent;
	struct scenario_environment environment; /* only its near end is used */
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct buffer buffer;
	unsigned descriptors;
};

static void session_open(struct session *session, const struct setting *setting)
{
	struct pl_error error;

	agent_start(&session->agent, &local_threads, LARGE);
	session->environment = (struct scenario_environment){ .setting = setting };
	/* The agent's descriptor is closed at the agent's death. */
	session->descriptors = open_descriptors() - 1;
	session->environment.near = context_open(&local_threads);
	check_ok(pl_connect(session->environment.near, session->agent.address, 0, &session->peer, &error), &error);
	agent_accept(&session->agent);
	check_ok(pl_remote_import(session->peer, session->agent.token, session->agent.token_length, 0, &session->remote,
				  &error),
		 &error);
	buffer_open(&session->buffer, session->environment.near, LARGE, PL_ACCESS_ALL);
}

static void session_close(struct session *session)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint64_t until = clock_now() + SOON;

	do {
		check_number(pl_peer_query(session->peer, &info), 0);
		check(clock_now() < until);
	} while (info.connected);
	pl_remote_release(session->remote);
	pl_peer_close(session->peer);
	buffer_close(&session->buffer);
	pl_close(session->environment.near);
	check_number(open_descriptors(), session->descriptors);
}

/* Writes until this process has noticed the death of the other. */
static void kill_target(void *argument)
{
	struct session session;
	struct pl_operation *operation;
	struct pl_error error;
	uint64_t until;
	int status = 0;

	buffers_allocated = argument == &local_threads;
	session_open(&session, &local_threads);
	check_ok(pl_write(session.peer, &(struct pl_transfer){ session.remote, 0, session.buffer.region, 0, LARGE },
			  NULL, &operation, &error),
		 &error);
	agent_kill(&session.agent);
	until = clock_now() + SOON;
	check_one_of(pl_wait(operation, UINT64_MAX, NULL, &error), 0, -ECONNRESET);
	while (status == 0) {
		check(clock_now() < until);
		status = pl_write(session.peer, &(struct pl_transfer){ session.remote, 0, session.buffer.region, 0, 8 },
				  NULL, &operation, &error);
		if (status == 0)
			status = pl_wait(operation, UINT64_MAX, NULL, &error);
	}
	check_one_of(status, -ECONNRESET, -ENOTCONN);
	session_close(&session);
}

/* Kills or stops the agent while it writes to this process; then revokes the region. */
static void writer_ends(bool stopped, bool allocated)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct session session;
	struct pl_error error;
	uint64_t began;

	buffers_allocated = allocated;
	session_open(&session, &local_threads);
	check_ok(pl_region_share(session.buffer.region, NULL, token, &length, &error), &error);
	agent_write(&session.agent, token, length, LARGE);
	usleep(3000);
	if (stopped)
		process_stop(session.agent.pid);
	else
		agent_kill(&session.agent);
	began = clock_now();
	check_number(pl_region_revoke(session.buffer.region, token, length), 0);
	check(clock_now() - began < SOON);
	if (stopped)
		agent_kill(&session.agent);
	session_close(&session);
}

static void kill_writer(void *argument)
{
	(void)argument;
	writer_ends(false, false);
	writer_ends(false, true);
}

static void stop_writer(void *argument)
{
	(void)argument;
	writer_ends(true, false);
	writer_ends(true, true);
}

/* Checks that a death is noticed without threads, if all operations complete synchronously. */
static void kill_unnoticed(void *argument)
{
	struct pl_options options = setting_options(&local_threads);
	struct pl_operation *operation;
	struct pl_context *context;
	struct pl_remote *remote;
	struct pl_region *region;
	struct pl_error error;
	struct pl_peer *peer;
	struct agent agent;
	uint64_t until;
	int status = 0;

	(void)argument;
	buffers_allocated = true;
	agent_start(&agent, &local_threads, SIZE);
	options.progress = PL_PROGRESS_MANUAL;
	context = context_open_with(&options);
	check_ok(pl_connect(context, agent.address, 0, &peer, &error), &error);
	agent_accept(&agent);
	check_ok(pl_remote_import(peer, agent.token, agent.token_length, 0, &remote, &error), &error);
	check_ok(pl_region_allocate(context, SIZE, PL_ACCESS_LOCAL, &region, &error), &error);
	agent_kill(&agent);
	until = clock_now() + SOON;
	while (status == 0) {
		check(clock_now() < until);
		status = pl_write(peer, &(struct pl_transfer){ remote, 0, region, 0, 8 }, NULL, &operation, &error);
		if (status == 0)
			status = pl_wait(operation, UINT64_MAX, NULL, &error);
	}
	check_one_of(status, -ECONNRESET, -ENOTCONN);
	pl_close(context);
}

/* Connects to an address, forks a process that keeps the sockets until the test ends, and waits to be killed. */
static void connect_and_fork(const int ends[2])
{
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96], byte;

	check_number(read(ends[1], address, sizeof(address)), sizeof(address));
	close(ends[0]);
	context = context_open(&local_threads);
	check_ok(pl_connect(context, address, 0, &peer, &error), &error);
	/* Not process_fork(): that child would end with this process. */
	if (fork() == 0) {
		check_number(write(ends[1], "", 1), 1);
		(void)!read(ends[1], &byte, 1);
		_exit(0);
	}
	for (;;)
		pause();
}

/* Checks that the end of a process is noticed if a process that it forked keeps its sockets open. */
static void kill_with_heir(void *argument)
{
	struct pl_completion completion = { 0 };
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96], byte;
	int ends[2];
	pid_t child;

	(void)argument;
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	child = process_fork();
	if (child == 0)
		connect_and_fork(ends);
	context = context_open(&local_threads);
	listener = listener_open(&local_threads, context, address);
	check_number(write(ends[0], address, sizeof(address)), sizeof(address));
	check_ok(pl_accept(listener, AMPLE_TIME, &peer, &error), &error);
	check_number(read(ends[0], &byte, 1), 1);
	process_kill(child, SIGKILL);
	while (!pl_poll(context, &completion, 1))
		sleep_ms(1);
	check_number(completion.kind, PL_KIND_LOST);
	check(completion.peer == peer);
	pl_close(context);
	close(ends[0]);
	close(ends[1]);
}

/* -- processes without shared memory -------------------------------------------------------------- */

static void become_another_user(int fd)
{
	(void)fd;
	check(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
}

static void enter_user_namespace(int fd)
{
	(void)fd;
	check(!unshare(CLONE_NEWUSER));
}

/* Checks that both ends use sockets and report the reason, and that an explicit `local` fabric is refused. */
static void check_apart(void (*prepare)(int), const char *word)
{
	struct pl_options options = setting_options(&open_choice);
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *operation;
	struct pl_context *context;
	struct pl_completion receipt;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer buffer;
	struct pl_peer *peer;
	struct agent agent;

	agent_fork(&agent, &open_choice, SIZE, prepare);
	agent_ready(&agent);
	context = context_open_with(&options);
	check_ok(pl_connect(context, agent.address, 0, &peer, &error), &error);
	agent_accept(&agent);
	check_number(pl_peer_query(peer, &info), 0);
	check_text(info.fabric, "tcp");
	check(info.same_host);
	check_ok(pl_remote_import(peer, agent.token, agent.token_length, 0, &remote, &error), &error);
	buffer_open(&buffer, context, SIZE, PL_ACCESS_LOCAL);
	check_ok(pl_write(peer, &(struct pl_transfer){ remote, 0, buffer.region, 0, SIZE }, NULL, &operation, &error),
		 &error);
	check_ok(pl_wait(operation, UINT64_MAX, &receipt, &error), &error);
	check(strstr(receipt.reason, word));
	pl_remote_release(remote);
	pl_peer_close(peer);
	buffer_close(&buffer);
	pl_close(context);
	options.fabric = "local";
	context = context_open_with(&options);
	check_status(pl_connect(context, agent.address, 0, &peer, &error), -EPROTO, &error);
	check_text(error.id, "FABRIC-NONE");
	check(strstr(error.message, word) || strstr(error.message, "user"));
	pl_close(context);
	agent_stop(&agent);
}

static void another_user(void *argument)
{
	(void)argument;
	if (geteuid())
		exit(SKIPPED);
	check_apart(become_another_user, "another user");
}

static void another_namespace(void *argument)
{
	pid_t pid = process_fork();

	(void)argument;
	/* Systems may forbid user namespaces: skips the test there. */
	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER) ? SKIPPED : 0);
	if (process_wait(pid))
		exit(SKIPPED);
	check_apart(enter_user_namespace, "namespace");
}

/*
 * Checks a kernel without namespaces, which has no files of namespaces: all processes share one. Without /proc the
 * namespace is unknown.
 */
static void no_namespaces(void *argument)
{
	struct scenario_environment environment;
	struct local_state *state;
	struct pl_context *context;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc/self/ns", "tmpfs", 0, NULL))
		exit(SKIPPED);
	environment_open(&environment, argument);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	check_reason(&environment, remote, near.region, "");
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
	check(!mount("none", "/proc", "tmpfs", 0, NULL));
	context = context_open(argument);
	state = local_state_get(context, &error);
	check(!state);
	check_text(error.id, "LOCAL-SOCKET");
	check(strstr(error.message, "namespaces"));
	pl_close(context);
	/* LeakSanitizer reads /proc at the end. */
	check(!umount2("/proc", MNT_DETACH));
}

/* -- a peer that violates the protocol ------------------------------------------------------------ */

static void send_all(struct scenario_environment *environment, const void *bytes, size_t length, const int *fds,
		     unsigned count)
{
	struct local_endpoint *endpoint = local_endpoint_of(environment->near_peer->endpoint);
	struct iovec vector = { .iov_base = (void *)bytes, .iov_len = length };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(LOCAL_FDS_PER_RECORD * sizeof(int))];
	} control = { 0 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	if (count) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	check_number(sendmsg(endpoint->fd_socket.fd, &message, 0), length);
}

static void send_bytes(struct scenario_environment *environment, const void *bytes, size_t length, int fd)
{
	send_all(environment, bytes, length, &fd, fd >= 0);
}

static void send_fds(struct scenario_environment *environment, uint64_t key, unsigned announced, unsigned count)
{
	struct local_record record = { .type = LOCAL_RECORD_FDS, .fds = (uint16_t)announced, .key = key, .size = 4096 };
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC), fds[LOCAL_FDS_PER_RECORD];
	uint8_t bytes[LOCAL_RECORD];

	for (unsigned i = 0; i < count; i++)
		fds[i] = fd;
	local_record_encode(&record, bytes);
	send_all(environment, bytes, sizeof(bytes), fds, count);
	close(fd);
}

static void check_far_loses(struct scenario_environment *environment)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint64_t until = clock_now() + SOON;

	do {
		progress(environment);
		check_number(pl_peer_query(environment->far_peer, &info), 0);
		check(clock_now() < until);
	} while (info.connected);
}

enum bad_record { BAD_MAGIC, BAD_NO_DESCRIPTOR, BAD_SHORT, BAD_GATES_TWICE, BAD_TWO_DESCRIPTORS, BAD_COUNT };

static void bad_records(void *argument)
{
	for (enum bad_record bad = 0; bad < BAD_COUNT; bad++) {
		struct local_record record = { .type = LOCAL_RECORD_MEMORY, .key = 1, .size = 4096 };
		struct scenario_environment environment;
		uint8_t bytes[LOCAL_RECORD];
		int fd = memfd_create("bad", MFD_CLOEXEC);

		environment_open(&environment, argument);
		if (bad == BAD_GATES_TWICE)
			record.type = LOCAL_RECORD_GATES;
		local_record_encode(&record, bytes);
		if (bad == BAD_MAGIC)
			bytes[0] ^= 1;
		send_all(&environment, bytes, bad == BAD_SHORT ? 7 : sizeof(bytes), (int[]){ fd, fd },
			 bad == BAD_NO_DESCRIPTOR     ? 0
			 : bad == BAD_TWO_DESCRIPTORS ? 2
						      : 1);
		check_far_loses(&environment);
		environment_close(&environment);
		close(fd);
	}
}

/* Sends descriptors of device memory: too many, none, and the announced number. */
static void bad_fd_counts(void *argument)
{
	const unsigned plan[][4] = { { 2, 3, 0, 0 }, { 2, 0, 0, 0 }, { 2, 1, 3, 1 }, { 2, 1, 2, 2 } };

	for (unsigned i = 0; i < sizeof(plan) / sizeof(plan[0]); i++) {
		struct scenario_environment environment;
		unsigned descriptors = open_descriptors();

		environment_open(&environment, argument);
		send_fds(&environment, 1, plan[i][0], plan[i][1]);
		if (plan[i][2])
			send_fds(&environment, 1, plan[i][2], plan[i][3]);
		check_far_loses(&environment);
		environment_close(&environment);
		check_number(open_descriptors(), descriptors);
	}
}

static unsigned count_pending(struct scenario_environment *environment, const struct local_endpoint *endpoint)
{
	unsigned count;

	pl_engine_lock(environment->far_peer->home);
	count = endpoint->pending_count;
	pl_engine_unlock(environment->far_peer->home);
	return count;
}

/* Sends descriptors of keys that this process does not import: a limited number is kept for a limited time. */
static void many_fds(void *argument)
{
	struct scenario_environment environment;
	struct local_endpoint *far;
	unsigned descriptors = open_descriptors(), here;

	environment_open(&environment, argument);
	far = local_endpoint_of(environment.far_peer->endpoint);
	settle(&environment, 20);
	here = open_descriptors();
	for (unsigned i = 0; i < 300; i++) {
		send_fds(&environment, i, 1 + i % LOCAL_FDS_PER_KEY,
			 1 + i % LOCAL_FDS_PER_RECORD % (1 + i % LOCAL_FDS_PER_KEY));
		if (i % 10 == 0)
			settle(&environment, 5);
	}
	settle(&environment, 50);
	progress_until(&environment, count_pending(&environment, far) > 0);
	pl_engine_lock(environment.far_peer->home);
	check(far->pending_ipc_fds <= LOCAL_FDS_PER_KEY);
	check(open_descriptors() <= here + LOCAL_FDS_PER_KEY);
	pl_engine_unlock(environment.far_peer->home);
	environment_close(&environment);
	check_number(open_descriptors(), descriptors);
}

/* Sends descriptors of files that could shrink after they are mapped: the library must not map them. */
static void bad_descriptors(void *argument)
{
	struct scenario_environment environment;
	struct local_endpoint *far;
	unsigned descriptors;

	environment_open(&environment, argument);
	far = local_endpoint_of(environment.far_peer->endpoint);
	settle(&environment, 20);
	descriptors = open_descriptors();
	for (unsigned i = 0; i < 1000; i++) {
		struct local_record record = { .type = LOCAL_RECORD_MEMORY, .key = i, .size = 8192 };
		int fd = i % 3 ? memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING) : open("/dev/zero", O_RDWR);
		uint8_t bytes[LOCAL_RECORD];

		check(fd >= 0);
		if (i % 3)
			check(!ftruncate(fd, i % 3 == 1 ? 8192 : 4096));
		if (i % 3 == 2)
			check(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
		local_record_encode(&record, bytes);
		send_bytes(&environment, bytes, sizeof(bytes), fd);
		close(fd);
		if (i % 50 == 0)
			settle(&environment, 5);
	}
	progress_until(&environment, open_descriptors() <= descriptors);
	pl_engine_lock(environment.far_peer->home);
	check_number(far->pending_count, 0);
	pl_engine_unlock(environment.far_peer->home);
	environment_close(&environment);
}

#define TERABYTE (1ull << 40)

/* Sends mappings of keys that this process does not import: they take a limited part of its address space. */
static void large_mappings(void *argument)
{
	struct local_record record = { .type = LOCAL_RECORD_MEMORY, .size = TERABYTE };
	struct scenario_environment environment;
	struct local_endpoint *far;
	int fd = memfd_create("large", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	check(fd >= 0 && !ftruncate(fd, TERABYTE) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	environment_open(&environment, argument);
	far = local_endpoint_of(environment.far_peer->endpoint);
	pl_engine_lock(environment.far_peer->home);
	for (record.key = 1; record.key <= 8; record.key++)
		check_number(local_pending_memory(far, &record, fd), 0);
	check(far->pending_count <= 4);
	/* The owner tells the length of the region with its key. A longer mapping is not of use. */
	if (local_pending_find(far, 8))
		check(!local_pending_take_mapping(far, 8, 4096, false));
	check(!local_pending_find(far, 8));
	pl_engine_unlock(environment.far_peer->home);
	close(fd);
	environment_close(&environment);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "transports", check_transports, &local_threads, 15 },
		{ "transports, manual", check_transports, &local_manual, 15 },
		{ "read only", read_only, &local_threads, 15 },
		{ "read only, manual", read_only, &local_manual, 15 },
		{ "revoked", revoked, &local_threads, 15 },
		{ "revoked, manual", revoked, &local_manual, 15 },
		{ "kill target, mapped", kill_target, &local_threads, 15 },
		{ "kill target, process_vm", kill_target, &local_manual, 15 },
		{ "kill writer", kill_writer, NULL, 15 },
		{ "stop writer", stop_writer, NULL, 15 },
		{ "kill unnoticed", kill_unnoticed, NULL, 15 },
		{ "kill with heir", kill_with_heir, NULL, 15 },
		{ "another user", another_user, NULL, 15 },
		{ "another namespace", another_namespace, NULL, 15 },
		{ "no namespaces", no_namespaces, &local_threads, 15 },
		{ "bad records", bad_records, &local_threads, 15 },
		{ "bad records, manual", bad_records, &local_manual, 15 },
		{ "bad descriptors", bad_descriptors, &local_threads, 15 },
		{ "bad fds", bad_fd_counts, &local_threads, 15 },
		{ "many fds", many_fds, &local_threads, 15 },
		{ "large mappings", large_mappings, &local_threads, 15 },
	};

	return cases_run("local", cases, sizeof(cases) / sizeof(cases[0]));
}
