/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors: calls that find none free, and those that regions and local peers keep. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/environment.h"

#define REGIONS 100
/* Linux 5.14 */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const struct setting local = { "local", "local", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, true, false };
static const struct setting tcp = { "tcp", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, false, false };
static const struct setting any = { "auto", "auto", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, false, false };

/* Takes all descriptors from this process. Returns the limit that it had. */
static struct rlimit take_descriptors(void)
{
	int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);
	struct rlimit old, none;

	check(lowest >= 0);
	close(lowest);
	check_number(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = (rlim_t)lowest;
	check_number(setrlimit(RLIMIT_NOFILE, &none), 0);
	return old;
}

static void give_descriptors(const struct rlimit *limit)
{
	check_number(setrlimit(RLIMIT_NOFILE, limit), 0);
}

/* Checks that a call failed for lack of a descriptor, and says what helps. */
static void expect_limit(int rc, const struct pl_error *error)
{
	check_number(rc, -EMFILE);
	check_text(error->id, "DESCRIPTOR-LIMIT");
	check(strstr(error->message, "RLIMIT_NOFILE"));
	check(strstr(error->hint, "ulimit -n") && strstr(error->hint, "LimitNOFILE="));
}

/* Calls without a free descriptor. The peer that exists goes on. */
static void limit_of_calls(void *argument)
{
	struct scenario_environment environment;
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_operation *operation;
	struct pl_listener *listener;
	struct pl_context *context;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_region *region;
	struct pl_error error;
	struct rlimit limit;

	environment_open(&environment, argument);
	buffer_open(&near, environment.near, 64, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, 64, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	limit = take_descriptors();
	expect_limit(pl_open(&context, &options, &error), &error);
	expect_limit(pl_listen(environment.near, "127.0.0.1:0", &listener, &error), &error);
	expect_limit(pl_region_allocate(environment.near, 64, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &operation, &error), &error);
	expect_limit(await(&environment, operation, NULL, &error), &error);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 64 }, NULL,
			  &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	give_descriptors(&limit);
	check_ok(pl_region_allocate(environment.near, 64, PL_ACCESS_ALL, &region, &error), &error);
	pl_region_deregister(region);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* Only contexts whose peers can map regions keep a descriptor for each. */
static void descriptors_of_regions(void *argument)
{
	struct scenario_environment environment;
	struct pl_region *regions[REGIONS];
	unsigned before, each = !strcmp(((const struct setting *)argument)->fabric, "local");
	struct pl_error error;

	environment_listen(&environment, argument);
	before = open_descriptors();
	for (unsigned i = 0; i < REGIONS; i++)
		check_ok(pl_region_allocate(environment.near, 64, PL_ACCESS_ALL, &regions[i], &error), &error);
	check_number(open_descriptors(), before + each * REGIONS);
	for (unsigned i = 0; i < REGIONS; i++) {
		*(volatile char *)pl_region_address(regions[i]) = 1;
		pl_region_deregister(regions[i]);
	}
	check_number(open_descriptors(), before);
	environment_close(&environment);
}

static unsigned count_links(const char *to)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned count = 0;
	char target[128];

	check(folder != NULL);
	while ((entry = readdir(folder))) {
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

		target[length > 0 ? length : 0] = '\0';
		count += strstr(target, to) != NULL;
	}
	closedir(folder);
	return count;
}

/* valgrind has no pidfds, and its limit of descriptors does not bind the kernel's recvmsg(2). */
static bool has_pidfds(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool kernel_populates(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool does = madvise(page, 4096, MADV_POPULATE_WRITE) == 0;

	munmap(page, 4096);
	return does;
}

static unsigned count_events(struct pl_peer *peer, uint32_t event)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[PL_EVENTS_MAX];
	int count = pl_peer_events(peer, &query, records, PL_EVENTS_MAX);
	unsigned found = 0;

	for (int i = 0; i < count; i++)
		if (records[i].event == event)
			found += records[i].count;
	return found;
}

/* A connection keeps no descriptor of its gates. Keys beyond the first page of them are opened and revoked without it. */
static void descriptors_of_a_local_peer(void *argument)
{
	struct scenario_environment environment;
	struct pl_remote *remotes[REGIONS];
	struct buffer far;
	unsigned before;

	buffers_allocated = true;
	environment_open(&environment, argument);
	check_number(count_links("peerlane-gates"), kernel_populates() && has_pidfds() ? 0 : 2);
	buffer_open(&far, environment.far, 64, PL_ACCESS_ALL);
	before = open_descriptors();
	for (unsigned i = 0; i < REGIONS; i++)
		remotes[i] = share(&environment, far.region, environment.near_peer, NULL);
	check_number(open_descriptors(), before);
	check_number(count_events(environment.near_peer, PL_EVENT_REVOKED_THERE), 0);
	buffer_close(&far);
	progress_until(&environment, count_events(environment.near_peer, PL_EVENT_REVOKED_THERE) == REGIONS);
	for (unsigned i = 0; i < REGIONS; i++)
		pl_remote_release(remotes[i]);
	environment_close(&environment);
}

