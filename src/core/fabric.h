/* SPDX-License-Identifier: BSD-2-Clause */
/* What a fabric offers to the core. */
#ifndef PL_CORE_FABRIC_H
#define PL_CORE_FABRIC_H

#include "core/listener.h"
#include "core/message.h"
#include "core/socket.h"

/* The common part of every fabric's endpoint. */
struct pl_endpoint {
	struct pl_peer *peer;
};

/*
 * One way to move bytes.  Everything but close is called under the home engine's lock.
 *
 * post() takes an operation of kind WRITE, READ, FETCH_ADD or COMPARE_SWAP: the fabric adds to
 * `pending` for each part that it starts, calls pl_operation_pending_done() for each, and drops what
 * it can of operations that are `canceled` when sweep() is called, in bounded time.
 * message() sends a small frame in order.  A payload of up to PL_KEY_BLOB_MAX bytes is copied, a
 * larger one is kept by reference; `operation`, if any, has one part more until it is not used.
 * Without a payload, those of gathers() are where the operation's segment is.
 */
struct pl_fabric_ops {
	const char *name;
	/* 0 if it can be used for this peer, whose addresses are known; or why not.  Before create(). Default: 0. */
	int (*serves)(struct pl_peer *peer, struct pl_error *error);
	/* Initiator: what the acceptor needs to find out whether it serves.  Length.  Default: nothing. */
	int (*invite)(struct pl_peer *peer, uint8_t blob[PL_FABRIC_BLOB_MAX]);
	/* Acceptor: 0 if it can be used, by what the initiator offers; or why not.  Default: 0. */
	int (*suits)(struct pl_peer *peer, const struct pl_fabric_advert *offer, struct pl_error *error);
	const char *reason; /* why bytes go the way they go, for receipts */
	/* How visible bytes are that were moved with the default, and what makes them so; static storage. */
	enum pl_visible visible;
	const char *visibility;
	/* Both ends may think that it serves, and be wrong: then another one is tried.  Default: false. */
	bool uncertain;
	/* Why large messages go through staging from memory that the processor does not reach; NULL: they do not. */
	const char *staging_reason;
	int (*create)(struct pl_peer *peer, struct pl_endpoint **endpoint, struct pl_error *error);
	/* Acceptor: how the initiator reaches it.  Returns the blob's length. */
	int (*describe)(struct pl_endpoint *endpoint, uint8_t blob[PL_FABRIC_BLOB_MAX]);
	/* Initiator: begins to connect; ends in pl_peer_up() or pl_peer_lose(). */
	int (*connect)(struct pl_endpoint *endpoint, const uint8_t *blob, size_t length, struct pl_error *error);
	/*
	 * Initiator: the acceptor speaks over the control connection, as its end is up, before what says so over
	 * this fabric came.  Whether this end is, too.  Default: false, which is an error of the acceptor's.
	 */
	bool (*up)(struct pl_endpoint *endpoint);
	/* A socket that presented itself at the listener of the peer's context. Any engine. Takes the stream over. */
	int (*join)(struct pl_endpoint *endpoint, struct pl_stream *stream, const uint8_t *hello);
	/* The peer asks for more streams. */
	void (*widen)(struct pl_endpoint *endpoint, unsigned streams);
	void (*post)(struct pl_endpoint *endpoint, struct pl_operation *operation);
	int (*message)(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
		       struct pl_operation *operation);
	/*
	 * Whether message() takes the bytes of a small send from where they are, in memory that the processor does not
	 * reach.  Default: no, they are copied.
	 */
	bool (*gathers)(struct pl_endpoint *endpoint, struct pl_operation *operation);
	void (*sweep)(struct pl_endpoint *endpoint);
	/* Whether everything that the peer sent before it left was read. */
	bool (*drained)(struct pl_endpoint *endpoint);
	unsigned (*streams)(struct pl_endpoint *endpoint);
	/*
	 * Begins to end without waiting for anything, and takes no more streams.  Once nothing of the
	 * endpoint is in use on other engines, posts the task to the peer's home engine.  Home.
	 */
	void (*abandon)(struct pl_endpoint *endpoint, struct pl_task *task);
	/*
	 * Flushes what can be, closes, drops all parts, frees.  Without an engine's lock; or, with that
	 * of the home engine, once it was abandoned.
	 */
	void (*close)(struct pl_endpoint *endpoint);
	/*
	 * The remote key of a key of ours, which begins with its id; returns its length or a negative
	 * errno.  What it registers for that hangs on the grant, or, if that is NULL, on the key.  grant_lock
	 */
	int (*export_key)(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
			  uint8_t blob[PL_KEY_BLOB_MAX]);
	/*
	 * Does an operation of one segment before it returns, on the program's thread, if that is possible now.
	 * Any thread, no lock.  False: nothing was done, post() it.  Default: false.
	 */
	bool (*sync_try)(struct pl_endpoint *endpoint, struct pl_sync_op *instant);
	/*
	 * The bytes of an operation were moved: makes them as visible as it asks for, and tells in its receipt.  True:
	 * that takes parts of it, which it added.  Called once, if more is asked for than the default, or it is to
	 * notify.  Default: there is nothing to do.
	 */
	bool (*settle)(struct pl_endpoint *endpoint, struct pl_operation *operation);
	/* A key came: find the way to the memory behind it.  Default: there is nothing to find. */
	void (*imported)(struct pl_endpoint *endpoint, struct pl_remote *remote);
	/* Whether devices are there that may reach memory that the processor does not.  Default: no. */
	bool (*devices)(struct pl_context *context);
	/* Adds what devices have registered for this end's own use.  Default: nothing. */
	void (*count)(void *state, struct pl_registrations_info *info);
	/* Nothing kept may be of that memory any more.  Default: nothing is kept. */
	void (*freed)(void *state, const void *address, size_t length);
	/* The context closes: peers, regions and threads are gone, engines are not. Default: there is no state. */
	void (*close_state)(struct pl_context *context, void *state);
};

extern const struct pl_fabric_ops pl_local_fabric;
extern const struct pl_fabric_ops pl_tcp_fabric;
extern const struct pl_fabric_ops pl_verbs_fabric;

#define PL_STREAMS_MAX 16

/* choice.c: which fabric a peer gets.  All fabrics of this build, the best first, NULL at the end. */
extern const struct pl_fabric_ops *const pl_fabrics[];
/* Sets the context's fabrics: all, or the one of that name. */
int pl_fabrics_configure(struct pl_context *context, const char *name, struct pl_error *error);
/* Initiator: what it could use to reach the peer, into its hello.  Fails if there is nothing: why the last is not. */
int pl_fabrics_advertise(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error);
/* Acceptor: takes the best that the initiator offers.  Initiator: takes what the acceptor chose.  NULL: nothing fits. */
const struct pl_fabric_advert *pl_fabrics_select(struct pl_peer *peer, const struct pl_hello *hello,
					      struct pl_error *error);
/* The place for a fabric's state; fabric_lock. */
void **pl_fabric_state(struct pl_context *context, const struct pl_fabric_ops *fabric);
void pl_fabrics_close(struct pl_context *context);

#endif
