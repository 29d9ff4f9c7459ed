/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Identities of both ends of a connection, and the rights of each.
 *
 * A pre-shared key (pl_options.key) proves that the other end belongs to a group. An identity proves which end it is: a
 * private key and its certificate (X.509). The fingerprint of the public key names an identity. See
 * peerlane-identity(7).
 */
#ifndef PEERLANE_IDENTITY_H
#define PEERLANE_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pl_context;
struct pl_peer;

/** Bytes of a fingerprint as text, "SHA256:" and 43 characters of base64 (as OpenSSH writes them), with the NUL. */
#define PL_FINGERPRINT_MAX 52

/** The other end of a connection, as its proofs show it. */
struct pl_identity {
	size_t size;                          /**< set by the caller: sizeof(struct pl_identity) */
	char fingerprint[PL_FINGERPRINT_MAX]; /**< of its public key; "": it has no identity */
	char name[256];     /**< certified by an authority: DNS name or SPIFFE ID of its certificate; else "" */
	char key_id[17];    /**< first digits of the hash of the pre-shared key that it proved; "": none */
	char address[80];   /**< "host:port" of the connection */
	bool connected_to_us; /**< it connected to this end; false: this end connected to it */
};
/* clang-format off */
#define PL_IDENTITY_INIT { sizeof(struct pl_identity), "", "", "", "", false }
/* clang-format on */

/**
 * Rights of the other end. The library enforces `access`, `rate` and `imports`, the program the other fields. 0 means no
 * limit.
 */
struct pl_rights {
	size_t size;               /**< sizeof(struct pl_rights) */
	unsigned access;           /**< `enum pl_access` flags: tokens that allow more are refused */
	unsigned clients;          /**< simultaneous connections */
	uint64_t quota;            /**< bytes that it may store */
	uint64_t until;            /**< CLOCK_REALTIME nanoseconds at which its rights end */
	char names[512];           /**< patterns of names, separated by commas; "": all names */
	/**
	 * Bytes a second that a connection moves, both directions together, at least 65,536: less counts as 65,536.
	 * 0: pl_options.peers_rate. The connection uses tcp with one data socket.
	 */
	uint64_t rate;
	unsigned imports;  /**< regions that a connection holds imported at a time */
	unsigned requests; /**< requests a second of a connection, to programs that have requests */
};
/* clang-format off */
#define PL_RIGHTS_INIT { sizeof(struct pl_rights), 7u, 0, 0, 0, "", 0, 0, 0 }
/* clang-format on */

/**
 * Decides about the other end (pl_options.authorize): after it has proved its identity, and after the files of
 * pl_options have admitted it. Called once for each connection, on a thread of the library (with PL_PROGRESS_MANUAL: of
 * the program), and again by pl_context_reload(), on the thread that calls it. That thread holds a lock. One call at a time
 * with those of pl_options.refused. It must not block, and must not call functions of this context. While a call runs, the
 * connections of its engine wait, and new connections that need a call; those of other engines go on.
 *
 * @param user  pl_options.authorize_user
 * @param identity  the other end; valid during the call
 * @param rights  in: the rights that the files give; out: the rights that it gets
 * @return 0 admits it; a negative errno refuses it
 */
typedef int (*pl_authorize_function)(void *user, const struct pl_identity *identity, struct pl_rights *rights);

/**
 * Learns of an end that connected and was refused (pl_options.refused), with the reason. Called on a thread of the
 * library that holds a lock, one call at a time with those of pl_options.authorize. It must not block, and must not call
 * functions of this context.
 *
 * @param identity  what the other end proved before; at least its address. Valid during the call
 */
typedef void (*pl_refused_function)(void *user, const struct pl_identity *identity, const struct pl_error *error);

/**
 * Fills identity with the proofs of the other end of a connection. Thread-safe.
 *
 * @return 0; -EINVAL if identity->size is unknown
 */
int pl_peer_identity(struct pl_peer *peer, struct pl_identity *identity);

/**
 * Fills rights with the rights of the other end. Thread-safe.
 *
 * @return 0; -EINVAL if rights->size is unknown
 */
int pl_peer_rights(struct pl_peer *peer, struct pl_rights *rights);

/**
 * Writes the fingerprint of an identity file, or of a certificate in PEM. Thread-safe.
 *
 * @param path  file as for pl_options.identity; the private key may be missing
 * @return 0; -EINVAL if the file has no certificate; errors of open(2)
 */
int pl_identity_fingerprint(const char *path, char text[PL_FINGERPRINT_MAX], struct pl_error *error);

/** Bytes of a pre-shared key: the least, and the most. */
#define PL_KEY_MIN 16
#define PL_KEY_MAX 1024

/**
 * Reads the pre-shared key of a file, without one newline at its end, for pl_options.key. Only a key is read that no other
 * user can read or replace: the file belongs to this user or root, others can neither read nor write it, and its group
 * cannot either, except that it may read a file of root. The rule holds for the file to which a symbolic link leads. The
 * path may be a pipe, which has 60 s to give the key; else the call does not wait. Thread-safe.
 *
 * @param key  receives the bytes, which the caller wipes after use; unchanged on failure
 * @return the length of the key in bytes; -ENOENT KEY-FILE-MISSING; -EACCES KEY-FILE-OPEN; -EINVAL KEY-FILE-LENGTH, or
 *         KEY-FILE-WEAK if people can guess it; -ETIMEDOUT KEY-FILE-LATE; errors of open(2) and read(2)
 */
int pl_key_file_read(const char *path, uint8_t key[PL_KEY_MAX], struct pl_error *error);

/** Pre-shared keys for pl_context_reload(). */
struct pl_credentials {
	size_t size;           /**< sizeof(struct pl_credentials) */
	const void *key;       /**< as pl_options.key; copied */
	size_t key_length;     /**< bytes, PL_KEY_MIN to PL_KEY_MAX */
	const void *old_key;   /**< as pl_options.old_key; copied */
	size_t old_key_length; /**< bytes, PL_KEY_MIN to PL_KEY_MAX */
};
/* clang-format off */
#define PL_CREDENTIALS_INIT { sizeof(struct pl_credentials), NULL, 0, NULL, 0 }
/* clang-format on */

/**
 * Reads the files of pl_options again (identity, authority, authorized, known_hosts) and replaces the keys, all or
 * nothing. Peers that the new files, or the callback, do not admit any longer are disconnected with PEER-REVOKED.
 * Connections with a key that is gone stay. Blocks; thread-safe.
 *
 * @param credentials  the new keys; NULL: keep the keys. A context with a key keeps having one, and one without stays
 *                     without
 * @return 0; -EINVAL, -EACCES and other errors of pl_open(), after which everything is as before; -ENOTSUP for a context
 *         opened without identity, files and key
 */
int pl_context_reload(struct pl_context *context, const struct pl_credentials *credentials, struct pl_error *error);

#ifdef __cplusplus
}
#endif

#endif