/* The importer has no descriptor for a region that the owner sent: the peer stays, and the kernel copies. */
static void import_without_descriptor(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_completion imported;
	struct buffer near, far;
	struct pl_error error;
	struct rlimit limit;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pollfd answer = { .events = POLLIN };

	if (!has_pidfds())
		exit(SKIPPED);
	buffers_allocated = true;
	environment_open(&environment, argument);
	buffer_open(&near, environment.near, 64, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, 64, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import_start(environment.near_peer, token, length, 0, &operation, &error), &error);
	/* The owner answers: only its context makes progress. Both ends are this process. */
	answer.fd = pl_fd(environment.near);
	check(answer.fd >= 0);
	while (poll(&answer, 1, 0) == 0)
		pl_poll(environment.far, &imported, 1);
	for (unsigned i = 0; i < 1000; i++)
		pl_poll(environment.far, &imported, 1);
	limit = take_descriptors();
	complete(&environment, operation, &imported);
	check_number(count_events(environment.near_peer, PL_EVENT_LIMIT_REACHED), 1);
	pattern_fill(near.bytes, 64, 1, 0);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ imported.remote, 0, near.region, 0, 64 }, NULL,
			  &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	pattern_check(far.bytes, 64, 1, 0);
	give_descriptors(&limit);
	pl_remote_release(imported.remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* -- descriptors that a security module keeps back ------------------------------------------------ */

/* True if descriptors of other processes are kept back, as a module does whose security_file_receive() refuses. */
static atomic_bool forbidden;

/* Replaces the C library's function: the message comes without its descriptors, and tells so. */
ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
	struct cmsghdr *header = got < 0 ? NULL : CMSG_FIRSTHDR(message);

	if (!atomic_load(&forbidden) || !header || header->cmsg_type != SCM_RIGHTS)
		return got;
	for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
		int kept;

		memcpy(&kept, CMSG_DATA(header) + i * sizeof(int), sizeof(kept));
		close(kept);
	}
	message->msg_controllen = 0;
	message->msg_flags |= MSG_CTRUNC;
	return got;
}

/* The descriptor of the acceptor's gates does not come: the program is not told to raise a limit. */
static void gates_kept_back(void *argument)
{
	struct scenario_environment environment;
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_error error;
	int rc;

	environment_listen(&environment, argument);
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &operation, &error), &error);
	do {
		atomic_store(&forbidden, false);
		pl_poll(environment.far, &completion, 1);
		atomic_store(&forbidden, true);
		rc = pl_test(operation, NULL, &error);
	} while (rc == -EINPROGRESS);
	atomic_store(&forbidden, false);
	check_number(rc, -EACCES);
	check_text(error.id, "LOCAL-SOCKET");
	check(strstr(error.hint, "SELinux"));
	environment_close(&environment);
}

/* Returns the text of the peer's newest event of a kind, and its status. */
static int status_of_event(struct pl_peer *peer, uint32_t event, char text[208])
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[PL_EVENTS_MAX];
	int count = pl_peer_events(peer, &query, records, PL_EVENTS_MAX), status = 0;

	text[0] = '\0';
	for (int i = 0; i < count; i++) {
		if (records[i].event != event)
			continue;
		status = records[i].status;
		snprintf(text, sizeof(records[i].text), "%s", records[i].text);
	}
	return status;
}

/* A region's descriptor does not come: the import goes on without it, and the event names the reason. */
static void region_kept_back(void *argument)
{
	struct scenario_environment environment;
	struct pl_remote *remote;
	struct buffer far;
	char text[208];

	buffers_allocated = true;
	environment_open(&environment, argument);
	buffer_open(&far, environment.far, 64, PL_ACCESS_ALL);
	atomic_store(&forbidden, true);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	atomic_store(&forbidden, false);
	check_number(status_of_event(environment.near_peer, PL_EVENT_LIMIT_REACHED, text), -EACCES);
	check(strstr(text, "security module"));
	pl_remote_release(remote);
	buffer_close(&far);
	environment_close(&environment);
}

/* -- an acceptor that has none ---------------------------------------------------------------------- */

/* Rounds in which a handshake ends that both ends drive in turn. */
#define ROUNDS 1000

/* Makes progress at the accepting end without a free descriptor. */
static void starve_far(struct scenario_environment *environment)
{
	struct rlimit limit = take_descriptors();
	struct pl_completion completion;

	pl_poll(environment->far, &completion, 1);
	give_descriptors(&limit);
}

/*
 * The acceptor has no descriptor for the local socket that proves the other end's process. The ends use tcp, and the reason is
 * not another network namespace.
 */
static void acceptor_without_descriptor(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_completion first, connected;
	struct pl_error error;
	unsigned before;
	uint64_t end;
	char text[208];

	environment_listen(&environment, argument);
	/* The first connection opens the near end's local listener. It stays, so that no other descriptor comes or goes. */
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &operation, &error), &error);
	complete(&environment, operation, &first);
	before = open_descriptors();
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &operation, &error), &error);
	/* Both sockets of the control channel. */
	while (open_descriptors() < before + 2) {
		pl_poll(environment.near, &connected, 0);
		pl_poll(environment.far, &connected, 0);
	}
	/* The handshake's last bytes may take some time over the loopback interface. */
	end = clock_now() + SECOND;
	for (unsigned i = 0; i < ROUNDS || clock_now() < end; i++) {
		starve_far(&environment);
		check(pl_poll(environment.near, &connected, 0) == 0);
	}
	complete(&environment, operation, &connected);
	check_number(status_of_event(connected.peer, PL_EVENT_CONNECTED, text), 0);
	check(strstr(text, "no free file descriptor"));
	pl_peer_close(connected.peer);
	pl_peer_close(first.peer);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "limit-of-calls", limit_of_calls, &local, 60 },
	{ "regions-over-tcp", descriptors_of_regions, &tcp, 60 },
	{ "regions-over-local", descriptors_of_regions, &local, 60 },
	{ "local-peer", descriptors_of_a_local_peer, &local, 60 },
	{ "import-without-descriptor", import_without_descriptor, &local, 60 },
	{ "gates-kept-back", gates_kept_back, &local, 60 },
	{ "region-kept-back", region_kept_back, &local, 60 },
	{ "acceptor-without-descriptor", acceptor_without_descriptor, &any, 60 },
};

int main(void)
{
	return cases_run("descriptors", cases, sizeof(cases) / sizeof(cases[0]));
}
