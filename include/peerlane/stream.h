/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams: named, ordered sequences of frames from one publisher to many subscribers.
 *
 * A publisher has a ring of slots. Each frame has a sequence number, usually from 0, and lies in slot `sequence % slots` until
 * the frame `sequence + slots` is claimed. Subscribers read frames from the ring with keys that allow reads only. A frame
 * that is overwritten while a subscriber reads it is discarded and counted, and never delivered. A subscriber on the publisher's
 * host can use frames in the ring itself, while the publisher waits for it.
 */
#ifndef PEERLANE_STREAM_H
#define PEERLANE_STREAM_H

#include <peerlane/frame.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pl_publisher;  /**< writer of a stream, in this process */
struct pl_subscriber; /**< reader of a stream of a peer */

#define PL_STREAM_NAME_SIZE 64     /**< bytes of a stream's name with its NUL: 1 to 63 of `A-Za-z0-9._-` */
#define PL_CONTENT_TYPE_SIZE 64    /**< bytes of a content type with its NUL */
#define PL_STREAM_SLOTS_MAX 65536  /**< most slots of a ring */
#define PL_STREAM_METADATA_MAX 3072 /**< most bytes of metadata of a frame */
#define PL_STREAM_TOKENS_MAX 1024   /**< most tokens of a publisher */

/**
 * Choice of a subscriber for frames that arrive while its queue is full. Frames that the ring had when the subscriber opened or
 * continued do not arrive: they stay in the ring until the queue has room, or the publisher overwrites them.
 */
enum pl_overflow {
	PL_OVERFLOW_DROP_OLDEST = 0, /**< the oldest frame of the queue goes (default) */
	PL_OVERFLOW_DROP_NEWEST = 1, /**< the new frame is not fetched */
	PL_OVERFLOW_BLOCK = 2,       /**< the publisher waits; only if pl_publisher_options.allow_block is set */
};

/** First frame of a subscriber. */
enum pl_start {
	PL_START_LIVE = 0,     /**< the next frame that is published once the subscriber is ready (default) */
	PL_START_LATEST = 1,   /**< the newest frame of the ring, if there is one */
	PL_START_HISTORY = 2,  /**< the `from` newest frames of the ring, as far as it holds them */
	PL_START_SEQUENCE = 3, /**< the frame with the sequence `from`, or the oldest one of the ring if that comes later */
};

/** Options of a publisher. Zero in a field asks for the default. */
struct pl_publisher_options {
	size_t size;             /**< sizeof(struct pl_publisher_options) */
	size_t slot_bytes;       /**< most bytes of a frame; required, 1 byte to 2^40 */
	unsigned slots;          /**< slots of the ring, 2 to PL_STREAM_SLOTS_MAX; default 16 */
	unsigned loans;          /**< most loans at a time, 1 to slots - 1; default 1 */
	/**
	 * Most subscribers, 1 to 256; default 256. A quarter is for further connections. Subscribers that prepare, inside
	 * pl_subscriber_open(), count too; pl_publisher_info.subscribers does not have them yet.
	 */
	unsigned subscribers;
	size_t metadata_bytes;   /**< most bytes of metadata of a frame, up to PL_STREAM_METADATA_MAX; default 0 */
	struct pl_layout layout; /**< of frames without a layout of their own */
	const char *content_type; /**< up to 63 visible ASCII characters, copied; NULL: none */
	bool allow_block;        /**< subscribers may hold slots back (PL_OVERFLOW_BLOCK) */
	/**
	 * Nanoseconds that a loan waits for a subscriber that blocks, before that subscriber becomes one that drops its
	 * oldest frames. New subscriptions of its context do so for ten times as long. Default 0: 1 s. UINT64_MAX: never.
	 */
	uint64_t patience;
	uint64_t first;     /**< sequence of the first frame, at most 2^62: a relay or a replay continues given ones */
	const char *memory; /**< of the slots: "host" (default), "cuda", "cuda:1"; read during the call only */
	/**
	 * Only peers with a token of pl_publisher_share() can subscribe. Lists show the stream to these peers alone. Default: all
	 * peers of the context can list the stream and subscribe.
	 */
	bool needs_token;
};
/* clang-format off */
#define PL_PUBLISHER_OPTIONS_INIT { sizeof(struct pl_publisher_options), 0, 0, 0, 0, 0, { 0, 0, 0, 0, { 0 } }, NULL, false, 0, 0, NULL, false }
/* clang-format on */

