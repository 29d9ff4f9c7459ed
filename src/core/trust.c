/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/trust.h"

#include <stdio.h>

#include "base/address.h"
#include "control/authorized.h"
#include "control/trusted_file.h"

#define EXPECTED_MAX 64

/* Lists that a reload replaces. */
struct lists {
	struct pl_authorized *authorized; /* NULL: no file */
	char *known_hosts;                /* text of the file; NULL: no file */
};

struct pl_trust {
	struct pl_allocator allocator;
	char *identity, *authority, *authorized, *known_hosts; /* paths; NULL: none */
	uint8_t expected[EXPECTED_MAX][PL_FINGERPRINT];
	size_t expected_count;
	bool trust_new;
	pl_authorize_function authorize;
	void *user;
	pthread_mutex_t adding; /* one engine at a time adds a host: the wait for the lock of the file is not fair */
	pthread_mutex_t lock;   /* protects `lists` */
	struct lists lists;
};

/* -- options ------------------------------------------------------------------------------------------------------ */

bool pl_trust_wanted(const struct pl_options *options)
{
	return options->identity || options->authority || options->authorized || options->known_hosts ||
	       options->expected || options->authorize;
}

bool pl_trust_shows_identity(const struct pl_context *context)
{
	return context->trust && context->trust->identity;
}

static int copy_path(struct pl_trust *trust, const char *from, char **to)
{
	if (!from)
		return 0;
	*to = pl_alloc(&trust->allocator, strlen(from) + 1);
	if (!*to)
		return -ENOMEM;
	strcpy(*to, from);
	return 0;
}

static int parse_expected(struct pl_trust *trust, const char *text, struct pl_error *error)
{
	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (trust->expected_count == EXPECTED_MAX ||
		    !pl_fingerprint_parse(text, length, trust->expected[trust->expected_count]))
			return pl_fail(error, -EINVAL, "OPTION", "pl_open", "expected",
				       "see the fingerprint of a file with: peerlane key show FILE",
				       "not a list of at most %d fingerprints: '%.60s'", EXPECTED_MAX, text);
		trust->expected_count++;
		text += length + (text[length] == ',');
	}
	return 0;
}

static void free_lists(struct pl_trust *trust, struct lists *lists)
{
	pl_authorized_free(lists->authorized);
	pl_free(&trust->allocator, lists->known_hosts);
	*lists = (struct lists){ 0 };
}

/* Reads the file of known hosts, which need not exist. */
static int read_known_hosts(struct pl_trust *trust, char **text, struct pl_error *error)
{
	struct pl_error reason;
	size_t length;
	int rc = pl_trusted_file_read(&trust->allocator, trust->known_hosts, false, text, &length, &reason);
	static const uint8_t none[PL_FINGERPRINT];
	unsigned line;

	if (rc == -ENOENT)
		return 0;
	/* Looks a name up only to see whether all lines are well-formed. */
	if (rc == 0)
		rc = pl_known_hosts_find(trust->known_hosts, *text, "", none, &line, &reason);
	if (rc < 0 && error)
		*error = reason;
	return PL_MIN(rc, 0);
}

static int read_lists(struct pl_trust *trust, struct lists *lists, struct pl_error *error)
{
	size_t length;
	char *text;
	int rc = 0;

	*lists = (struct lists){ 0 };
	if (trust->authorized) {
		rc = pl_trusted_file_read(&trust->allocator, trust->authorized, false, &text, &length, error);
		if (rc == 0)
			rc = pl_authorized_parse(&trust->allocator, trust->authorized, text, &lists->authorized,
						 error);
		pl_free(&trust->allocator, text);
	}
	if (rc == 0 && trust->known_hosts)
		rc = read_known_hosts(trust, &lists->known_hosts, error);
	if (rc < 0)
		free_lists(trust, lists);
	return rc;
}

static struct pl_tls_settings tls_settings_of(const struct pl_trust *trust, const void *key, size_t key_length,
					      const void *old_key, size_t old_key_length)
{
	return (struct pl_tls_settings){
		.key = key,
		.key_length = key_length,
		.old_key = old_key,
		.old_key_length = old_key_length,
		.identity = trust ? trust->identity : NULL,
		.authority = trust ? trust->authority : NULL,
		.certificates = trust != NULL,
	};
}

