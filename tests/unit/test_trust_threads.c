/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that judge the other ends of connections, as engines judge new ones, and that ask for identities. Other
 * threads load the files and the keys anew. ThreadSanitizer reports an access without the lock of these settings.
 */
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/key/generate.h"
#include "control/tls.h"
#include "core/peer.h"
#include "core/trust.h"
#include "support/cases.h"
#include "support/environment.h"

#define PEERS 2 /* each context has that many engines, and each engine a peer */
#define RELOADS 20
/* Hosts that a thread adds to the file of known hosts, which grows. */
#define NEW_HOSTS 40

static const struct setting setting = {
	.name = "trust",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 1,
	.key = true,
};

struct rig {
	char folder[32];
	struct pl_context *client, *server;
	struct pl_listener *listener;
	struct pl_peer *client_peers[PEERS], *server_peers[PEERS];
	atomic_uint hosts; /* names given to servers so far */
	atomic_bool done;
};

/* Work of one thread, with one peer. */
struct work {
	struct rig *rig;
	void (*run)(struct rig *rig, struct pl_context *context, struct pl_peer *peer);
	struct pl_context *context;
	struct pl_peer *peer;
	pthread_t thread;
};

static void *run_until_done(void *argument)
{
	const struct work *work = argument;

	while (!atomic_load(&work->rig->done))
		work->run(work->rig, work->context, work->peer);
	return NULL;
}

/* Judges the other end. `server` is the name to which this end connected; NULL: the other end connected. */
static void judge(struct pl_peer *peer, const char *server)
{
	const struct pl_candidate candidate = { &peer->channel.stream, (struct sockaddr *)&peer->address, server };
	struct pl_admission *admission;
	struct pl_error error;

	pl_engine_lock(peer->home);
	check_ok(pl_trust_judge(peer->context, &candidate, &admission, &error), &error);
	pl_engine_unlock(peer->home);
	pl_free(&peer->context->allocator, admission);
}

static void judge_client_end(struct rig *rig, struct pl_context *context, struct pl_peer *peer)
{
	(void)rig;
	(void)context;
	judge(peer, NULL);
}

/* Judges a server. A name that is new is added to the known hosts. */
static void judge_server_end(struct rig *rig, struct pl_context *context, struct pl_peer *peer)
{
	char name[PL_HOST_MAX];

	(void)context;
	snprintf(name, sizeof(name), "[host%u]:1", atomic_fetch_add(&rig->hosts, 1) % (PEERS * NEW_HOSTS));
	judge(peer, name);
}

static void ask_identity(struct rig *rig, struct pl_context *context, struct pl_peer *peer)
{
	struct pl_identity identity = PL_IDENTITY_INIT;

	(void)rig;
	(void)context;
	check_number(pl_peer_identity(peer, &identity), 0);
	check_text(identity.name, "");
}

static void ask_rights(struct rig *rig, struct pl_context *context, struct pl_peer *peer)
{
	struct pl_rights rights = PL_RIGHTS_INIT;

	(void)rig;
	(void)context;
	check_number(pl_peer_rights(peer, &rights), 0);
	check_number(rights.access, PL_ACCESS_ALL);
}

static void take_keys(struct rig *rig, struct pl_context *context, struct pl_peer *peer)
{
	struct pl_psk keys[2];

	(void)rig;
	(void)peer;
	pl_tls_keys(context->tls, keys);
}

static void begin_tls(struct rig *rig, struct pl_context *context, struct pl_peer *peer)
{
	SSL *ssl = pl_tls_connection(context->tls, -1, true);

	(void)rig;
	(void)peer;
	check(ssl);
	SSL_free(ssl);
}

static void *reload(void *argument)
{
	const struct work *work = argument;
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct pl_error error;

	credentials.key = test_key;
	credentials.key_length = sizeof(test_key);
	for (unsigned i = 0; i < RELOADS; i++)
		check_ok(pl_context_reload(work->context, &credentials, &error), &error);
	return NULL;
}

