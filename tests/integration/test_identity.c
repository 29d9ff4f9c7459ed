/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Identities of both ends: pins, lists of authorized ends and of known hosts, keys beside identities, callbacks, and
 * reloads.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/key/generate.h"
#include "support/cases.h"
#include "support/environment.h"

static const struct setting setting = { "identity", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, false,
					false };

/* Identities of a case, in a folder of its own, which is the current one. */
enum person { SERVER, CLIENT, STRANGER, PERSONS };
static const char *const files[PERSONS] = { "server.pem", "client.pem", "stranger.pem" };
static char prints[PERSONS][PL_FINGERPRINT_MAX];
static char folder[] = "/tmp/test_identity.XXXXXX";

static void write_text(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write_text(const char *path, const char *format, ...)
{
	FILE *file = fopen(path, "w");
	va_list arguments;

	check(file);
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	check_number(fclose(file), 0);
	check_number(chmod(path, 0600), 0);
}

static void read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");
	size_t length;

	check(file);
	length = fread(text, 1, size - 1, file);
	text[length] = '\0';
	fclose(file);
}

static void begin(void)
{
	struct pl_error error;

	umask(022);
	check(mkdtemp(folder) && chdir(folder) == 0);
	for (int i = 0; i < PERSONS; i++) {
		check_ok(key_generate_identity(files[i], "test", i == STRANGER ? KEY_P256 : KEY_ED25519, &error),
			 &error);
		check_ok(pl_identity_fingerprint(files[i], prints[i], &error), &error);
	}
}

static void end(void)
{
	DIR *directory = opendir(folder);
	const struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		unlink(entry->d_name);
	closedir(directory);
	check(chdir("/") == 0 && rmdir(folder) == 0);
}

static struct pl_options options_of(const char *identity)
{
	struct pl_options options = setting_options(&setting);

	options.identity = identity;
	return options;
}

/* A server, and the last client that it refused. */
struct server {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *peer; /* of the last connection */
	char address[96];
	atomic_int refusals;
	struct pl_identity refused;
	struct pl_error reason;
};

static void note_refused(void *user, const struct pl_identity *identity, const struct pl_error *error)
{
	struct server *server = user;

	server->refused = *identity;
	server->reason = *error;
	atomic_fetch_add(&server->refusals, 1);
}

static void serve(struct server *server, struct pl_options options)
{
	memset(server, 0, sizeof(*server));
	options.refused = note_refused;
	options.refused_user = server;
	server->context = context_open_with(&options);
	server->listener = listener_open(&setting, server->context, server->address);
}

static void stop(struct server *server)
{
	pl_close(server->context);
}

/* Connects, and checks the error's id; NULL: success. Returns the peer. */
#define try_connect(server, context, id) try_connect_at(__LINE__, server, context, id)
static struct pl_peer *try_connect_at(int line, struct server *server, struct pl_context *context, const char *id)
{
	struct pl_peer *peer;
	struct pl_error error = { 0 };
	int rc = pl_connect(context, server->address, 0, &peer, &error);

	if ((rc == 0) != !id || (id && strcmp(error.id, id))) {
		char text[400];

		pl_error_format(&error, text, sizeof(text));
		check_failed(__FILE__, line, "expected %s, not %d: %s", id ? id : "success", rc, text);
	}
	if (rc == 0)
		check_ok(pl_accept(server->listener, AMPLE_TIME, &server->peer, &error), &error);
	return peer;
}

/* Tries a client with these options, and closes it. */
#define try_client(server, options, id) \
	do { \
		struct pl_options try_options = (options); \
		struct pl_context *try_context = context_open_with(&try_options); \
		struct pl_peer *try_peer = try_connect_at(__LINE__, server, try_context, id); \
		if (try_peer) { \
			pl_peer_close((server)->peer); \
			pl_peer_close(try_peer); \
		} \
		pl_close(try_context); \
	} while (0)

