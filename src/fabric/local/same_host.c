/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proof that the other end is a process of this host, user and namespace. Equal boot ids are a hint. The proof is a
 * local socket: the acceptor connects to the initiator's socket, and the kernel names the listening process. The
 * name of the socket came over the authenticated control channel.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/local/local.h"

#define BACKLOG 1024
#define SOCKET_BUFFER (1 << 20)
#define HINT_AUTO "leave the fabric to be chosen"
#define HINT_DESCRIPTOR \
	"raise its limit: ulimit -n NUMBER in the shell, LimitNOFILE=NUMBER in the unit of systemd; or the host's, " \
	"fs.file-max"

/* Reads the inode number of a namespace. 0: the kernel has no such namespaces, so all processes share one. */
static bool read_namespace_inode(const char *path, uint64_t *number)
{
	struct stat status;

	*number = stat(path, &status) == 0 ? (uint64_t)status.st_ino : 0;
	return *number || (errno == ENOENT && stat("/proc/self/ns", &status) == 0);
}

/* Fills an address in the abstract namespace, which leaves nothing in the file system at the end of the process. */
static socklen_t listener_address(const uint8_t name[LOCAL_NAME], struct sockaddr_un *address)
{
	size_t used = (size_t)snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "peerlane-");

	address->sun_family = AF_UNIX;
	address->sun_path[0] = '\0';
	for (unsigned i = 0; i < LOCAL_NAME; i++)
		used += (size_t)snprintf(address->sun_path + 1 + used, 3, "%02x", name[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + used);
}

static int new_local_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int local_connect_to_listener(const uint8_t name[LOCAL_NAME])
{
	struct sockaddr_un address;
	socklen_t length = listener_address(name, &address);
	int fd = new_local_socket(), size = SOCKET_BUFFER, rc;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (connect(fd, (struct sockaddr *)&address, length) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int local_identify_peer(int fd, pid_t *process, enum pl_refusal *refusal)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return -errno;
	*refusal = PL_REFUSAL_NONE;
	if (peer.uid != geteuid())
		*refusal = PL_REFUSAL_USER;
	else if (peer.pid == 0)
		*refusal = PL_REFUSAL_NAMESPACE;
	*process = peer.pid;
	return *refusal == PL_REFUSAL_NONE ? 0 : -EPERM;
}

/* -- the state ------------------------------------------------------------------------------------ */

static int open_listener(struct local_state *state, struct pl_error *error)
{
	struct sockaddr_un address;
	struct pl_listener *listener;
	socklen_t length;
	int fd, rc = pl_random(state->name, sizeof(state->name));

	if (rc < 0)
		return pl_fail_errno(error, rc, "SYSTEM", "getrandom", NULL);
	length = listener_address(state->name, &address);
	fd = new_local_socket();
	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, BACKLOG) == 0)
		return pl_listener_open(state->context, fd, PL_LISTENER_LANES, &listener, error);
	rc = fd < 0 ? fd : -errno;
	if (fd >= 0)
		close(fd);
	return pl_fail_errno(error, rc, "LOCAL-SOCKET", "bind", NULL);
}

/* The kernel raises a signal for shared memory beyond RLIMIT_FSIZE. */
static bool may_have_gates(unsigned count)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= count * sizeof(struct local_gate);
}

static int try_gates(const struct pl_allocator *allocator, struct pl_error *error)
{
	struct local_gates *gates;
	struct pl_error failure;

	if (!may_have_gates(LOCAL_GATES_LEAST))
		return local_fail_gates(-EFBIG, error);
	gates = local_gates_new(allocator, LOCAL_GATES_LEAST, &failure);
	if (!gates)
		return local_fail_gates(failure.code, error);
	local_gates_put(gates);
	return 0;
}

unsigned local_gate_count(const struct pl_peer *peer)
{
	return peer->many_gates && may_have_gates(LOCAL_GATES_MOST) ? LOCAL_GATES_MOST : LOCAL_GATES_LEAST;
}

static int local_state_open(struct pl_context *context, struct local_state **result, struct pl_error *error)
{
	struct local_state *state = pl_zalloc(&context->allocator, sizeof(*state));
	int rc = 0;

	if (!state)
		return pl_fail_memory(error, "connect");
	state->context = context;
	pl_list_init(&state->work);
	if (!read_namespace_inode("/proc/self/ns/pid", &state->process_namespace) ||
	    !read_namespace_inode("/proc/self/ns/user", &state->user_namespace))
		rc = pl_fail(error, -ENOENT, "LOCAL-SOCKET", "stat", "/proc/self/ns", "mount /proc",
			     "the namespaces of this process are unknown");
	if (rc == 0)
		rc = try_gates(&context->allocator, error);
	if (rc == 0)
		rc = open_listener(state, error);
	if (rc < 0) {
		pl_free(&context->allocator, state);
		return rc;
	}
	pthread_mutex_init(&state->lock, NULL);
	*result = state;
	return 0;
}

struct local_state *local_state_get(struct pl_context *context, struct pl_error *error)
{
	void **slot = pl_fabric_state(context, &pl_local_fabric);
	struct local_state *state;

