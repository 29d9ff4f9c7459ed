/* SPDX-License-Identifier: BSD-2-Clause */
/* Which data sockets are encrypted.  A changed boot id makes a context of this host look like one of another host. */
#include "core/context.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/proxy.h"

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 4, false, false, false, false };
static const struct setting keyed = { "keyed", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 4, true, false, false, false };

static struct pl_context *open_choice(const struct setting *setting, enum pl_choice choice, bool elsewhere)
{
	struct pl_options options = setting_options(setting);
	struct pl_context *context;

	options.encrypt_data = choice;
	context = context_open_with(&options);
	if (elsewhere)
		context->boot_id[0] ^= 1;
	return context;
}

static bool is_encrypted(struct pl_peer *peer)
{
	return peer_information_of(peer).encrypted;
}

/* Connects two contexts, moves data over all lanes, and returns true if both ends say that it is encrypted. */
static bool connect_choices(const struct setting *setting, enum pl_choice near, enum pl_choice far, bool elsewhere)
{
	enum { SIZE = 8 << 20 };
	struct scenario_environment environment = { .setting = setting };
	struct buffer source, target;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	bool encrypted;

	environment.near = open_choice(setting, near, elsewhere);
	environment.far = open_choice(setting, far, false);
	drive(&environment, environment.near);
	drive(&environment, environment.far);
	environment.listener = listener_open(setting, environment.far, environment.address);
	connect_pair(&environment, environment.near, environment.listener, &environment.near_peer,
		     &environment.far_peer);
	buffer_open(&source, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&target, environment.far, SIZE, PL_ACCESS_ALL);
	pattern_fill(source.bytes, SIZE, 5, 0);
	remote = share(&environment, target.region, environment.near_peer, NULL);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, source.region, 0, SIZE }, NULL,
			  &operation, &error),
		 &error);
	complete(&environment, operation, NULL);
	check(!memcmp(source.bytes, target.bytes, SIZE));
	encrypted = is_encrypted(environment.near_peer);
	check(is_encrypted(environment.far_peer) == encrypted);
	pl_remote_release(remote);
	buffer_close(&source);
	buffer_close(&target);
	environment_close(&environment);
	return encrypted;
}

static void choices(void *argument)
{
	static const struct {
		enum pl_choice near, far;
		bool between_hosts, same_host;
	} expected[] = {
		{ PL_DEFAULT, PL_DEFAULT, true, false },
		{ PL_DEFAULT, PL_OFF, true, false },
		{ PL_OFF, PL_DEFAULT, true, false },
		{ PL_OFF, PL_OFF, false, false },
		{ PL_ON, PL_DEFAULT, true, true },
		{ PL_OFF, PL_ON, true, true },
		{ PL_ON, PL_ON, true, true },
	};
	const struct setting *setting = argument;

	for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		bool on = expected[i].near == PL_ON || expected[i].far == PL_ON;

		if (on && !setting->key)
			continue;
		check(connect_choices(setting, expected[i].near, expected[i].far, true) == expected[i].between_hosts);
		check(connect_choices(setting, expected[i].near, expected[i].far, false) == expected[i].same_host);
	}
}

/* Sends a marker through a proxy that looks for it.  Returns true if the proxy saw it. */
static bool marker_is_seen(const struct setting *setting, unsigned flags, enum pl_choice choice)
{
	static const char marker[] = "a marker that occurs nowhere else";
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct scenario_environment environment = { .setting = setting };
	struct pl_operation *operation;
	struct pl_listener *listener;
	struct buffer buffer;
	struct proxy proxy;
	struct pl_error error;
	bool seen;

	environment.near = open_choice(setting, choice, false);
	environment.far = open_choice(setting, choice, false);
	drive(&environment, environment.near);
	drive(&environment, environment.far);
	listener = listener_open(setting, environment.far, environment.address);
	proxy_start(&proxy, environment.address, &(struct damage){ .kind = DAMAGE_NONE });
	proxy.marker = marker;
	check_ok(pl_connect(environment.near, proxy.address, 0, &environment.near_peer, &error), &error);
	check_ok(pl_accept(listener, AMPLE_TIME, &environment.far_peer, &error), &error);
	buffer_open(&buffer, environment.far, 8192, PL_ACCESS_LOCAL);
	attributes.flags = flags;
	for (unsigned i = 0; i < 20; i++) {
		check_ok(pl_receive(environment.far_peer, 7, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 8192 },
				    NULL, &operation, &error),
			 &error);
		check_ok(pl_send_copy(environment.near_peer, 7, marker, sizeof(marker), &attributes, NULL, &error),
			 &error);
		complete(&environment, operation, NULL);
		check_text((char *)buffer.bytes, marker);
		memset(buffer.bytes, 0, sizeof(marker));
	}
	pl_peer_close(environment.near_peer);
	pl_peer_close(environment.far_peer);
	proxy_stop(&proxy);
	seen = atomic_load(&proxy.seen) > 0;
	buffer_close(&buffer);
	pl_listener_close(listener);
	pl_close(environment.near);
	pl_close(environment.far);
	return seen;
}

/* Confidential messages never pass the network in the clear; other ones do if the data sockets are not encrypted. */
static void confidential(void *argument)
{
	const struct setting *setting = argument;

	check(marker_is_seen(setting, 0, PL_DEFAULT));
	check(!marker_is_seen(setting, PL_CONFIDENTIAL, PL_DEFAULT));
	if (setting->key) {
		check(!marker_is_seen(setting, 0, PL_ON));
		check(!marker_is_seen(setting, PL_CONFIDENTIAL, PL_ON));
	}
}

/* A demand for encryption without a key would be met by any stranger. */
static void on_needs_a_key(void *argument)
{
	struct pl_options options = setting_options(argument);
	struct pl_context *context;
	struct pl_error error;

	options.encrypt_data = PL_ON;
	check_status(pl_open(&context, &options, &error), -EINVAL, &error);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "choices", choices, (void *)&plain, 60 },
		{ "choices, keyed", choices, (void *)&keyed, 60 },
		{ "confidential", confidential, (void *)&plain, 60 },
		{ "confidential, keyed", confidential, (void *)&keyed, 60 },
		{ "on needs a key", on_needs_a_key, (void *)&plain, 10 },
	};

	return cases_run("encryption", cases, sizeof(cases) / sizeof(cases[0]));
}