/* Connects without an identity.  The error of the library names its option, and none of the command. */
static void check_remedy_without_identity(struct server *server)
{
	struct pl_options options = options_of(NULL);
	struct pl_context *context = context_open_with(&options);
	struct pl_error error = { 0 };
	struct pl_peer *peer;

	check_number(pl_connect(context, server->address, 0, &peer, &error), -EACCES);
	check_text(error.id, "IDENTITY-NEEDED");
	check_text(error.message, "the other end refuses this end, which shows no identity");
	check(strstr(error.hint, "pl_options.identity") && !strstr(error.hint, "--"));
	pl_close(context);
}

static void await_refusals(struct server *server, int count)
{
	for (uint64_t end = clock_now() + AMPLE_TIME; atomic_load(&server->refusals) < count && clock_now() < end;)
		usleep(10000);
	check_number(atomic_load(&server->refusals), count);
}

/* -- connecting ends ----------------------------------------------------------------------------------------------- */

static void pins(void *argument)
{
	struct pl_options options = options_of(NULL);
	struct pl_identity identity = PL_IDENTITY_INIT;
	struct pl_context *context;
	struct server server, nobody;
	struct pl_peer *peer;
	char two[2 * PL_FINGERPRINT_MAX + 1];

	(void)argument;
	begin();
	serve(&server, options_of(files[SERVER]));
	options.expected = prints[SERVER];
	context = context_open_with(&options);
	peer = try_connect(&server, context, NULL);
	check_number(pl_peer_identity(peer, &identity), 0);
	check_text(identity.fingerprint, prints[SERVER]);
	check(!identity.connected_to_us && !identity.key_id[0] && strstr(server.address, "127.0.0.1"));
	check_text(identity.address, server.address);
	check_number(pl_peer_identity(server.peer, &identity), 0);
	check(identity.connected_to_us && !identity.fingerprint[0]);
	pl_close(context);
	snprintf(two, sizeof(two), "%s,%s", prints[CLIENT], prints[SERVER]);
	options.expected = two;
	try_client(&server, options, NULL);
	/* A relay proves its own identity, or leads to another holder of the group's key: both are refused. */
	options.expected = prints[CLIENT];
	try_client(&server, options, "IDENTITY-CHANGED");
	serve(&nobody, options_of(NULL));
	try_client(&nobody, options, "IDENTITY-NONE");
	stop(&nobody);
	stop(&server);
	end();
}

static void authorized(void *argument)
{
	struct pl_options options;
	struct pl_identity identity = PL_IDENTITY_INIT;
	struct pl_context *context;
	struct server server;
	struct pl_peer *peer;

	(void)argument;
	begin();
	write_text("list", "# test\n\n%s read,write quota=2G names=a/*,b # comment\nrevoked %s\n", prints[CLIENT],
		   prints[STRANGER]);
	options = options_of(files[SERVER]);
	options.authorized = "list";
	serve(&server, options);
	context = context_open_with(&(struct pl_options){ .size = sizeof(options), .identity = files[CLIENT] });
	peer = try_connect(&server, context, NULL);
	check_number(pl_peer_identity(server.peer, &identity), 0);
	check_text(identity.fingerprint, prints[CLIENT]);
	check_number(pl_peer_rights(server.peer, &(struct pl_rights){ .size = 4 }), -EINVAL);
	check_number(pl_peer_rights(server.peer, &(struct pl_rights){ .size = sizeof(size_t) }), 0);
	check_number(pl_peer_rights(server.peer, &(struct pl_rights){ .size = sizeof(struct pl_rights) + 1 }), -EINVAL);
	check_number(pl_peer_identity(server.peer, &(struct pl_identity){ .size = 4 }), -EINVAL);
	check_number(pl_peer_identity(server.peer, &(struct pl_identity){ .size = sizeof(size_t) }), 0);
	check_number(pl_peer_identity(server.peer, &(struct pl_identity){ .size = sizeof(struct pl_identity) + 1 }),
		     -EINVAL);
	{
		struct pl_rights rights = PL_RIGHTS_INIT;

		check_number(pl_peer_rights(server.peer, &rights), 0);
		check_number(rights.access, PL_ACCESS_READ | PL_ACCESS_WRITE);
		check_number(rights.quota, 2ll << 30);
		check_text(rights.names, "a/*,b");
		check_number(pl_peer_rights(peer, &rights), 0);
		check_number(rights.access, PL_ACCESS_ALL);
	}
	pl_close(context);
	try_client(&server, options_of(files[STRANGER]), "IDENTITY-REFUSED");
	await_refusals(&server, 1);
	check_text(server.refused.fingerprint, prints[STRANGER]);
	check_text(server.reason.id, "IDENTITY-REVOKED");
	try_client(&server, options_of(files[SERVER]), "IDENTITY-REFUSED");
	check_remedy_without_identity(&server);
	await_refusals(&server, 3);
	check(!server.refused.fingerprint[0]);
	check_text(server.reason.id, "IDENTITY-UNKNOWN");
	stop(&server);
	write_text("list", "* read\n%s read until=20200101\n", prints[CLIENT]);
	serve(&server, options);
	try_client(&server, options_of(NULL), NULL);
	try_client(&server, options_of(files[STRANGER]), NULL);
	try_client(&server, options_of(files[CLIENT]), "IDENTITY-REFUSED");
	stop(&server);
	end();
}