static int open_trust(struct pl_context *context, const struct pl_options *options, struct pl_error *error)
{
	struct pl_trust *trust = pl_zalloc(&context->allocator, sizeof(*trust));
	int rc;

	if (!trust)
		return pl_fail_memory(error, "pl_open");
	context->trust = trust;
	trust->allocator = context->allocator;
	pthread_mutex_init(&trust->adding, NULL);
	pthread_mutex_init(&trust->lock, NULL);
	trust->trust_new = options->trust_new == PL_ON;
	trust->authorize = options->authorize;
	trust->user = options->authorize_user;
	if (copy_path(trust, options->identity, &trust->identity) < 0 ||
	    copy_path(trust, options->authority, &trust->authority) < 0 ||
	    copy_path(trust, options->authorized, &trust->authorized) < 0 ||
	    copy_path(trust, options->known_hosts, &trust->known_hosts) < 0)
		return pl_fail_memory(error, "pl_open");
	rc = parse_expected(trust, options->expected, error);
	return rc < 0 ? rc : read_lists(trust, &trust->lists, error);
}

int pl_trust_open(struct pl_context *context, const struct pl_options *options, struct pl_error *error)
{
	struct pl_tls_settings settings;
	int rc = 0;

	if (pl_trust_wanted(options))
		rc = open_trust(context, options, error);
	if (rc < 0 || !(context->trust || options->key))
		return rc;
	settings = tls_settings_of(context->trust, options->key, options->key_length, options->old_key,
				   options->old_key_length);
	return pl_tls_open_with(&context->allocator, &settings, &context->tls, error);
}

void pl_trust_close(struct pl_context *context)
{
	struct pl_trust *trust = context->trust;

	if (!trust)
		return;
	free_lists(trust, &trust->lists);
	pl_free(&trust->allocator, trust->identity);
	pl_free(&trust->allocator, trust->authority);
	pl_free(&trust->allocator, trust->authorized);
	pl_free(&trust->allocator, trust->known_hosts);
	pthread_mutex_destroy(&trust->adding);
	pthread_mutex_destroy(&trust->lock);
	context->trust = NULL;
	pl_free(&context->allocator, trust);
}

int pl_trust_reload(struct pl_context *context, const struct pl_credentials *credentials, struct pl_error *error)
{
	struct pl_trust *trust = context->trust;
	struct pl_tls_settings settings = tls_settings_of(trust, credentials->key, credentials->key_length,
							  credentials->old_key, credentials->old_key_length);
	struct lists lists = { 0 }, old;
	int rc = trust ? read_lists(trust, &lists, error) : 0;

	if (rc == 0)
		rc = pl_tls_configure(context->tls, &settings, error);
	if (rc < 0 && trust)
		free_lists(trust, &lists);
	if (rc < 0 || !trust)
		return rc;
	pthread_mutex_lock(&trust->lock);
	old = trust->lists;
	trust->lists = lists;
	pthread_mutex_unlock(&trust->lock);
	free_lists(trust, &old);
	return 0;
}

bool pl_trust_decides(const struct pl_context *context, bool passive)
{
	const struct pl_trust *trust = context->trust;

	if (!trust)
		return false;
	if (trust->authority || trust->authorized || trust->authorize)
		return true;
	return !passive && (trust->known_hosts || trust->expected_count);
}

int pl_trust_server_name(const char *address, char name[PL_HOST_MAX], struct pl_error *error)
{
	struct pl_address_text text;
	int rc = pl_address_parse(address, NULL, &text, error);

	if (rc == 0)
		snprintf(name, PL_HOST_MAX, "[%s]:%s", text.host, text.port);
	return rc;
}

/* -- judgement ---------------------------------------------------------------------------------------------------- */

/* The other end while it is judged. */
struct case_file {
	struct pl_trust *trust;
	const struct pl_candidate *candidate;
	struct pl_admission *admission;
	bool shown, certified; /* it has a fingerprint; an authority certified it */
	uint8_t fingerprint[PL_FINGERPRINT];
	struct pl_error *error;
};

static int fail_trust(const struct case_file *file, const char *id, const char *hint, const char *fact)
{
	return pl_fail(file->error, -EACCES, id, file->candidate->server ? "connect" : "accept",
		       file->admission->identity.address, hint, "%s", fact);
}

static int fail_unknown(const struct case_file *file)
{
	const struct pl_identity *identity = &file->admission->identity;

	if (!file->shown)
		return fail_trust(file, "IDENTITY-NONE", "give the other end an --identity", "the other end has no identity");
	pl_fail(file->error, -EACCES, "IDENTITY-UNKNOWN", "connect", identity->address, NULL,
		"the other end has the unknown identity %s", identity->fingerprint);
	if (file->error)
		snprintf(file->error->hint, sizeof(file->error->hint),
			 "if the other end confirms it, add to the known hosts: %.64s %s",
			 file->candidate->server, identity->fingerprint);
	return -EACCES;
}

