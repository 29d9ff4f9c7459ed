/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The frame with the status of a large answer goes to the socket together with the bytes, and tells the truth if the memory goes
 * while the socket takes these. Both ends have manual progress, so the order of events is fixed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define SIZE ((size_t)128 << 10) /* one chunk */
#define ROUNDS 100u

static const struct setting setting = {
	.name = "answer-trailer", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static int watched = -1; /* descriptor of the serving lane */
static bool fills;       /* the socket takes the begin of a header of a call, and is full then */
static bool full;
static size_t longest; /* bytes of the longest call */
static struct pl_frame ending; /* at its end */

static ssize_t refuse(void)
{
	errno = EAGAIN;
	return -1;
}

/* Functions of the C library, replaced in this program. */
ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	static ssize_t (*_Atomic next)(int, const void *, size_t, int);

	if (!next)
		next = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
	return fd == watched && full ? refuse() : atomic_load(&next)(fd, bytes, length, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	static ssize_t (*_Atomic next)(int, const struct msghdr *, int);
	struct iovec begin = { message->msg_iov->iov_base, PL_FRAME_HEADER / 3 };
	const struct iovec *end = &message->msg_iov[message->msg_iovlen - 1];
	struct msghdr limited = *message;
	ssize_t sent;

	if (!next)
		next = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	if (fd != watched)
		return atomic_load(&next)(fd, message, flags);
	if (full)
		return refuse();
	full = fills;
	if (fills) {
		limited.msg_iov = &begin;
		limited.msg_iovlen = 1;
	}
	sent = atomic_load(&next)(fd, &limited, flags);
	if (sent > (ssize_t)longest) {
		longest = (size_t)sent;
		pl_frame_decode((uint8_t *)end->iov_base + end->iov_len - PL_FRAME_HEADER, &ending);
	}
	return sent;
}

static struct tcp_lane *server_of(const struct pair *pair)
{
	return tcp_endpoint_of(pair->environment.far_peer->endpoint)->lanes[0];
}

static void pair_begin(struct pair *pair)
{
	pair_open(pair, &setting, SIZE);
	longest = 0;
	watched = server_of(pair)->source.fd;
}

static void pair_end(struct pair *pair)
{
	watched = -1;
	check_number(server_of(pair)->queued, 0);
	pair_close(pair);
}

static struct pl_operation *start_read(struct pair *pair, struct pl_remote *remote)
{
	const struct pl_transfer transfer = { remote, 0, pair->near.region, 0, SIZE };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	return operation;
}

static void read_well(struct pair *pair)
{
	memset(pair->near.bytes, 0, SIZE);
	pattern_fill(pair->far.bytes, SIZE, 3, 0);
	complete(&pair->environment, start_read(pair, pair->remote), NULL);
	pattern_check(pair->near.bytes, SIZE, 3, 0);
}

/* Access to the far end's memory by a token of its own, which can be revoked. */
struct access {
	uint8_t token[PL_TOKEN_MAX];
	size_t length;
	struct pl_remote *remote;
};

static void access_import(struct access *access, struct pair *pair)
{
	struct pl_error error;

	access->length = sizeof(access->token);
	check_ok(pl_region_share(pair->far.region, NULL, access->token, &access->length, &error), &error);
	access->remote = import_token(&pair->environment, pair->environment.near_peer, access->token, access->length);
}

static void access_revoke(const struct access *access, struct pair *pair)
{
	check_number(pl_region_revoke(pair->far.region, access->token, access->length), 0);
}

static void in_one_call(void *unused)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_begin(&pair);
	/* Headers acknowledge it. */
	check_ok(pl_write(pair.environment.near_peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, 8 },
			  NULL, &operation, &error),
		 &error);
	complete(&pair.environment, operation, NULL);
	/* The socket grows until it takes all. */
	for (unsigned i = 0; i < ROUNDS && longest < SIZE; i++)
		read_well(&pair);
	check_number(longest, PL_FRAME_HEADER + SIZE + PL_FRAME_HEADER);
	check_number(ending.type, PL_FRAME_VALUE);
	check_number(ending.ack, 1);
	pair_end(&pair);
}