/* Imports the token and checks the status. */
static void expect_import(struct server *server, struct pl_peer *peer, unsigned rights, int status)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_region *region;
	struct pl_remote *remote = NULL;
	struct pl_error error;

	options.rights = rights;
	check_ok(pl_region_allocate(server->context, 4096, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_region_share(region, &options, token, &length, &error), &error);
	check_status(pl_remote_import(peer, token, length, 0, &remote, &error), status, &error);
	if (status)
		check_text(error.id, "IDENTITY-RIGHTS");
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
}

static void rights(void *argument)
{
	struct pl_options options;
	struct pl_context *context;
	struct server server;
	struct pl_peer *peer;

	(void)argument;
	begin();
	write_text("list", "%s read,atomic\n", prints[CLIENT]);
	options = options_of(files[SERVER]);
	options.authorized = "list";
	serve(&server, options);
	options = options_of(files[CLIENT]);
	context = context_open_with(&options);
	peer = try_connect(&server, context, NULL);
	expect_import(&server, peer, PL_ACCESS_READ, 0);
	expect_import(&server, peer, PL_ACCESS_READ | PL_ACCESS_ATOMIC, 0);
	expect_import(&server, peer, PL_ACCESS_WRITE, -EACCES);
	expect_import(&server, peer, PL_ACCESS_ALL, -EACCES);
	pl_close(context);
	stop(&server);
	end();
}

/* -- keys ------------------------------------------------------------------------------------------------------------ */

static struct pl_options with_key(struct pl_options options, const char *key)
{
	options.key = key;
	options.key_length = key ? 16 : 0;
	return options;
}

static const char key_a[] = "0123456789abcdeA", key_b[] = "0123456789abcdeB";

static void keys(void *argument)
{
	struct pl_options options;
	struct pl_identity identity = PL_IDENTITY_INIT, other = PL_IDENTITY_INIT;
	struct pl_context *context;
	struct server server;
	struct pl_peer *peer;

	(void)argument;
	begin();
	serve(&server, with_key(options_of(files[SERVER]), key_a));
	options = with_key(options_of(files[CLIENT]), key_a);
	context = context_open_with(&options);
	peer = try_connect(&server, context, NULL);
	check_number(pl_peer_identity(peer, &identity), 0);
	check_number(pl_peer_identity(server.peer, &other), 0);
	check_number(strlen(identity.key_id), 16);
	check_text(identity.key_id, other.key_id);
	check_text(identity.fingerprint, prints[SERVER]);
	check_text(other.fingerprint, prints[CLIENT]);
	pl_close(context);
	try_client(&server, with_key(options_of(files[CLIENT]), key_b), "AUTH-KEY-MISMATCH");
	await_refusals(&server, 1);
	check_text(server.reason.id, "AUTH-KEY-MISMATCH");
	check_text(server.refused.fingerprint, prints[CLIENT]);
	try_client(&server, options_of(files[CLIENT]), "AUTH-NEEDS-KEY");
	/* A key alone does not say which end this is. */
	try_client(&server, with_key(options_of(NULL), key_a), "AUTH-NO-KEY");
	stop(&server);
	serve(&server, options_of(files[SERVER]));
	try_client(&server, with_key(options_of(files[CLIENT]), key_a), "AUTH-NO-KEY");
	stop(&server);
	serve(&server, with_key(options_of(NULL), key_a));
	try_client(&server, with_key(options_of(files[CLIENT]), key_a), "IDENTITY-NONE");
	try_client(&server, with_key(options_of(NULL), key_a), NULL);
	stop(&server);
	end();
}

