/* SPDX-License-Identifier: BSD-2-Clause */
/* Interface between the core and its fabrics. */
#ifndef PL_CORE_FABRIC_H
#define PL_CORE_FABRIC_H

#include "core/listener.h"
#include "core/message.h"
#include "core/socket.h"

/* Common part of every fabric's endpoint. */
struct pl_endpoint {
	struct pl_peer *peer;
};

/*
 * Operations of a fabric. The core checks optional members for NULL, and uses the default that their comments name. The
 * caller holds the home engine's lock, unless a comment says otherwise.
 *
 * post() takes an operation of kind WRITE, READ, FETCH_ADD or COMPARE_SWAP. The fabric adds 1 to `pending` for each
 * chunk that it starts, and calls pl_operation_pending_done() for each. sweep() makes the fabric drop, in bounded time,
 * all chunks that it can of operations that are `canceled`.
 *
 * message() sends a small frame in order. A payload of up to PL_KEY_BLOB_MAX bytes is copied; a larger one is kept by
 * reference, and `operation`, if given, gets one more pending count until the payload is free again. Without a payload
 * the bytes come from the operation's segment (see gathers()).
 */
struct pl_fabric_ops {
	/* -- Properties -- */
	const char *name;
	const char *reason; /* reason of the route, for completions */
	/* Visibility of bytes moved with the default attributes, and the mechanism that gives it; static storage. */
	enum pl_visible visible;
	const char *visibility;
	/*
	 * True if both ends may wrongly believe that the fabric serves the peer; another fabric is tried then. Default:
	 * false.
	 */
	bool uncertain;
	bool clear; /* cannot encrypt: serves() refuses peers of which an end demands that. Default: false */
	/* True if kernels of a device copy vectors: regions on devices are prepared for them. Default: false. */
	bool gathers_on_device;
	/* True if reads of a remote region with `trailing` return the trailing word of its key. Default: false. */
	bool trailing_words;
	/* True if the fabric takes all bytes from peer->bucket. Default: false; peers with a rate do not use the fabric. */
	bool limits_rate;
	/* True if a thread that posts much bulk data leaves its posts to the thread of the home engine. Default: false. */
	bool posts_bulk_at_home;
	/* Reason for staging large messages from memory that the processor cannot reach. NULL: they are not staged. */
	const char *staging_reason;

	/* -- Connection, required -- */
	int (*create)(struct pl_peer *peer, struct pl_endpoint **endpoint, struct pl_error *error);
	/* Acceptor: writes the data that the initiator needs to connect. Returns its length. */
	int (*describe)(struct pl_endpoint *endpoint, uint8_t blob[PL_FABRIC_BLOB_MAX]);
	/* Initiator: starts to connect; ends in pl_peer_up() or pl_peer_lose(). */
	int (*connect)(struct pl_endpoint *endpoint, const uint8_t *blob, size_t length, struct pl_error *error);
	/* Adds a socket that the listener of the peer's context accepted. Takes over the stream. Any engine. */
	int (*join)(struct pl_endpoint *endpoint, struct pl_stream *stream, const uint8_t *hello);
	/* Adds lanes: the peer asked for more. */
	void (*widen)(struct pl_endpoint *endpoint, unsigned lanes);
	unsigned (*lanes)(struct pl_endpoint *endpoint);
	/* Returns the lanes that this end could not open and tries again, and why in *status. Optional. Any thread. */
	unsigned (*lanes_missing)(struct pl_endpoint *endpoint, int *status);
	/* Returns true if this end has read all bytes that the peer sent before it closed the connection. */
	bool (*drained)(struct pl_endpoint *endpoint);
	/*
	 * Begins to close without waiting, and accepts no more lanes. Posts the task to the peer's home engine once
	 * other engines no longer use the endpoint.
	 */
	void (*abandon)(struct pl_endpoint *endpoint, struct pl_task *task);
	/*
	 * Flushes pending bytes if possible, closes, drops all chunks, frees. Called without an engine's lock, or,
	 * after abandon(), with that of the home engine.
	 */
	void (*close)(struct pl_endpoint *endpoint);