/* The file behind the second half of the memory is cut. */
static void unreadable(void *unused)
{
	int file = memfd_create("cut", MFD_CLOEXEC);
	struct pl_region *region;
	struct pl_remote *remote;
	struct pl_error error;
	struct pair pair;
	void *memory;

	(void)unused;
	pair_begin(&pair);
	check(file >= 0 && ftruncate(file, SIZE) == 0);
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	check(memory != MAP_FAILED);
	check_ok(pl_region_register(pair.environment.far, memory, SIZE, PL_ACCESS_ALL, &region, &error), &error);
	remote = share(&pair.environment, region, pair.environment.near_peer, NULL);
	check_number(ftruncate(file, SIZE / 2), 0);
	fail_with(&pair.environment, start_read(&pair, remote), -EFAULT);
	read_well(&pair);
	pl_remote_release(remote);
	progress_until(&pair.environment, pl_region_deregister(region) == 0);
	check_number(munmap(memory, SIZE), 0);
	check_number(close(file), 0);
	pair_end(&pair);
}

/* The owner revokes the memory after the socket has taken the first bytes of it. */
static void revoked(void *unused)
{
	const struct tcp_piece *trailer;
	struct pl_operation *operation;
	struct access access;
	struct pair pair;

	(void)unused;
	pair_begin(&pair);
	access_import(&access, &pair);
	fills = true;
	operation = start_read(&pair, access.remote);
	progress_until(&pair.environment, full);
	/* No later frame may come between these. */
	trailer = pl_list_entry(server_of(&pair)->queue.prev, struct tcp_piece, link);
	check_number(trailer->frame.type, PL_FRAME_VALUE);
	check(trailer->header_final);
	access_revoke(&access, &pair);
	fills = full = false;
	fail_with(&pair.environment, operation, -EACCES);
	read_well(&pair);
	pl_remote_release(access.remote);
	pair_end(&pair);
}

/* Behind the first answer waits another one, so its trailer is made when its bytes are sent. */
static void revoked_before_another(void *unused)
{
	struct pl_operation *first, *second;
	struct access access;
	struct pair pair;

	(void)unused;
	pair_begin(&pair);
	access_import(&access, &pair);
	fills = true;
	first = start_read(&pair, access.remote);
	second = start_read(&pair, pair.remote);
	progress_until(&pair.environment, full);
	check(server_of(&pair)->queue.next != server_of(&pair)->queue.prev);
	check(!pl_list_first(&server_of(&pair)->queue, struct tcp_piece, link)->trailer);
	access_revoke(&access, &pair);
	fills = full = false;
	fail_with(&pair.environment, first, -EACCES);
	complete(&pair.environment, second, NULL);
	read_well(&pair);
	pl_remote_release(access.remote);
	pair_end(&pair);
}

/* A failed answer is that of a READ: the other end may take it for a WRITE's otherwise. */
static void failure(void *unused)
{
	struct tcp_piece trailer = { .frame = { .type = PL_FRAME_VALUE, .cookie = 5 } };

	(void)unused;
	tcp_trailer_fail(&trailer, PL_WIRE_MEMORY);
	check_number(trailer.frame.type, PL_FRAME_FAIL);
	check_number(trailer.frame.flags, PL_FRAME_READ);
	check_number(trailer.frame.cookie, 5);
	check_number(trailer.frame.offset, PL_WIRE_MEMORY);
}

static const struct test_case cases[] = {
	{ "in one call", in_one_call, NULL, 60 }, { "unreadable", unreadable, NULL, 60 },
	{ "revoked", revoked, NULL, 60 },         { "revoked before another", revoked_before_another, NULL, 60 },
	{ "failure", failure, NULL, 60 },
};

int main(void)
{
	return cases_run("answer-trailer", cases, sizeof(cases) / sizeof(cases[0]));
}