/* Both kinds of handshake accept the old key of a group beside the new one. */
static void old_keys(void *argument)
{
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct pl_error error;

	(void)argument;
	begin();
	for (int identity = 0; identity < 2; identity++) {
		struct pl_options options = with_key(options_of(identity ? files[SERVER] : NULL), key_a);
		const char *own = identity ? files[CLIENT] : NULL;
		struct server server;

		options.old_key = key_b;
		options.old_key_length = 16;
		serve(&server, options);
		try_client(&server, with_key(options_of(own), key_a), NULL);
		try_client(&server, with_key(options_of(own), key_b), NULL);
		try_client(&server, with_key(options_of(own), "0123456789abcdeC"), "AUTH-KEY-MISMATCH");
		credentials.key = key_a;
		credentials.key_length = 16;
		check_ok(pl_context_reload(server.context, &credentials, &error), &error);
		try_client(&server, with_key(options_of(own), key_a), NULL);
		try_client(&server, with_key(options_of(own), key_b), "AUTH-KEY-MISMATCH");
		/* Without new keys the old ones stay. */
		check_ok(pl_context_reload(server.context, NULL, &error), &error);
		try_client(&server, with_key(options_of(own), key_a), NULL);
		credentials.key_length = 3;
		check_status(pl_context_reload(server.context, &credentials, &error), -EINVAL, &error);
		try_client(&server, with_key(options_of(own), key_a), NULL);
		stop(&server);
	}
	end();
}

static void self_connection(void *argument)
{
	struct server server;

	(void)argument;
	begin();
	serve(&server, with_key(options_of(NULL), key_a));
	try_connect(&server, server.context, "SELF-CONNECTION");
	stop(&server);
	serve(&server, options_of(NULL));
	try_connect(&server, server.context, NULL);
	stop(&server);
	end();
}

/* -- the program decides --------------------------------------------------------------------------------------------- */

static int decide(void *user, const struct pl_identity *identity, struct pl_rights *given)
{
	if (!strcmp(identity->fingerprint, prints[STRANGER]))
		return -EACCES;
	*(bool *)user = identity->connected_to_us;
	given->access = PL_ACCESS_READ;
	return 0;
}

static void callback(void *argument)
{
	struct pl_options options = options_of(files[SERVER]);
	bool asked = false, never = true;
	struct pl_context *context;
	struct server server;
	struct pl_peer *peer;

	(void)argument;
	begin();
	options.authorize = decide;
	options.authorize_user = &asked;
	serve(&server, options);
	try_client(&server, options_of(files[STRANGER]), "IDENTITY-REFUSED");
	options = options_of(files[CLIENT]);
	options.authorize = decide;
	options.authorize_user = &never;
	context = context_open_with(&options);
	peer = try_connect(&server, context, NULL);
	check(asked && !never);
	expect_import(&server, peer, PL_ACCESS_READ, 0);
	expect_import(&server, peer, PL_ACCESS_WRITE, -EACCES);
	pl_close(context);
	stop(&server);
	serve(&server, options_of(files[STRANGER]));
	try_client(&server, options, "IDENTITY-REFUSED");
	stop(&server);
	end();
}