	/* -- Connection, optional -- */
	/*
	 * Returns 0 if the fabric can reach this peer; else a negative errno, with the reason in `error`. Called when
	 * the peer's addresses are known, before create(). Default: 0.
	 */
	int (*serves)(struct pl_peer *peer, struct pl_error *error);
	/* Initiator: writes the data that the acceptor needs for suits(). Returns its length. Default: no data. */
	int (*invite)(struct pl_peer *peer, uint8_t blob[PL_FABRIC_BLOB_MAX]);
	/* Acceptor: returns 0 if the fabric suits the initiator's advert; else the reason. Default: 0. */
	int (*suits)(struct pl_peer *peer, const struct pl_fabric_advert *offer, struct pl_error *error);
	/*
	 * Handles a message about a rail, before and after pl_peer_up(). Returns 0, or -EPROTO. Default: such messages are a
	 * protocol error.
	 */
	int (*rail)(struct pl_endpoint *endpoint, const struct pl_rail_message *message);
	/* Handles a question for rails, or its answer, after pl_peer_up(). The same results and default. */
	int (*rails)(struct pl_endpoint *endpoint, const struct pl_rails_message *message);
	/* Initiator: pl_peer_up() was not called, and another fabric replaces this one. Default: nothing to do. */
	void (*replaced)(struct pl_endpoint *endpoint);
	/*
	 * Checks the endpoint when another control message arrives before pl_peer_up() was called. Returns true if this end
	 * is up. Default: false; the message is then a protocol error of the other end.
	 */
	bool (*up)(struct pl_endpoint *endpoint);

	/* -- Data, required -- */
	void (*post)(struct pl_endpoint *endpoint, struct pl_operation *operation);
	int (*message)(struct pl_endpoint *endpoint, const struct pl_frame *frame, const void *payload,
		       struct pl_operation *operation);
	void (*sweep)(struct pl_endpoint *endpoint);

	/* -- Data, optional -- */
	/*
	 * Operations of a peer that is up were stopped, and sweep() follows, perhaps much later. Meanwhile the fabric sends no
	 * queued message of them. Default: nothing to do.
	 */
	void (*stopped)(struct pl_endpoint *endpoint);
	/*
	 * Ends the connections of a peer that is lost, before its operations end: no byte of either end may go over them
	 * any more, and no message may arrive. Default: sweep() does that.
	 */
	void (*lost)(struct pl_endpoint *endpoint);
	/* Takes all messages that have arrived, before a peer that has said BYE is lost. Default: nothing. */
	void (*take_arrived)(struct pl_endpoint *endpoint);
	/*
	 * Sends what waits, as far as the connection takes it. Returns true if the other end's host has all messages that message()
	 * has taken. Called again and again before this end closes the peer. Default: true.
	 */
	bool (*send_last)(struct pl_endpoint *endpoint);
	/*
	 * Does an operation of one segment before it returns, on the program's thread. Any thread, no lock. Returns
	 * false if it did nothing; the core then calls post(). Default: false.
	 */
	bool (*sync_try)(struct pl_endpoint *endpoint, struct pl_sync_op *instant);
	/*
	 * Returns true if message() takes the bytes of a small send from their place, in memory that the processor
	 * cannot reach. Default: false; the core copies them.
	 */
	bool (*gathers)(struct pl_endpoint *endpoint, struct pl_operation *operation);
	/*
	 * Makes the moved bytes as visible as the operation asks, and records that in its completion. Returns true if
	 * it added pending counts for that. Called once, for operations that ask for more than the default or notify.
	 * Default: nothing to do.
	 */
	bool (*settle)(struct pl_endpoint *endpoint, struct pl_operation *operation);

	/*
	 * Prepares the first transfers of a region: opens lanes, registers memory. Returns the lanes to wait for.
	 * Default: 0.
	 */
	unsigned (*prepare)(struct pl_endpoint *endpoint, struct pl_region *region);
	/* Returns the most lanes that the peer may have by now. Any thread. Default: those of prepare(). */
	unsigned (*lanes_most)(struct pl_endpoint *endpoint);