/** State of a stream. */
enum pl_stream_state {
	PL_STREAM_LIVE = 1,
	PL_STREAM_ENDED = 2,  /**< the publisher ended the stream: all its frames are published */
	PL_STREAM_FAILED = 3, /**< the publisher or the connection to it was lost, or it broke the protocol */
};

/** Description of a stream, of this process or of a peer. */
struct pl_publisher_info {
	size_t size;                    /**< set by the caller: sizeof(struct pl_publisher_info) */
	char name[PL_STREAM_NAME_SIZE];
	char content_type[PL_CONTENT_TYPE_SIZE];
	uint8_t instance[16];           /**< random, of this publisher: a publisher that is opened again has another */
	uint64_t created;               /**< CLOCK_REALTIME nanoseconds */
	struct pl_layout layout;
	uint64_t slots, slot_bytes, metadata_bytes;
	uint64_t claimed;               /**< first sequence that is not on loan or published */
	uint64_t published;             /**< first sequence that is not published */
	uint64_t refused;               /**< loans that ended with -EAGAIN: frames that never got a sequence */
	unsigned subscribers;           /**< without those that prepare, inside pl_subscriber_open() */
	unsigned blocking;              /**< subscribers among them that hold slots back */
	bool allow_block;
	bool needs_token; /**< only peers with a token can subscribe */
	enum pl_stream_state state;
	const char *memory; /**< kind of memory of the slots: "host" or "cuda"; static storage */
};
/* clang-format off */
#define PL_PUBLISHER_INFO_INIT { sizeof(struct pl_publisher_info), "", "", { 0 }, 0, { 0, 0, 0, 0, { 0 } }, 0, 0, 0, 0, 0, 0, 0, 0, false, false, PL_STREAM_LIVE, NULL }
/* clang-format on */

/**
 * Fates of the sequences `first` to `next - 1`. Each sequence counts once: delivered + lapped + dropped + rejected +
 * aborted + missed + unwanted + pending == next - first.
 */
struct pl_accounts {
	uint64_t first;     /**< first sequence that the subscriber was given */
	uint64_t next;      /**< first sequence without a fate */
	uint64_t delivered; /**< pl_subscriber_take() returned the frame */
	/** The publisher overwrote the frame, or its note of an abort, before that was read; or a newer one was read after laps. */
	uint64_t lapped;
	uint64_t dropped;   /**< PL_OVERFLOW_DROP_OLDEST dropped it; or the program closed the subscriber before taking it */
	uint64_t rejected;  /**< PL_OVERFLOW_DROP_NEWEST did not fetch it */
	uint64_t aborted;   /**< the publisher discarded the loan, or skipped the sequence */
	uint64_t missed; /**< lost with the connection, or published while there was none, or lost at a relay before */
	uint64_t unwanted;  /**< pl_subscriber_options.every leaves it out, or pl_subscriber_pause() */
	uint64_t pending;   /**< being read, or ready to be taken */
};

/** A subscriber as its publisher sees it. */
struct pl_subscription_info {
	size_t size;                 /**< set by the caller in the first element: sizeof(struct pl_subscription_info) */
	struct pl_peer *peer;        /**< connection of the subscriber; NULL once it has ended */
	bool blocks;                 /**< holds slots back now */
	bool demoted;                /**< did so until the publisher's patience ended */
	bool ended;                  /**< the subscriber closed, or its connection is lost */
	uint64_t announced;          /**< sequences below are known to the subscriber */
	struct pl_accounts accounts; /**< as the subscriber reported last; after its end `missed` has all others */
};
/* clang-format off */
#define PL_SUBSCRIPTION_INFO_INIT { sizeof(struct pl_subscription_info), NULL, false, false, false, 0, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } }
/* clang-format on */