/* -- known hosts ----------------------------------------------------------------------------------------------------- */

static void known_hosts(void *argument)
{
	struct pl_options options;
	struct server server;
	char text[1000], name[96];

	(void)argument;
	begin();
	serve(&server, options_of(files[SERVER]));
	snprintf(name, sizeof(name), "[127.0.0.1]%s", strchr(server.address, ':'));
	options = options_of(files[CLIENT]);
	options.known_hosts = "hosts";
	try_client(&server, options, "IDENTITY-UNKNOWN");
	check(access("hosts", F_OK) != 0);
	options.trust_new = PL_ON;
	try_client(&server, options, NULL);
	read_text("hosts", text, sizeof(text));
	{
		char expected[200];

		snprintf(expected, sizeof(expected), "%s %s\n", name, prints[SERVER]);
		check_text(text, expected);
	}
	options.trust_new = PL_OFF;
	try_client(&server, options, NULL);
	write_text("hosts", "# comment\n[other]:1 %s\n%s %s\n", prints[SERVER], name, prints[STRANGER]);
	try_client(&server, options, "IDENTITY-CHANGED");
	options.trust_new = PL_ON;
	try_client(&server, options, "IDENTITY-CHANGED");
	write_text("hosts", "[127.0.0.*]:*,[x]:1 %s laboratory\n%s %s\n", prints[SERVER], name, prints[STRANGER]);
	try_client(&server, options, NULL);
	write_text("hosts", "%s %s\n@revoked * %s\n", name, prints[SERVER], prints[SERVER]);
	try_client(&server, options, "IDENTITY-REVOKED");
	/* The file is checked when the context is opened. */
	write_text("hosts", "%s SHA256:short\n", name);
	{
		struct pl_context *context;
		struct pl_error error;

		check_status(pl_open(&context, &options, &error), -EINVAL, &error);
		check_text(error.id, "KNOWN-HOSTS-SYNTAX");
	}
	stop(&server);
	end();
}

/* Another process adds a line for the server after the context read the file. */
static void known_hosts_written_meanwhile(void *argument)
{
	struct pl_options options = options_of(NULL);
	struct pl_context *context;
	struct server server;
	char expected[200], text[1000], name[96];

	(void)argument;
	begin();
	serve(&server, options_of(files[SERVER]));
	snprintf(name, sizeof(name), "[127.0.0.1]%s", strchr(server.address, ':'));
	options.known_hosts = "hosts";
	options.trust_new = PL_ON;
	context = context_open_with(&options);
	snprintf(expected, sizeof(expected), "%s %s\n", name, prints[STRANGER]);
	write_text("hosts", "%s", expected);
	check(!try_connect(&server, context, "IDENTITY-CHANGED"));
	read_text("hosts", text, sizeof(text));
	check_text(text, expected);
	pl_close(context);
	stop(&server);
	end();
}

/* A reconnect looks the name up that the program gave, and demands the same identity. */
static void reconnect(void *argument)
{
	struct pl_options options;
	struct pl_context *context;
	struct server server;
	struct pl_peer *peer, *old;
	struct pl_error error;
	char address[96];

	(void)argument;
	begin();
	serve(&server, options_of(files[SERVER]));
	snprintf(address, sizeof(address), "localhost%s", strchr(server.address, ':'));
	write_text("hosts", "[localhost]%s %s\n", strchr(server.address, ':'), prints[SERVER]);
	options = options_of(files[CLIENT]);
	options.known_hosts = "hosts";
	context = context_open_with(&options);
	check_ok(pl_connect(context, address, 0, &peer, &error), &error);
	check_ok(pl_accept(server.listener, AMPLE_TIME, &old, &error), &error);
	check_ok(pl_peer_reconnect(&peer, NULL, 0, &error), &error);
	pl_close(context);
	stop(&server);
	end();
}

/* -- reload ------------------------------------------------------------------------------------------------------------ */