	pthread_mutex_lock(&context->fabric_lock);
	state = *slot;
	if (!state && local_state_open(context, &state, error) == 0)
		*slot = state;
	pthread_mutex_unlock(&context->fabric_lock);
	return state;
}

void local_state_close(struct pl_context *context, void *pointer)
{
	struct local_state *state = pointer;

	for (unsigned i = 0; i < context->engine_count; i++) {
		if (!state->workers[i].source.engine)
			continue;
		pl_source_remove(&state->workers[i].source);
		close(state->workers[i].source.fd);
	}
	local_device_unpark(state, NULL);
	pthread_mutex_destroy(&state->lock);
	pl_free(&context->allocator, state);
}

/* -- peers of this host --------------------------------------------------------------------------- */

/* True if the connection comes from its own target address, as connections within one host do unless bound. */
static bool is_maybe_same_host(const struct pl_peer *peer)
{
	const struct sockaddr_in *a4 = (const void *)&peer->address, *b4 = (const void *)&peer->local_address;
	const struct sockaddr_in6 *a6 = (const void *)&peer->address, *b6 = (const void *)&peer->local_address;

	if (pl_address_is_loopback((const struct sockaddr *)&peer->address))
		return true;
	if (peer->address.ss_family != peer->local_address.ss_family)
		return false;
	if (peer->address.ss_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
}

int local_serves(struct pl_peer *peer, struct pl_error *error)
{
	if (!is_maybe_same_host(peer))
		return pl_fail(error, -EHOSTUNREACH, "LOCAL-ELSEWHERE", "local", NULL, HINT_AUTO,
			       "the peer is not on this host");
	return local_state_get(peer->context, error) ? 0 : -ENOMEM;
}

void local_invitation(const struct local_state *state, struct local_invitation *invitation)
{
	memcpy(invitation->name, state->name, sizeof(invitation->name));
	invitation->process_namespace = state->process_namespace;
	invitation->user_namespace = state->user_namespace;
}

int local_invite(struct pl_peer *peer, uint8_t blob[PL_FABRIC_BLOB_MAX])
{
	struct local_state *state = local_state_get(peer->context, NULL);
	struct local_invitation invitation;

	if (!state)
		return 0;
	local_invitation(state, &invitation);
	local_invitation_encode(&invitation, blob);
	return LOCAL_INVITATION;
}

/* Returns 0 with the refusal, or -EAGAIN: the queue of the other process's listener is full. */
static int probe_peer_process(const struct local_state *state, const struct local_invitation *invitation,
			      enum pl_refusal *refusal)
{
	bool elsewhere = invitation->process_namespace != state->process_namespace ||
			 invitation->user_namespace != state->user_namespace;
	int fd = local_connect_to_listener(invitation->name);
	pid_t process;

	*refusal = PL_REFUSAL_SOCKET;
	if (fd == -EAGAIN && elsewhere) {
		*refusal = PL_REFUSAL_NAMESPACE;
		return 0;
	}
	if (fd < 0) {
		*refusal = pl_lacks_descriptor(fd) ? PL_REFUSAL_DESCRIPTOR : PL_REFUSAL_SOCKET;
		return fd == -EAGAIN ? fd : 0;
	}
	local_identify_peer(fd, &process, refusal);
	close(fd);
	if (*refusal == PL_REFUSAL_NONE && elsewhere)
		*refusal = PL_REFUSAL_NAMESPACE;
	return 0;
}

int local_suits(struct pl_peer *peer, const struct pl_fabric_advert *advert, struct pl_error *error)
{
	static const char *const facts[PL_REFUSAL_END] = {
		[PL_REFUSAL_USER] = "the other process belongs to another user",
		[PL_REFUSAL_NAMESPACE] = "the other process is in another process or user namespace",
		[PL_REFUSAL_SOCKET] = "the other process cannot be reached by a local socket",
		[PL_REFUSAL_DESCRIPTOR] = "the accepting process has no free file descriptor",
	};
	struct local_state *state = local_state_get(peer->context, error);
	struct local_invitation invitation;

	if (!state)
		return -ENOMEM;
	if (!peer->same_host)
		return pl_fail(error, -EHOSTUNREACH, "LOCAL-ELSEWHERE", "local", NULL, HINT_AUTO,
			       "the other process runs under another kernel");
	if (local_invitation_decode(advert->blob, advert->blob_length, &invitation) < 0)
		return pl_fail(error, -EPROTO, "PROTOCOL", "hello", NULL, NULL,
			       "the other end's invitation to the local fabric is malformed");
	if (probe_peer_process(state, &invitation, &peer->refusal) == -EAGAIN)
		return pl_fail(error, -EAGAIN, "LOCAL-SOCKET", "connect", NULL, NULL,
			       "the queue of the other process's local socket is full");
	if (peer->refusal == PL_REFUSAL_NONE)
		return 0;
	return pl_fail(error, -EPERM, "LOCAL-ELSEWHERE", "local", NULL,
		       peer->refusal == PL_REFUSAL_DESCRIPTOR ? HINT_DESCRIPTOR : HINT_AUTO, "%s",
		       facts[peer->refusal]);
}