/* Returns `known`, or -EACCES if the line of the known hosts speaks against the server. */
static int judge_by_line(const struct case_file *file, int known, unsigned line)
{
	const struct pl_trust *trust = file->trust;
	struct pl_error *error = file->error;

	if (known == PL_HOST_REVOKED)
		return pl_fail(error, -EACCES, "IDENTITY-REVOKED", "connect", file->admission->identity.address, NULL,
			       "%s:%u revokes the identity of the other end", trust->known_hosts, line);
	if (known == PL_HOST_CHANGED)
		return pl_fail(error, -EACCES, "IDENTITY-CHANGED", "connect", file->admission->identity.address,
			       "ask the other end whether it has a new identity; if not, somebody is in between",
			       "the other end has %s; %s:%u has another", file->admission->identity.fingerprint,
			       trust->known_hosts, line);
	return known;
}

/* Looks the server up in the file of known hosts. Returns enum pl_known, or a negative errno. */
static int judge_known_host(const struct case_file *file)
{
	struct pl_trust *trust = file->trust;
	unsigned line = 0;
	int known;

	pthread_mutex_lock(&trust->lock);
	known = pl_known_hosts_find(trust->known_hosts, trust->lists.known_hosts ? trust->lists.known_hosts : "",
				    file->candidate->server, file->fingerprint, &line, file->error);
	pthread_mutex_unlock(&trust->lock);
	return judge_by_line(file, known, line);
}

/* Writes the server's line, and reads the file again. `known`, `line`: what the file said before. */
static int write_known_host(const struct case_file *file, int *known, unsigned *line)
{
	struct pl_trust *trust = file->trust;
	char *text = NULL;
	int rc = pl_known_hosts_add(&trust->allocator, trust->known_hosts, file->candidate->server, file->fingerprint,
				    known, line, file->error);

	if (rc == 0)
		rc = read_known_hosts(trust, &text, file->error);
	if (rc < 0) {
		pl_free(&trust->allocator, text);
		return rc;
	}
	pthread_mutex_lock(&trust->lock);
	pl_free(&trust->allocator, trust->lists.known_hosts);
	trust->lists.known_hosts = text;
	pthread_mutex_unlock(&trust->lock);
	return 0;
}

/* Another process may have added another identity before, whose line decides then. */
static int add_known_host(const struct case_file *file)
{
	unsigned line = 0;
	int known, rc;

	pthread_mutex_lock(&file->trust->adding);
	rc = write_known_host(file, &known, &line);
	pthread_mutex_unlock(&file->trust->adding);
	if (rc == 0)
		rc = judge_by_line(file, known, line);
	return rc < 0 ? rc : 0;
}

/* True if a certificate of an authority is for the host that this end connected to. */
static bool certified_for_host(const struct case_file *file)
{
	const char *name = file->candidate->server, *end = strchr(name, ']');
	char host[PL_HOST_MAX];

	snprintf(host, sizeof(host), "%.*s", end ? (int)(end - name - 1) : 0, name + 1);
	return file->certified && pl_stream_is_for_host(file->candidate->stream, host);
}

static enum pl_listed find_authorized(const struct case_file *file)
{
	struct pl_trust *trust = file->trust;
	enum pl_listed listed = PL_UNLISTED;

	pthread_mutex_lock(&trust->lock);
	if (trust->lists.authorized)
		listed = pl_authorized_find(trust->lists.authorized, file->shown ? file->fingerprint : NULL,
					    file->admission->identity.name, &file->admission->rights);
	pthread_mutex_unlock(&trust->lock);
	if (listed == PL_LISTED && file->admission->rights.until &&
	    pl_wall_clock() >= file->admission->rights.until)
		listed = PL_LISTED_REVOKED;
	return listed;
}

static bool is_expected(const struct case_file *file)
{
	for (size_t i = 0; file->shown && i < file->trust->expected_count; i++)
		if (!memcmp(file->trust->expected[i], file->fingerprint, PL_FINGERPRINT))
			return true;
	return false;
}