static bool is_connected(struct pl_peer *peer)
{
	return peer_information_of(peer).connected;
}

static void await_loss(struct pl_peer *peer)
{
	for (uint64_t end = clock_now() + AMPLE_TIME; is_connected(peer) && clock_now() < end;)
		usleep(10000);
	check(!is_connected(peer));
}

static void reload(void *argument)
{
	struct pl_options options = options_of(files[SERVER]);
	struct pl_context *contexts[2];
	struct pl_peer *peers[2], *accepted[2];
	struct server server;
	struct pl_error error;
	char fingerprint[PL_FINGERPRINT_MAX];

	(void)argument;
	begin();
	write_text("list", "%s all\n%s all\n", prints[CLIENT], prints[STRANGER]);
	options.authorized = "list";
	serve(&server, options);
	for (int i = 0; i < 2; i++) {
		struct pl_options client = options_of(files[CLIENT + i]);

		contexts[i] = context_open_with(&client);
		peers[i] = try_connect(&server, contexts[i], NULL);
		accepted[i] = server.peer;
	}
	/* A wrong file changes nothing. */
	write_text("list", "%s read\nrubbish\n", prints[STRANGER]);
	check_status(pl_context_reload(server.context, NULL, &error), -EINVAL, &error);
	check_text(error.id, "AUTHORIZED-SYNTAX");
	check_text(error.object, "list:2");
	check(is_connected(accepted[0]) && is_connected(accepted[1]));
	write_text("list", "%s all\n", prints[STRANGER]);
	check_ok(pl_context_reload(server.context, NULL, &error), &error);
	check(!is_connected(accepted[0]) && is_connected(accepted[1]));
	await_loss(peers[0]);
	expect_import(&server, peers[1], PL_ACCESS_WRITE, 0);
	{
		struct pl_remote *remote;
		static const uint8_t token[PL_TOKEN_MAX];

		check(pl_remote_import(accepted[0], token, sizeof(token), 0, &remote, &error) < 0);
	}
	/* Fewer rights disconnect, as imports of more exist; more rights do not. */
	write_text("list", "%s read\n", prints[STRANGER]);
	check_ok(pl_context_reload(server.context, NULL, &error), &error);
	check(!is_connected(accepted[1]));
	/* A new identity of the server serves new connections. */
	check_number(unlink(files[SERVER]), 0);
	check_ok(key_generate_identity(files[SERVER], "new", KEY_ED25519, &error), &error);
	check_ok(pl_context_reload(server.context, NULL, &error), &error);
	check_ok(pl_identity_fingerprint(files[SERVER], fingerprint, &error), &error);
	check(strcmp(fingerprint, prints[SERVER]));
	options = options_of(files[STRANGER]);
	options.expected = fingerprint;
	try_client(&server, options, NULL);
	for (int i = 0; i < 2; i++)
		pl_close(contexts[i]);
	stop(&server);
	end();
}

/* Reloads while clients come and go. */
static void *reload_often(void *argument)
{
	struct server *server = argument;
	struct pl_error error;

	for (int i = 0; i < 60; i++) {
		check_ok(pl_context_reload(server->context, NULL, &error), &error);
		usleep(2000);
	}
	return NULL;
}

static void reload_under_load(void *argument)
{
	struct pl_options options = options_of(files[SERVER]), client;
	struct pl_context *context;
	struct server server;
	pthread_t thread;

	(void)argument;
	begin();
	write_text("list", "%s all\n", prints[CLIENT]);
	options.authorized = "list";
	serve(&server, options);
	client = options_of(files[CLIENT]);
	context = context_open_with(&client);
	check_number(pthread_create(&thread, NULL, reload_often, &server), 0);
	for (int i = 0; i < 40; i++) {
		struct pl_peer *peer = try_connect(&server, context, NULL);

		expect_import(&server, peer, PL_ACCESS_READ, 0);
		pl_peer_close(i % 2 ? server.peer : peer);
		pl_peer_close(i % 2 ? peer : server.peer);
	}
	check_number(pthread_join(thread, NULL), 0);
	pl_close(context);
	stop(&server);
	end();
}