/** Options of a subscriber. Zero in a field asks for the default. */
struct pl_subscriber_options {
	size_t size;               /**< sizeof(struct pl_subscriber_options) */
	enum pl_start start;       /**< first frame; default PL_START_LIVE */
	uint64_t from;             /**< of PL_START_HISTORY and PL_START_SEQUENCE */
	enum pl_overflow overflow; /**< default PL_OVERFLOW_DROP_OLDEST */
	/**
	 * Frames that are ready or being read, 1 to 4096; default 4. With PL_OVERFLOW_BLOCK the subscriber fetches up to 8 MiB of
	 * frames more, which keep their slots in the ring until they come into the queue.
	 */
	unsigned queue;
	unsigned held;             /**< frames that the program may hold at a time, 1 to 4096; default 2 */
	unsigned every;            /**< takes the first of each `every` frames; default 1 */
	size_t memory_bytes;       /**< most memory for all frames, each of the publisher's slot size; default 1 GiB */
	const char *memory;        /**< of the frames: "host" (default), "cuda", "cuda:1"; read during the call only */
	/**
	 * pl_poll() of the context delivers PL_KIND_FRAME each time that pl_subscriber_take() has something to return after
	 * it had nothing: frames, or the reason why none comes. The event can be late: then another take has returned them.
	 */
	bool events;
	uint64_t user_data; /**< of these events */
	/**
	 * Frames are used in the publisher's ring, without a copy: over the local fabric, and if the slots are in host memory.
	 * The subscriber blocks, as with PL_OVERFLOW_BLOCK, which may be given as well, until the program has released the
	 * frames. pl_subscriber_open(3) tells how that ends. Default: false.
	 */
	bool in_place;
	/**
	 * The publisher writes frames into slots in memory of the subscriber, with a credit for each free slot. Nothing is
	 * read: for sensors that can only write. pl_frame_release() returns the credit. pl_subscriber_read() reads frames in these
	 * slots, and pl_subscriber_take_on() is -ENOTSUP. pl_subscriber_open(3) has the details. Default: false.
	 */
	bool push;
	const void *token;   /**< of pl_publisher_share(), for a stream that needs one; copied. NULL: none */
	size_t token_length; /**< bytes of the token */
};
/* clang-format off */
#define PL_SUBSCRIBER_OPTIONS_INIT { sizeof(struct pl_subscriber_options), PL_START_LIVE, 0, PL_OVERFLOW_DROP_OLDEST, 0, 0, 0, 0, NULL, false, 0, false, false, NULL, 0 }
/* clang-format on */

/** State of a subscriber. */
struct pl_subscriber_info {
	size_t size;                     /**< set by the caller: sizeof(struct pl_subscriber_info) */
	struct pl_publisher_info stream; /**< as far as the subscriber knows; `refused` and numbers of subscribers are 0 */
	struct pl_accounts accounts;     /**< of the present instance of the stream */
	bool blocks;                     /**< holds slots back */
	bool demoted;                    /**< the publisher's patience has ended */
	bool connected;                  /**< false: pl_subscriber_attach() continues */
	bool paused;                     /**< by pl_subscriber_pause() */
	bool in_place;                   /**< frames are used in the publisher's ring */
	/** Reads of the publisher's cursors; each judges frames that were read before it. Over tcp the cursors come with the frames. */
	uint64_t checks;
	uint32_t route;     /**< `enum pl_route` of the last payload that was read; in place, or pushed: none */
	const char *reason; /**< reason for that route, static storage; NULL: no payload was read */
};
/* clang-format off */
#define PL_SUBSCRIBER_INFO_INIT { sizeof(struct pl_subscriber_info), PL_PUBLISHER_INFO_INIT, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, false, false, false, false, false, 0, 0, NULL }
/* clang-format on */

/* ------------------------------------------------------------------------------------------------
 * Publisher. Any thread may call these functions at any time, except with a handle that is being closed.
 */