/* Judges an end to which this end connected. Fingerprints that the program expects come before all files. */
static int judge_server(const struct case_file *file)
{
	struct pl_trust *trust = file->trust;
	enum pl_listed listed;
	int known = PL_HOST_UNKNOWN;

	if (trust->expected_count && !is_expected(file))
		return file->shown ? pl_fail(file->error, -EACCES, "IDENTITY-CHANGED", "connect",
					     file->admission->identity.address,
					     "ask the other end for its fingerprint: peerlane key show FILE",
					     "the other end has %s, which is not expected",
					     file->admission->identity.fingerprint)
				   : fail_unknown(file);
	listed = find_authorized(file);
	if (listed == PL_LISTED_REVOKED)
		return fail_trust(file, "IDENTITY-REVOKED", NULL, "the identity of the other end is revoked");
	if (trust->known_hosts && file->shown)
		known = judge_known_host(file);
	if (known < 0)
		return known;
	if (trust->expected_count || listed == PL_LISTED || known == PL_HOST_KNOWN || certified_for_host(file))
		return 0;
	if (trust->known_hosts && trust->trust_new && file->shown)
		return add_known_host(file);
	/* Only the key, or the callback, decides. */
	if (!trust->known_hosts && !trust->authority && !trust->authorized)
		return 0;
	return fail_unknown(file);
}

/* Judges an end that connected. */
static int judge_client(const struct case_file *file)
{
	static const char hint[] = "add a line with its fingerprint to the file of --authorized";
	struct pl_trust *trust = file->trust;
	enum pl_listed listed = find_authorized(file);

	if (listed == PL_LISTED_REVOKED)
		return fail_trust(file, "IDENTITY-REVOKED", NULL, "the identity of the other end is revoked");
	if (trust->authorized && listed == PL_UNLISTED)
		return fail_trust(file, "IDENTITY-UNKNOWN", hint, "the other end is not in the list");
	if (!trust->authorized && trust->authority && !file->certified)
		return fail_trust(file, "IDENTITY-UNKNOWN", hint, "no authority certified the other end");
	return 0;
}

static void fill_identity(struct case_file *file, struct pl_context *context)
{
	static const struct pl_admission none = { PL_IDENTITY_INIT, PL_RIGHTS_INIT, 0 };
	const struct pl_candidate *candidate = file->candidate;
	struct pl_identity *identity = &file->admission->identity;

	*file->admission = none;
	file->admission->generation = atomic_load(&context->trust_generation);
	identity->connected_to_us = !candidate->server;
	pl_address_format(candidate->address, identity->address, sizeof(identity->address));
	snprintf(identity->key_id, sizeof(identity->key_id), "%s", pl_stream_key_id(candidate->stream));
	file->shown = pl_stream_fingerprint(candidate->stream, file->fingerprint);
	if (!file->shown)
		return;
	pl_fingerprint_format(file->fingerprint, identity->fingerprint);
	file->certified =
		pl_stream_certified(candidate->stream, context->tls, identity->name, sizeof(identity->name));
}

void pl_trust_report_refused(struct pl_context *context, const struct pl_candidate *candidate,
			     const struct pl_error *error)
{
	struct pl_admission admission;
	struct case_file file = { .trust = context->trust, .candidate = candidate, .admission = &admission };

	fill_identity(&file, context);
	context->options.refused(context->options.refused_user, &admission.identity, error);
}

bool pl_trust_asks_program(const struct pl_context *context)
{
	return context->trust && context->trust->authorize;
}

/* Lets the program decide. */
static int ask_program(const struct pl_context *context, const struct case_file *file)
{
	const struct pl_trust *trust = context->trust;
	int rc;

	if (!pl_trust_asks_program(context))
		return 0;
	rc = trust->authorize(trust->user, &file->admission->identity, &file->admission->rights);
	return rc < 0 ? fail_trust(file, "IDENTITY-REFUSED", NULL, "this program refused the other end") : 0;
}

int pl_trust_judge(struct pl_context *context, const struct pl_candidate *candidate, struct pl_admission **admission,
		   struct pl_error *error)
{
	struct case_file file = { .trust = context->trust, .candidate = candidate, .error = error };
	int rc;

	*admission = NULL;
	if (!context->tls || !(context->trust || pl_tls_has_key(context->tls)))
		return 0;
	file.admission = pl_zalloc(&context->allocator, sizeof(*file.admission));
	if (!file.admission)
		return pl_fail_memory(error, "connect");
	fill_identity(&file, context);
	rc = !context->trust ? 0 : candidate->server ? judge_server(&file) : judge_client(&file);
	if (rc == 0)
		rc = ask_program(context, &file);
	if (rc < 0) {
		pl_free(&context->allocator, file.admission);
		return rc;
	}
	*admission = file.admission;
	return 0;
}