	/* -- Memory, required -- */
	/*
	 * Writes the remote key of a local key; the blob begins with the key's id. Returns its length or a negative
	 * errno. A registration made here hangs on the grant, or, if that is NULL, on the key. -EINPROGRESS: a thread
	 * registers the memory, and pl_peer_registered() follows. grant_lock is held.
	 */
	int (*export_key)(struct pl_endpoint *endpoint, struct pl_grant *grant, struct pl_key *key,
			  uint8_t blob[PL_KEY_BLOB_MAX]);
	/* True if export_key() registers nothing and needs no lock. Large sends then have keys of source_key.c. */
	bool exports_ids;

	/* -- Memory, optional -- */
	/*
	 * Keeps the answer to an import until the peer can use the key, then calls pl_import_answer(). Returns false if
	 * the caller must send the answer now. Default: false.
	 */
	bool (*hold_answer)(struct pl_endpoint *endpoint, const struct pl_imported *answer);
	/* Finds the access path to the memory of an imported key. Default: nothing to find. */
	void (*imported)(struct pl_endpoint *endpoint, struct pl_remote *remote);
	/*
	 * Maps the memory of a remote region once more, for reading, and stores the length. The caller unmaps it: it stays
	 * mapped after the key is revoked, and when the peer is gone. Returns NULL if it cannot be mapped. Default: NULL.
	 */
	void *(*map)(struct pl_endpoint *endpoint, struct pl_remote *remote, size_t *length);
	/*
	 * Locks the mapping of a remote region for copies of the memory's device, before many copies. Any thread, no lock: the
	 * driver may take long. Default: nothing to lock.
	 */
	void (*lock_mapping)(struct pl_remote *remote, const struct pl_memory *memory);
	/* Returns true if this host has devices that may reach memory that the processor cannot. Default: false. */
	bool (*devices)(struct pl_context *context);
	/* Adds the registrations that devices hold for this end. Default: none. */
	void (*count)(void *state, struct pl_registrations_info *info);
	/* Drops kept registrations of freed memory. Default: none are kept. */
	void (*freed)(void *state, const void *address, size_t length);

	/* -- State of a context, optional -- */
	/*
	 * Frees the fabric's state when the context closes. Peers, regions and threads are gone, engines are not.
	 * Default: no state.
	 */
	void (*close_state)(struct pl_context *context, void *state);
};

extern const struct pl_fabric_ops pl_local_fabric;
extern const struct pl_fabric_ops pl_tcp_fabric;
extern const struct pl_fabric_ops pl_verbs_fabric;

#define PL_LANES_MAX 16

/* fabric_select.c: all fabrics of this build, the best first, NULL at the end. */
extern const struct pl_fabric_ops *const pl_fabrics[];
/* Sets the context's fabrics: all, or the one with that name. */
int pl_fabrics_configure(struct pl_context *context, const char *name, struct pl_error *error);
/*
 * Initiator: adds the adverts of all usable fabrics to its hello. Fails with the reason of the last one if there is
 * none.
 */
int pl_fabrics_advertise(struct pl_peer *peer, struct pl_hello *hello, struct pl_error *error);
/*
 * Acceptor: selects the best fabric that the initiator advertises. Initiator: takes the acceptor's selection. NULL:
 * none fits.
 */
const struct pl_fabric_advert *pl_fabrics_select(struct pl_peer *peer, const struct pl_hello *hello,
						 struct pl_error *error);
/* Returns how long the acceptor may wait for a fabric that cannot judge the initiator yet. */
uint64_t pl_fabrics_hold_time(struct pl_peer *peer, const struct pl_hello *hello);
/* Returns the slot of a fabric's state. fabric_lock is held. */
void **pl_fabric_state(struct pl_context *context, const struct pl_fabric_ops *fabric);
void pl_fabrics_close(struct pl_context *context);

#endif