/**
 * Opens a stream under a name. Allocates the ring: cursors and descriptors in host memory, and slots in the memory that
 * the options name. All peers of the context can subscribe, or with `needs_token` those that have a token.
 *
 * @param name       1 to 63 characters of `A-Za-z0-9._-`, copied
 * @param publisher  receives the handle; pl_publisher_close() or pl_close() frees it
 * @return 0; -EINVAL for a name or an option out of range; -EEXIST if the context has a publisher of that name; -ENOSPC
 *         for more than 1,024 publishers; -ENODEV if there is no such GPU, or no driver; -ENOMEM
 */
int pl_publisher_open(struct pl_context *context, const char *name, const struct pl_publisher_options *options,
		      struct pl_publisher **publisher, struct pl_error *error);

/**
 * Creates a token for the stream of a publisher with `needs_token`. A token is a secret: each peer of the context that
 * presents it (pl_subscriber_options.token) can list the stream and subscribe. A token can be used by many subscribers, and
 * has no use for another stream, or for the stream of a publisher that is opened again. Tokens that have expired count
 * for PL_STREAM_TOKENS_MAX until the room is needed. Any thread may call this function at any time.
 *
 * @param options  NULL, or PL_GRANT_OPTIONS_INIT with `lifetime`: nanoseconds of the wall clock after which the token and
 *                 the subscriptions that it admitted end; 0: never. The other members must be 0
 * @param token    receives the token; the program owns it
 * @param length   in: bytes available at token (PL_TOKEN_MAX always suffices); out: bytes written
 * @return 0; -EINVAL for options that a stream does not have, or if the publisher does not need tokens; -ENOBUFS if the token
 *         does not fit; -ENOSPC for more than PL_STREAM_TOKENS_MAX tokens; -EIO without random numbers of the system; -ENOMEM
 */
int pl_publisher_share(struct pl_publisher *publisher, const struct pl_grant_options *options, void *token,
		       size_t *length, struct pl_error *error);

/**
 * Revokes a token of pl_publisher_share(). Ends the subscriptions that it admitted: pl_subscriber_take() fails there with
 * -EACCES and STREAM-TOKEN-REVOKED after the frames that the subscriber has fetched. After success no peer reads the ring
 * through these subscriptions, not even with reads that had begun; waits for those. Other subscriptions go on. Any thread may
 * call this function at any time.
 *
 * Writes of pushed frames are stopped. Over the verbs fabric this resets the queue pair of the connection, and a write that the card
 * has begun may send bytes of its slot after the return.
 *
 * A process on the same host that uses frames in place keeps its mapping of the ring until it unmaps it or ends. So does a
 * process that reads over the local fabric. Both are processes of the same user.
 *
 * @return 0; -EINVAL if it is no token of a stream; -ENOENT if it does not belong to this publisher, or was revoked already
 */
int pl_publisher_revoke(struct pl_publisher *publisher, const void *token, size_t length);

/**
 * Borrows the next slot, to be filled. The slot belongs to the program until pl_frame_publish() or pl_frame_discard().
 * From this call on, no subscriber accepts the frame that was in the slot.
 *
 * @param timeout  nanoseconds to wait for subscribers that hold the slot back, and if all loans are out, for one that
 *                 pl_frame_publish_on() publishes; 0: do not wait
 * @param frame    receives the slot; pl_frame_query() tells its address
 * @return 0; -EAGAIN if subscribers still hold the slot (counted in `refused`); -EMLINK if all loans are out; -ENODATA
 *         after pl_publisher_end()
 */
int pl_publisher_loan(struct pl_publisher *publisher, uint64_t timeout, struct pl_stream_frame **frame, struct pl_error *error);

/**
 * Continues with a later sequence. Subscribers count the sequences between as aborted. A gap of any length costs the time
 * of one ring at most. A gap uses slots as frames do: it laps frames that a subscriber has not read and does not hold back.
 *
 * @param sequence  that the next loan gets; at most 2^62
 * @param timeout   nanoseconds to wait for subscribers that hold slots back; 0: do not wait
 * @return 0; -EINVAL for a sequence that is used already; -EBUSY while loans are out; -EAGAIN if subscribers still hold
 *         slots back (counted in `refused`); -ENODATA after pl_publisher_end()
 */
