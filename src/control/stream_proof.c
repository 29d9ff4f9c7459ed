/* SPDX-License-Identifier: BSD-2-Clause */
/* Proofs of the other end of a TLS stream, after its handshake: exported secrets, its certificate, its key. */
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "control/tls.h"
#include "wire/wire.h"

#define PROOF_KEY 4                   /* in a proof: the name of the key, */
#define PROOF_MAC (4 + PL_KEY_DIGITS)    /* and the HMAC */

int pl_stream_export(const struct pl_stream *stream, const char *label, const uint8_t context[PL_SECRET],
		     uint8_t secret[PL_SECRET])
{
	int rc = stream->ssl ? SSL_export_keying_material(stream->ssl, secret, PL_SECRET, label, strlen(label), context,
							  PL_SECRET, 1)
			     : 0;

	ERR_clear_error();
	return rc == 1 ? 0 : -EPROTO;
}

/* -- certificates ---------------------------------------------------------------------------------------------- */

bool pl_stream_fingerprint(const struct pl_stream *stream, uint8_t fingerprint[PL_SECRET])
{
	X509 *certificate = stream->ssl ? SSL_get0_peer_certificate(stream->ssl) : NULL;

	return certificate && !pl_tls_is_throwaway(certificate) && pl_fingerprint_of(certificate, fingerprint);
}

bool pl_stream_certified(const struct pl_stream *stream, struct pl_tls *tls, char *name, size_t size)
{
	X509 *certificate = stream->ssl ? SSL_get0_peer_certificate(stream->ssl) : NULL;

	name[0] = '\0';
	return certificate &&
	       pl_tls_certified(tls, certificate, SSL_get_peer_cert_chain(stream->ssl), name, size);
}

bool pl_stream_is_for_host(const struct pl_stream *stream, const char *host)
{
	X509 *certificate = stream->ssl ? SSL_get0_peer_certificate(stream->ssl) : NULL;
	bool fits;

	if (!certificate)
		return false;
	/* The subject's common name never counts. */
	fits = X509_check_host(certificate, host, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1 ||
	       X509_check_ip_asc(certificate, host, 0) == 1;
	ERR_clear_error();
	return fits;
}

/* -- pre-shared keys -------------------------------------------------------------------------------------------- */

const char *pl_stream_key_id(const struct pl_stream *stream)
{
	const struct pl_tls_socket *socket = stream->ssl ? pl_tls_socket(stream->ssl) : NULL;

	return socket && socket->used ? socket->used->name : "";
}

/* Computes the HMAC of a proof. The roles differ, so that a proof cannot be sent back. */
static int compute_key_proof(const struct pl_stream *stream, const struct pl_psk *psk, bool initiator,
			     uint8_t mac[PL_SECRET])
{
	static const uint8_t none[PL_SECRET];
	uint8_t bytes[PL_SECRET + 1];
	unsigned length = PL_SECRET;
	int rc = pl_stream_export(stream, PL_EXPORT_KEY_PROOF, none, bytes);

	bytes[PL_SECRET] = initiator ? 'I' : 'A';
	if (rc == 0 && !HMAC(EVP_sha256(), psk->secret, PL_SECRET, bytes, sizeof(bytes), mac, &length))
		rc = -EIO;
	OPENSSL_cleanse(bytes, sizeof(bytes));
	return rc;
}

int pl_key_proof_make(const struct pl_stream *stream, struct pl_tls *tls, unsigned index, bool initiator,
		      uint8_t message[PL_KEY_PROOF])
{
	struct pl_psk keys[2];
	struct pl_writer writer;
	int rc;

	pl_tls_keys(tls, keys);
	pl_writer_init(&writer, message, 4);
	pl_put_u32(&writer, PL_MAGIC_KEY_PROOF);
	memcpy(message + PROOF_KEY, keys[index].name, PL_KEY_DIGITS);
	rc = keys[index].set ? compute_key_proof(stream, &keys[index], initiator, message + PROOF_MAC) : -EINVAL;
	OPENSSL_cleanse(keys, sizeof(keys));
	return rc;
}

int pl_key_proof_check(const struct pl_stream *stream, struct pl_tls *tls, bool initiator,
		       const uint8_t message[PL_KEY_PROOF], char id[17])
{
	struct pl_psk keys[2];
	uint8_t mac[PL_SECRET];
	int rc = -EACCES;

	pl_tls_keys(tls, keys);
	for (int i = 0; i < 2; i++) {
		if (!keys[i].set || memcmp(keys[i].name, message + PROOF_KEY, PL_KEY_DIGITS))
			continue;
		if (compute_key_proof(stream, &keys[i], initiator, mac) == 0 &&
		    !CRYPTO_memcmp(mac, message + PROOF_MAC, PL_SECRET)) {
			snprintf(id, 17, "%s", keys[i].name);
			rc = i;
		}
		break;
	}
	OPENSSL_cleanse(keys, sizeof(keys));
	return rc;
}
