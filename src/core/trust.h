/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides which other ends a context admits, by the files and the callback of its options. */
#ifndef PL_CORE_TRUST_H
#define PL_CORE_TRUST_H

#include "control/known_hosts.h"
#include "control/stream.h"
#include "core/context.h"

struct pl_trust;

/* What an end has proved, and its rights. NULL in a peer: it was not judged, so it has all rights. */
struct pl_admission {
	struct pl_identity identity;
	struct pl_rights rights;
	unsigned generation; /* of the files that admitted it */
};

/* True if the options decide by identities, so that control channels must use certificates. */
bool pl_trust_wanted(const struct pl_options *options);
/* Copies the options and reads the files. context->trust stays NULL unless pl_trust_wanted(). */
int pl_trust_open(struct pl_context *context, const struct pl_options *options, struct pl_error *error);
/* Reads the files again and replaces the keys (NULL: keeps them), all or nothing. One thread at a time. */
int pl_trust_reload(struct pl_context *context, const struct pl_credentials *credentials, struct pl_error *error);
void pl_trust_close(struct pl_context *context);

/* True if the context shows an identity of its own. */
bool pl_trust_shows_identity(const struct pl_context *context);
/* True if the context decides by identities about ends that connect (`passive`), or to which it connects. */
bool pl_trust_decides(const struct pl_context *context, bool passive);

/* Writes "[host]:port" of an address that the program gave, for pl_known_hosts_find(). */
int pl_trust_server_name(const char *address, char name[PL_HOST_MAX], struct pl_error *error);

/* Other end of a connection whose handshake is done. */
struct pl_candidate {
	const struct pl_stream *stream;
	const struct sockaddr *address;
	const char *server; /* "[host]:port" to which this end connected; NULL: the other end connected */
};

/*
 * Judges the other end. `admission` receives memory of the context's allocator, or NULL if the context does not judge.
 * Returns 0, or -EACCES with the reason; -ENOMEM. Thread-safe. The caller has the turn of the callbacks if
 * pl_trust_asks_program().
 */
int pl_trust_judge(struct pl_context *context, const struct pl_candidate *candidate, struct pl_admission **admission,
		   struct pl_error *error);

/* True if pl_trust_judge() calls the program (pl_options.authorize). */
bool pl_trust_asks_program(const struct pl_context *context);

/*
 * Reports an end that connected and was refused to the program (pl_options.refused, which is not NULL). The caller has the turn
 * of the callbacks.
 */
void pl_trust_report_refused(struct pl_context *context, const struct pl_candidate *candidate,
			     const struct pl_error *error);

#endif