int pl_publisher_skip(struct pl_publisher *publisher, uint64_t sequence, uint64_t timeout, struct pl_error *error);

/**
 * The same for sequences whose frames were lost before they came to this publisher, as a relay or a replay knows. Subscribers count
 * them as missed, and those that they do not learn of in time, or that are pushed, as lapped. Earlier releases count them as aborted.
 *
 * @return as pl_publisher_skip()
 */
int pl_publisher_skip_lost(struct pl_publisher *publisher, uint64_t sequence, uint64_t timeout, struct pl_error *error);

/**
 * Queries a publisher.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_publisher_query(struct pl_publisher *publisher, struct pl_publisher_info *info);

/**
 * Lists the subscribers of a publisher, with up to 64 of those that have ended last.
 *
 * @param infos  array of n elements; infos[0].size is the size of each
 * @return their number, at most n; -EINVAL for an unknown size
 */
int pl_publisher_subscribers(struct pl_publisher *publisher, struct pl_subscription_info *infos, unsigned n);

/**
 * Ends a stream. Subscribers can take all frames that they can still get; then pl_subscriber_take() returns -ENODATA.
 *
 * @param timeout  nanoseconds to wait for loans that pl_frame_publish_on() publishes, and then until each subscriber has a
 *                 fate for each frame and has reported it; 0: none
 * @return 0; -EBUSY if loans are out; -ETIMEDOUT: the stream has ended, and some subscribers have not reported
 */
int pl_publisher_end(struct pl_publisher *publisher, uint64_t timeout, struct pl_error *error);

/**
 * Closes a publisher, and ends its stream if that has not ended. Subscribers lose frames that they have not read. Loans
 * become invalid. Waits until no subscriber reads the ring, in bounded time. Accepts NULL.
 */
void pl_publisher_close(struct pl_publisher *publisher);

/* ------------------------------------------------------------------------------------------------
 * Subscriber. Any thread may call these functions at any time, except with a handle that is being closed.
 */

/**
 * Lists the streams of a peer that need no token.
 *
 * @param infos    array of n elements; infos[0].size is the size of each
 * @param timeout  nanoseconds
 * @return their number, which can exceed n: then n elements are filled; -EINVAL for an unknown size; -ENOTSUP if the
 *         other end's release has no streams; -ENOTCONN; -ETIMEDOUT; -ENOMEM
 */
int pl_peer_publishers(struct pl_peer *peer, struct pl_publisher_info *infos, unsigned n, uint64_t timeout,
		       struct pl_error *error);

/**
 * Lists the streams of a peer as pl_peer_publishers() does, and the stream that a token of pl_publisher_share() admits to.
 *
 * @param token  copied during the call; NULL: none
 * @return as pl_peer_publishers(); -EINVAL if it is no token of a stream; -EACCES for a token of another peer, or one that is
 *         unknown, revoked or expired; -EBUSY after too many wrong tokens over the connection (pl_subscriber_open())
 */
int pl_peer_publishers_with_token(struct pl_peer *peer, const void *token, size_t token_length,
				  struct pl_publisher_info *infos, unsigned n, uint64_t timeout,
				  struct pl_error *error);