static void nothing_to_reload(void *argument)
{
	struct pl_options options = options_of(NULL);
	struct pl_context *context = context_open_with(&options);
	struct pl_error error;

	(void)argument;
	check_status(pl_context_reload(context, NULL, &error), -ENOTSUP, &error);
	pl_close(context);
}

/* -- files -------------------------------------------------------------------------------------------------------------- */

static void expect_open_error(struct pl_options options, int code, const char *id)
{
	struct pl_context *context;
	struct pl_error error;

	check_status(pl_open(&context, &options, &error), code, &error);
	check_text(error.id, id);
}

static void unsafe_files(void *argument)
{
	struct pl_options options;
	struct pl_error error;
	char text[8000];

	(void)argument;
	begin();
	options = options_of("missing");
	expect_open_error(options, -ENOENT, "SYSTEM");
	options = options_of(files[SERVER]);
	check_number(chmod(files[SERVER], 0644), 0);
	expect_open_error(options, -EACCES, "FILE-UNSAFE");
	check_number(chmod(files[SERVER], 0600), 0);
	write_text("list", "* read\n");
	options.authorized = "list";
	check_number(chmod("list", 0664), 0);
	expect_open_error(options, -EACCES, "FILE-UNSAFE");
	check_number(chmod("list", 0644), 0);
	check_number(chmod(".", 0777), 0);
	expect_open_error(options, -EACCES, "FILE-UNSAFE");
	check_number(chmod(".", 0700), 0);
	check_number(unlink("list"), 0);
	check_number(mkfifo("list", 0600), 0);
	expect_open_error(options, -EACCES, "FILE-UNSAFE");
	/* The key of another certificate, and files without either. */
	read_text(files[CLIENT], text, sizeof(text));
	*strstr(text, "-----BEGIN CERTIFICATE") = '\0';
	write_text("key", "%s", text);
	expect_open_error(options_of("key"), -EINVAL, "IDENTITY-FILE");
	check_status(pl_identity_fingerprint("key", text, &error), -EINVAL, &error);
	read_text(files[CLIENT], text, sizeof(text));
	write_text("certificate", "%s", strstr(text, "-----BEGIN CERTIFICATE"));
	expect_open_error(options_of("certificate"), -EINVAL, "IDENTITY-FILE");
	check_ok(pl_identity_fingerprint("certificate", text, &error), &error);
	check_text(text, prints[CLIENT]);
	{
		char other[8000];

		read_text(files[CLIENT], text, sizeof(text));
		read_text(files[SERVER], other, sizeof(other));
		*strstr(text, "-----BEGIN CERTIFICATE") = '\0';
		write_text("mixed", "%s%s", text, strstr(other, "-----BEGIN CERTIFICATE"));
		expect_open_error(options_of("mixed"), -EINVAL, "IDENTITY-FILE");
	}
	options = options_of(NULL);
	options.expected = "SHA256:abc";
	expect_open_error(options, -EINVAL, "OPTION");
	end();
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "pins", pins, NULL, 30 },
		{ "authorized", authorized, NULL, 30 },
		{ "rights", rights, NULL, 30 },
		{ "keys", keys, NULL, 30 },
		{ "old keys", old_keys, NULL, 30 },
		{ "self connection", self_connection, NULL, 30 },
		{ "callback", callback, NULL, 30 },
		{ "known hosts", known_hosts, NULL, 30 },
		{ "written meanwhile", known_hosts_written_meanwhile, NULL, 30 },
		{ "reconnect", reconnect, NULL, 30 },
		{ "reload", reload, NULL, 30 },
		{ "reload under load", reload_under_load, NULL, 60 },
		{ "nothing to reload", nothing_to_reload, NULL, 30 },
		{ "unsafe files", unsafe_files, NULL, 30 },
	};

	return cases_run("identity", cases, sizeof(cases) / sizeof(cases[0]));
}
