/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Socket that passes file descriptors: records, each with one descriptor or several. The initiator connects, sends a
 * hello with a tag that proves the secret of both ends, and its gates. The acceptor answers with its own gates; then the initiator
 * connects the lanes. A key's record is sent before the key, which comes over the control channel. So the record
 * arrives before the key.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric/local/local.h"

/* Most records of one visit: more than an honest peer has under way. A hostile peer cannot delay other sockets. */
#define RECORDS_PER_VISIT (2 * LOCAL_PENDING)

/* Time between two attempts to connect to a listener whose queue is full, until the time of the connect is over. */
#define CONNECT_AGAIN (10 * PL_NS_PER_MS)

#define HINT_FORBIDDEN \
	"see the kernel's audit log, and let both programs use each other's descriptors (SELinux: fd use); " \
	"or use the fabric tcp"

union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(LOCAL_FDS_PER_RECORD * sizeof(int))];
};

/* A received record and its descriptors. */
struct received {
	struct local_record record;
	int fds[LOCAL_FDS_PER_RECORD];
	unsigned count;
	bool whole; /* true if the kernel kept back no descriptor */
};

static int send_gates(struct local_endpoint *endpoint)
{
	const struct local_gates *gates = endpoint->own_gates;
	struct local_record record = { .type = LOCAL_RECORD_GATES, .size = gates->count * sizeof(struct local_gate) };
	int rc = local_fd_socket_send(endpoint, &record, gates->fd);

	if (rc == 0)
		local_gates_sent(endpoint->own_gates);
	return rc;
}

static int receive_gates(struct local_endpoint *endpoint, const struct local_record *record, int fd)
{
	struct pl_error error;
	bool writable = false;
	int rc;

	if (endpoint->gates_received || record->size % sizeof(struct local_gate) ||
	    record->size > LOCAL_GATES_MOST * sizeof(struct local_gate))
		return -EPROTO;
	endpoint->gates = local_map_sealed_file(fd, record->size, &writable);
	if (endpoint->gates && !writable) {
		munmap(endpoint->gates, (size_t)record->size);
		endpoint->gates = NULL;
	}
	if (!endpoint->gates)
		return -EPROTO;
	endpoint->gates_received = true;
	endpoint->gate_count = (unsigned)(record->size / sizeof(struct local_gate));
	if (!endpoint->base.peer->initiator)
		return send_gates(endpoint);
	rc = pl_tcp_fabric.connect(endpoint->lanes, endpoint->lanes_blob, endpoint->lanes_length, &error);
	return rc;
}

/* Takes all descriptors of a message, so that the caller closes the unexpected ones. */
static void store_descriptors(struct msghdr *message, struct received *received)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);

	received->whole = !(message->msg_flags & MSG_CTRUNC);
	received->count = 0;
	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
		return;
	received->count = (unsigned)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(received->fds, CMSG_DATA(header), received->count * sizeof(int));
}

/*
 * Returns why the kernel kept a descriptor back: -EMFILE or -ENFILE; or -EACCES, a security module forbids it. recvmsg(2) tells
 * only that it did.
 */