/**
 * Subscribes to a stream of a peer. Allocates memory for `queue + held` frames. The subscriber fetches frames from now on.
 *
 * @param name        of the stream
 * @param timeout     nanoseconds
 * @param subscriber  receives the handle; pl_subscriber_close() or pl_close() frees it
 * @return 0; -EINVAL for a name or option out of range; -ENOENT for an unknown name; -EPERM if the publisher does not
 *         allow to block; -EMLINK if it has its most subscribers, or those of one connection; -EBUSY if this connection has
 *         subscribed more than 1,024 times at once, or 1,000 times a second; -ENODATA if the stream has ended; -EMSGSIZE if the
 *         frames need more than `memory_bytes`; -ENODEV if there is no such GPU, or no driver; -ENOTSUP if the other
 *         end's release has no streams, no frames in place, or does not push, or if the ring for frames in place cannot
 *         be mapped here, or if the other end's release has no tokens of streams; -EACCES without a token for a stream that
 *         needs one, or if the token is of another peer or stream, unknown, revoked or expired; -EBUSY after 16 wrong tokens over
 *         the connection, and then one a second: no further one is checked before;
 *         -ENOTCONN; -ETIMEDOUT; -EPROTO; -ENOMEM
 */
int pl_subscriber_open(struct pl_peer *peer, const char *name, const struct pl_subscriber_options *options,
		       uint64_t timeout, struct pl_subscriber **subscriber, struct pl_error *error);

/**
 * Takes frames in the order of their sequences. A taken frame is whole and does not change until pl_frame_release(). The
 * exception, of frames in place, is told by PL_FRAME_OVERWRITTEN.
 *
 * @param frames   receives up to n frames
 * @param n        at least 1
 * @param timeout  nanoseconds to wait for the first frame; 0: do not wait; UINT64_MAX: without limit
 * @return the number of frames, 1 to n; -EAGAIN if none is ready with timeout 0; -ETIMEDOUT; -EMLINK if the program
 *         holds `held` frames; -ENODATA after the last frame of a stream that ended; -ENOTCONN after the last frame that
 *         could be fetched before the connection was lost (pl_subscriber_attach() continues); -ESTALE once after
 *         pl_subscriber_attach() found another instance of the stream; -EACCES after the last frame that was fetched before
 *         the publisher revoked the token, or the token expired; -EPROTO if the publisher broke the protocol
 */
int pl_subscriber_take(struct pl_subscriber *subscriber, struct pl_stream_frame **frames, unsigned n, uint64_t timeout,
		       struct pl_error *error);

/**
 * Takes the next frame for a CUDA stream: all work that follows on the stream waits until the frame is in its memory, and
 * the program's thread does not. A kernel that follows reads the frame's status first, because the wait also ends without a
 * frame. The subscriber's `memory` must be of a GPU.
 *
 * While the stream waits, it can hold up kernels of the same GPU that have not begun, copies within that GPU, and the first
 * launch of a kernel that is loaded lazily (CUDA_MODULE_LOADING=EAGER). It holds up no copies from or to host memory, and
 * none between GPUs. So frames from the same GPU can be held up by streams that wait for them: pl_subscriber_take_on(3).
 *
 * @param stream   a CUstream or cudaStream_t of this process; not the default stream, and not being captured
 * @param timeout  nanoseconds after which the stream stops to wait for a frame; UINT64_MAX: never. If the program holds
 *                 `held` frames, the call waits as long for one that pl_frame_release_on() gives back
 * @param frame    receives the frame: pl_frame_query() tells the address and the status; release it by pl_frame_release_on()
 *                 or pl_frame_release(), whatever its result is
 * @return 0; -EMLINK if the program holds `held` frames and pl_frame_release_on() gives none back in time; -ENODATA, -ENOTCONN,
 *         -ESTALE, -EPROTO as pl_subscriber_take(); -EINVAL for a stream that cannot be used; -ENOTSUP if the frames are in host
 *         memory or pushed, or the GPU or the driver cannot wait for words of host memory; or the failure of the driver, which may
 *         have no memory. After a failure the next take gets the frame
 */
int pl_subscriber_take_on(struct pl_subscriber *subscriber, void *stream, uint64_t timeout,
			  struct pl_stream_frame **frame, struct pl_error *error);

