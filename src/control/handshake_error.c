/* SPDX-License-Identifier: BSD-2-Clause */
/* Reasons of failed TLS handshakes. */
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "control/tls.h"
#include "wire/wire.h"

/* True for the alerts by which a server refuses a key. */
static bool is_key_alert(int alert)
{
	return alert == SSL_AD_ILLEGAL_PARAMETER || alert == SSL_AD_DECRYPT_ERROR ||
	       alert == SSL_AD_HANDSHAKE_FAILURE || alert == SSL_AD_BAD_RECORD_MAC ||
	       alert == SSL_AD_UNKNOWN_PSK_IDENTITY;
}

static bool is_key_mismatch(const SSL *ssl, int reason)
{
	if (SSL_is_server(ssl))
		return reason == SSL_R_BINDER_DOES_NOT_VERIFY;
	return reason > SSL_AD_REASON_OFFSET && is_key_alert(reason - SSL_AD_REASON_OFFSET);
}

int pl_tls_explain(const SSL *ssl, const char *object, struct pl_error *error)
{
	const struct pl_tls_socket *socket = pl_tls_socket(ssl);
	const char *call = SSL_is_server(ssl) ? "accept" : "connect";
	unsigned long first = ERR_peek_error();
	const char *reason = ERR_reason_error_string(first);
	int broken = socket->read_error ? socket->read_error : socket->write_error;

	if (socket->older)
		return pl_fail(error, -EPROTO, "PROTOCOL-VERSION", call, object, "update the older of the two ends",
			       "the other end is a release of Peerlane that does not speak this version of the "
			       "protocol");
	if (socket->foreign)
		return pl_fail(error, -EPROTO, "AUTH-NO-TLS", call, object,
			       "check that the address and port are those of a Peerlane",
			       "the other end does not speak TLS");
	if (first && ERR_GET_REASON(first) == SSL_R_CERTIFICATE_VERIFY_FAILED)
		return pl_fail(
			error, -EACCES, "AUTH-NO-KEY", call, object,
			"give both ends the same --key file; if the other end has an identity, name it with --peer",
			"this end has a key and no identity; the other end has no key, or has an identity");
	if (first && socket->keyed && is_key_mismatch(ssl, ERR_GET_REASON(first)))
		return pl_fail(error, -EACCES, "IDENTITY-NONE", call, object,
			       "give the other end an --identity, or use --key alone at both ends",
			       "the other end has a key and no identity");
	if (first && !socket->proven && is_key_mismatch(ssl, ERR_GET_REASON(first)))
		return pl_wire_fail(error, PL_WIRE_NEEDS_KEY, call, object);
	if (first && is_key_mismatch(ssl, ERR_GET_REASON(first)))
		return pl_fail(error, -EACCES, "AUTH-KEY-MISMATCH", call, object,
			       "give both ends the same --key file, byte for byte (compare: sha256sum FILE)",
			       "the two ends have different keys");
	if (!first && (socket->ended || broken == ECONNRESET || broken == EPIPE))
		return pl_fail(error, -ECONNRESET, "PEER-LOST", call, object,
			       "see why the other end gave up; if it has no key, give both ends the same --key file",
			       "the other end hung up during the TLS handshake");
	if (!first && broken)
		return pl_fail_errno(error, -broken, "PEER-LOST", call, object);
	return pl_fail(error, -EPROTO, "TLS-FAILED", call, object,
		       "check that the address and port are those of a Peerlane, and that both ends have the same "
		       "version",
		       "the TLS handshake failed: %s", reason ? reason : "no reason given");
}