static int why_kept_back(const struct local_endpoint *endpoint)
{
	int fd = fcntl(endpoint->fd_socket.fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	close(fd);
	return -EACCES;
}

void local_note_kept_back(struct local_endpoint *endpoint, uint64_t key)
{
	int why = why_kept_back(endpoint);

	pl_peer_note_key(endpoint->base.peer, PL_EVENT_LIMIT_REACHED, key, why,
			 why == -EACCES ? LOCAL_DESCRIPTOR_FORBIDDEN : LOCAL_NO_DESCRIPTOR);
}

/* Handles a record whose descriptor the kernel kept back. */
static int handle_bare_record(struct local_endpoint *endpoint, const struct local_record *record)
{
	if (record->type == LOCAL_RECORD_GATES)
		return why_kept_back(endpoint);
	if (record->type == LOCAL_RECORD_REVOKED)
		local_key_revoked(endpoint, record->key);
	else
		local_note_kept_back(endpoint, record->key);
	return endpoint->gates_received ? 0 : -EPROTO;
}

static int handle_record(struct local_endpoint *endpoint, struct received *received)
{
	const struct local_record *record = &received->record;

	if (record->type == LOCAL_RECORD_FDS) {
		if (!endpoint->gates_received)
			return -EPROTO;
		return local_pending_add(endpoint, record, received->fds, received->count, received->whole);
	}
	if (!received->count && !received->whole)
		return handle_bare_record(endpoint, record);
	if (received->count != 1 || !received->whole)
		return -EPROTO;
	if (record->type == LOCAL_RECORD_GATES)
		return receive_gates(endpoint, record, received->fds[0]);
	if (record->type == LOCAL_RECORD_REVOKED)
		local_key_revoked(endpoint, record->key);
	else
		return endpoint->gates_received ? local_pending_memory(endpoint, record, received->fds[0]) : -EPROTO;
	return 0;
}

/* Receives and handles one record with its descriptors. Returns 1, 0 if none has arrived, or a negative errno. */
static int receive_record(struct local_endpoint *endpoint)
{
	uint8_t bytes[LOCAL_RECORD];
	struct iovec vector = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	union control control;
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	ssize_t got = recvmsg(endpoint->fd_socket.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct received received;
	int rc;

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	store_descriptors(&message, &received);
	rc = got == 0 ? -EPIPE : -EPROTO;
	if (got == (ssize_t)sizeof(bytes))
		rc = local_record_decode(bytes, &received.record);
	if (rc == 0)
		rc = handle_record(endpoint, &received);
	for (unsigned i = 0; i < received.count; i++)
		if (received.fds[i] >= 0)
			close(received.fds[i]);
	return rc < 0 ? rc : 1;
}

static void fd_socket_fail(struct local_endpoint *endpoint, int rc)
{
	struct pl_peer *peer = endpoint->base.peer;
	struct pl_error error;

	pl_source_remove(&endpoint->fd_socket);
	/* Reports only failures: the other connections report an orderly end. */
	if (pl_lacks_descriptor(rc)) {
		pl_fail_errno(&error, rc, "PEER-LOST", "receive", NULL);
		pl_peer_lose(peer, &error);
	} else if (rc == -ENOMEM) {
		pl_fail_memory(&error, "local socket");
		pl_peer_lose(peer, &error);
	} else if (rc == -EACCES) {
		pl_fail(&error, rc, "LOCAL-SOCKET", "recvmsg", NULL, HINT_FORBIDDEN,
			"a security module of the kernel kept back a file descriptor of the other process");
		pl_peer_lose(peer, &error);
	} else if (rc == -EPROTO || !endpoint->gates_received || atomic_load(&peer->state) == PL_PEER_OPENING) {
		pl_fail(&error, rc == -EPROTO ? rc : -ECONNRESET, rc == -EPROTO ? "PROTOCOL" : "PEER-LOST", "receive",
			NULL, "check that both ends run the same release of Peerlane",
			"the local socket broke, or the peer violated the protocol");
		pl_peer_lose(peer, &error);
	}
}

void local_fd_socket_drain(struct local_endpoint *endpoint)
{
	int rc = 1;

	for (unsigned i = 0; endpoint->fd_socket.engine && rc > 0 && i < RECORDS_PER_VISIT; i++) {
		rc = receive_record(endpoint);
		if (rc < 0)
			fd_socket_fail(endpoint, rc);
	}
}

static bool fd_socket_ready(struct pl_source *source, uint32_t events)
{
	struct local_endpoint *endpoint = pl_container_of(source, struct local_endpoint, fd_socket);

	(void)events;
	local_fd_socket_drain(endpoint);
	return true;
}

int local_record_send(int socket, const struct local_record *record, const int *fds, unsigned count)
{
	uint8_t bytes[LOCAL_RECORD];
	struct iovec vector = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	union control control = { 0 };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};

	local_record_encode(record, bytes);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	/* The kernel sends a record of 32 bytes whole or not at all. */
	return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int local_fd_socket_send(struct local_endpoint *endpoint, const struct local_record *record, int fd)
{
	return endpoint->fd_socket.engine ? local_record_send(endpoint->fd_socket.fd, record, &fd, 1) : -EPIPE;
}

int local_fd_socket_send_ipc_fds(struct local_endpoint *endpoint, uint64_t key, const struct pl_ipc_fds *ipc_fds)
{
	struct local_record record = { .type = LOCAL_RECORD_FDS, .fds = (uint16_t)ipc_fds->count, .key = key };
	int fds[LOCAL_FDS_PER_RECORD], rc = 0;
	unsigned count;

	for (unsigned done = 0; done < ipc_fds->count && rc == 0; done += count) {
		record.size = ipc_fds->list[done].size;
		for (count = 0; count < LOCAL_FDS_PER_RECORD && done + count < ipc_fds->count &&
				ipc_fds->list[done + count].size == record.size;
		     count++)
			fds[count] = ipc_fds->list[done + count].fd;
		rc = endpoint->fd_socket.engine ? local_record_send(endpoint->fd_socket.fd, &record, fds, count)
						: -EPIPE;
	}
	return rc;
}

/* Asks the kernel for the peer's process, and opens a pidfd of it, because the kernel reuses process numbers. */
static int identify_process(struct local_endpoint *endpoint, int fd)
{
	enum pl_refusal refusal;
	int rc = local_identify_peer(fd, &endpoint->process, &refusal);

	if (rc < 0)
		return rc;
	endpoint->process_fd = (int)syscall(SYS_pidfd_open, endpoint->process, 0);
	/* Older kernels, and filters of containers, lack the call: other access paths remain. */
	if (endpoint->process_fd < 0 && pl_lacks_descriptor(-errno))
		return -errno;
	/* Threads that wait for holders poll the pidfd, possibly after the connection is closed. */
	atomic_store(&endpoint->own_gates->process, endpoint->process_fd);
	return 0;
}

/* The process has ended. Its sockets may stay open: a process that it forked has copies of them. */
static bool peer_process_ended(struct pl_source *source, uint32_t events)
{
	struct local_endpoint *endpoint = pl_container_of(source, struct local_endpoint, process_end);
	struct pl_peer *peer = endpoint->base.peer;
	struct pl_error error;

	(void)events;
	pl_source_remove(source);
	atomic_store(&endpoint->own_gates->dead, true);
	if (atomic_load(&peer->state) == PL_PEER_OPENING) {
		pl_fail(&error, -ECONNRESET, "PEER-LOST", "connection", NULL, NULL, "the other process has ended");
		pl_peer_lose(peer, &error);
	} else {
		pl_peer_ending(peer);
	}
	return true;
}

/* Without a pidfd only the sockets tell the end of the process. */
static int watch_peer_process(struct local_endpoint *endpoint)
{
	if (endpoint->process_fd < 0)
		return 0;
	endpoint->process_end.fd = endpoint->process_fd;
	endpoint->process_end.ready = peer_process_ended;
	return pl_source_add(endpoint->base.peer->home, &endpoint->process_end, EPOLLIN);
}

static int fd_socket_watch(struct local_endpoint *endpoint, int fd)
{
	int rc = identify_process(endpoint, fd);

	if (rc == 0)
		rc = watch_peer_process(endpoint);
	endpoint->fd_socket.fd = fd;
	endpoint->fd_socket.ready = fd_socket_ready;
	if (rc == 0)
		rc = pl_source_add(endpoint->base.peer->home, &endpoint->fd_socket, EPOLLIN);
	if (rc == 0)
		local_gates_set_fd_socket(endpoint->own_gates, fd);
	return rc;
}

/* -- initiator ------------------------------------------------------------------------------------ */

int local_fd_socket_connect(struct local_endpoint *endpoint, struct pl_error *error)
{
	struct pl_lane_auth auth;
	struct pl_reader reader;
	int fd = local_connect_to_listener(endpoint->peer_invitation.name);
	int rc = fd < 0 ? fd : fd_socket_watch(endpoint, fd);

	if (fd == -EAGAIN) {
		pl_timer_set(endpoint->base.peer->home, &endpoint->fd_socket_again, pl_now() + CONNECT_AGAIN);
		return 0;
	}
	/* The lanes' blob contains the index that every lane sends. */
	pl_reader_init(&reader, endpoint->lanes_blob, endpoint->lanes_length);
	if (rc == 0)
		rc = pl_lane_auth_hello(&auth, pl_get_u64(&reader), PL_LANE_FD_SOCKET);
	if (rc == 0)
		rc = pl_lane_auth_sign(endpoint->base.peer, auth.hello, sizeof(auth.hello));
	if (rc == 0 && (reader.bad || send(fd, auth.hello, sizeof(auth.hello), MSG_NOSIGNAL) != PL_LANE_HELLO))
		rc = -ECONNRESET;
	if (rc == 0)
		rc = send_gates(endpoint);
	return rc < 0 ? pl_fail_errno(error, rc, "LOCAL-SOCKET", "connect", NULL) : 0;
}

static void fd_socket_connect_again(struct pl_timer *timer)
{
	struct local_endpoint *endpoint = pl_container_of(timer, struct local_endpoint, fd_socket_again);
	struct pl_peer *peer = endpoint->base.peer;
	struct pl_error error;

	if (!peer->dead && local_fd_socket_connect(endpoint, &error) < 0)
		pl_peer_open_failed(peer, &error);
}

/* -- acceptor ------------------------------------------------------------------------------------- */

int local_fd_socket_join(struct local_endpoint *endpoint, struct pl_stream *stream)
{
	int none = -1;

	if (stream->ssl || !atomic_compare_exchange_strong(&endpoint->joining, &none, stream->fd)) {
		pl_stream_close(stream);
		return -EPROTO;
	}
	stream->fd = -1;
	pl_engine_post(endpoint->base.peer->home, &endpoint->fd_socket_task);
	return 0;
}

static void fd_socket_joined(struct pl_task *task)
{
	struct local_endpoint *endpoint = pl_container_of(task, struct local_endpoint, fd_socket_task);
	int fd = atomic_exchange(&endpoint->joining, -1);
	int rc;

	if (fd < 0)
		return;
	if (endpoint->fd_socket.fd >= 0) {
		close(fd);
		return;
	}
	rc = fd_socket_watch(endpoint, fd);
	if (rc < 0)
		fd_socket_fail(endpoint, rc);
	else
		local_fd_socket_drain(endpoint);
}

/* -- both ----------------------------------------------------------------------------------------- */

void local_fd_socket_init(struct local_endpoint *endpoint)
{
	endpoint->fd_socket.fd = -1;
	endpoint->process_fd = endpoint->process_end.fd = -1;
	atomic_init(&endpoint->joining, -1);
	pl_task_init(&endpoint->fd_socket_task, fd_socket_joined);
	pl_timer_init(&endpoint->fd_socket_again, fd_socket_connect_again);
	pl_list_init(&endpoint->pending);
}

void local_fd_socket_stop(struct local_endpoint *endpoint)
{
	pl_engine_withdraw(endpoint->base.peer->home, &endpoint->fd_socket_task);
	pl_timer_clear(endpoint->base.peer->home, &endpoint->fd_socket_again);
	pl_source_remove(&endpoint->fd_socket);
	pl_source_remove(&endpoint->process_end);
}

void local_fd_socket_close(struct local_endpoint *endpoint)
{
	int fd = atomic_exchange(&endpoint->joining, -1);

	pthread_mutex_lock(&endpoint->state->lock);
	local_access_table_clear(&endpoint->accesses, &endpoint->state->context->allocator);
	pthread_mutex_unlock(&endpoint->state->lock);
	local_gates_set_fd_socket(endpoint->own_gates, -1);
	if (fd >= 0)
		close(fd);
	if (endpoint->fd_socket.fd >= 0)
		close(endpoint->fd_socket.fd);
	while (!pl_list_empty(&endpoint->pending))
		local_pending_free(endpoint, pl_list_first(&endpoint->pending, struct local_pending, link));
	if (endpoint->gates)
		munmap(endpoint->gates, endpoint->gate_count * sizeof(struct local_gate));
}