/* Makes both identities, and the list with that of the client, in a new folder. */
static void make_files(struct rig *rig)
{
	char fingerprint[PL_FINGERPRINT_MAX];
	struct pl_error error;
	FILE *list;

	umask(022);
	snprintf(rig->folder, sizeof(rig->folder), "/tmp/test_trust.XXXXXX");
	check(mkdtemp(rig->folder) && chdir(rig->folder) == 0);
	check_ok(key_generate_identity("server.pem", "server", KEY_ED25519, &error), &error);
	check_ok(key_generate_identity("client.pem", "client", KEY_ED25519, &error), &error);
	check_ok(pl_identity_fingerprint("client.pem", fingerprint, &error), &error);
	list = fopen("list", "w");
	check(list && fprintf(list, "%s all\n", fingerprint) > 0 && fclose(list) == 0);
}

static void rig_open(struct rig *rig)
{
	struct pl_options options = setting_options(&setting);
	char address[96];
	struct pl_error error;

	make_files(rig);
	options.workers = PEERS;
	options.identity = "server.pem";
	options.authorized = "list";
	/* The certificate of an authority that certified no other end. */
	options.authority = "server.pem";
	rig->server = context_open_with(&options);
	options.identity = "client.pem";
	options.authorized = NULL;
	options.authority = NULL;
	options.known_hosts = "hosts";
	options.trust_new = true;
	rig->client = context_open_with(&options);
	rig->listener = listener_open(&setting, rig->server, address);
	for (unsigned i = 0; i < PEERS; i++) {
		check_ok(pl_connect(rig->client, address, AMPLE_TIME, &rig->client_peers[i], &error), &error);
		check_ok(pl_accept(rig->listener, AMPLE_TIME, &rig->server_peers[i], &error), &error);
	}
}

static void rig_close(struct rig *rig)
{
	pl_close(rig->client);
	pl_close(rig->server);
	unlink("server.pem");
	unlink("client.pem");
	unlink("list");
	unlink("hosts");
	unlink("hosts.lock");
	check(chdir("/") == 0 && rmdir(rig->folder) == 0);
}

static void use_trust_in_threads(void *argument)
{
	struct rig rig = { 0 };

	(void)argument;
	rig_open(&rig);
	{
		struct pl_context *const client = rig.client, *const server = rig.server;
		struct work works[] = {
			{ &rig, judge_client_end, server, rig.server_peers[0], 0 },
			{ &rig, judge_client_end, server, rig.server_peers[1], 0 },
			{ &rig, judge_server_end, client, rig.client_peers[0], 0 },
			{ &rig, judge_server_end, client, rig.client_peers[1], 0 },
			{ &rig, ask_identity, server, rig.server_peers[0], 0 },
			{ &rig, ask_rights, server, rig.server_peers[1], 0 },
			{ &rig, take_keys, server, NULL, 0 },
			{ &rig, begin_tls, server, NULL, 0 },
		};
		struct work reloads[] = {
			{ &rig, NULL, server, NULL, 0 },
			{ &rig, NULL, server, NULL, 0 },
			{ &rig, NULL, client, NULL, 0 },
		};

		for (unsigned i = 0; i < PL_ARRAY_SIZE(works); i++)
			check_number(pthread_create(&works[i].thread, NULL, run_until_done, &works[i]), 0);
		for (unsigned i = 0; i < PL_ARRAY_SIZE(reloads); i++)
			check_number(pthread_create(&reloads[i].thread, NULL, reload, &reloads[i]), 0);
		for (unsigned i = 0; i < PL_ARRAY_SIZE(reloads); i++)
			check_number(pthread_join(reloads[i].thread, NULL), 0);
		atomic_store(&rig.done, true);
		for (unsigned i = 0; i < PL_ARRAY_SIZE(works); i++)
			check_number(pthread_join(works[i].thread, NULL), 0);
	}
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "reload", use_trust_in_threads, NULL, 60 },
};

int main(void)
{
	return cases_run("trust-threads", cases, PL_ARRAY_SIZE(cases));
}