/**
 * Reads a part of one frame of the publisher's ring into memory of the program, beside the frames that the subscriber
 * fetches: no account counts it, and no slot is held back. It works while the subscriber is paused, too. The bytes are those
 * of the frame: the publisher had not claimed its slot again after they were read, else the call fails. With
 * `pl_subscriber_options.push` it copies from a slot of the subscriber, whose frame is ready or held by the program.
 *
 * @param sequence       of the frame; pl_subscriber_query() tells `stream.published`, the first one that is not published
 * @param offset         bytes from the beginning of the frame
 * @param length         bytes; 0: only the description is read, and `region` may be NULL
 * @param region         of the subscriber's context, in any kind of memory; the program keeps it until the call returns
 * @param region_offset  bytes from the beginning of the region. After a failure the bytes there are undefined
 * @param timeout        nanoseconds; 0: pl_options.operation_timeout
 * @param info           NULL, or receives the description of the frame; `size` is set by the caller. `data` and `metadata`
 *                       are NULL, and `length` has the bytes of the whole frame
 * @return 0; -EAGAIN if the frame is not published yet, or not pushed; -ENOENT if the ring, or with `push` the subscriber,
 *         holds it no longer; -ECANCELED if the publisher discarded it (with `push` -ENOENT); -ERANGE outside of the
 *         frame or the region; -EINVAL for a region of another context or an unknown size; -ENOTCONN without a
 *         connection, or after the publisher was closed; -EACCES after the publisher revoked the token, or the token expired;
 *         -ESTALE until pl_subscriber_take() has
 *         told of another instance of the stream; -EPROTO if the publisher broke the protocol; -ETIMEDOUT; -ENOMEM
 */
int pl_subscriber_read(struct pl_subscriber *subscriber, uint64_t sequence, uint64_t offset, uint64_t length,
		       struct pl_region *region, uint64_t region_offset, uint64_t timeout, struct pl_frame_info *info,
		       struct pl_error *error);

/**
 * Returns an eventfd that polls readable while pl_subscriber_take() has something to return. It belongs to the
 * subscriber: do not read, write or close it. In contexts with PL_PROGRESS_MANUAL, watch pl_fd() too, and call pl_poll().
 *
 * @return the descriptor, or a negative errno
 */
int pl_subscriber_fd(struct pl_subscriber *subscriber);

/**
 * Pauses a subscriber, or lets it go on. A paused subscriber fetches no frames, holds no slots back, and counts frames as
 * unwanted. Frames that it had fetched, or had begun to fetch, can still be taken. It goes on with the frames that it has
 * not counted by then.
 */
void pl_subscriber_pause(struct pl_subscriber *subscriber, bool paused);

/**
 * Continues over another connection, after the loss of the first one, or in place of it. Frames that the ring no longer
 * holds are missed. If the peer has another instance of the stream, the next pl_subscriber_take() that finds no earlier
 * frame returns -ESTALE, and the accounts begin again with that instance's oldest frame.
 *
 * @return as pl_subscriber_open(). After a failure the subscriber is without a connection. -EBUSY with STREAM-ATTACHING
 *         while another thread attaches the subscriber: then this call changes nothing. -EBUSY with STREAM-HELD if the program
 *         has frames, or takes one meanwhile, and the ring has other slots
 */
int pl_subscriber_attach(struct pl_subscriber *subscriber, struct pl_peer *peer, uint64_t timeout,
			 struct pl_error *error);

/**
 * Sets the token that the next pl_subscriber_attach() presents, in place of that of the options: after the old one was revoked
 * or has expired, or for a publisher that was opened again. The present subscription goes on.
 *
 * @param token  of pl_publisher_share(), copied; NULL: none
 * @return 0; -EINVAL if it is no token of a stream
 */
int pl_subscriber_set_token(struct pl_subscriber *subscriber, const void *token, size_t length, struct pl_error *error);

/**
 * Queries a subscriber.
 *
 * @return 0; -EINVAL if info->size is unknown
 */
int pl_subscriber_query(struct pl_subscriber *subscriber, struct pl_subscriber_info *info);

/**
 * Closes a subscriber. Its frames become invalid. Waits, in bounded time, until no read uses its memory. The subscriber may
 * outlive its peer. Accepts NULL.
 */
void pl_subscriber_close(struct pl_subscriber *subscriber);

#ifdef __cplusplus
}
#endif

#endif
