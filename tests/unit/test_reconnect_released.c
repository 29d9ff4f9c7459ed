/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pl_peer_reconnect() while another thread releases a remote region for the last time, and what a remote region has of its new
 * connection.
 */
#include <pthread.h>
#include <sched.h>

#include "core/fabric.h"
#include "support/allocation_hook.h"
#include "support/cases.h"
#include "support/environment.h"

#define LENGTH 4096u

static const struct setting setting = {
	.name = "reconnect", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

struct releaser {
	struct pl_remote *remote;
	pthread_t thread;
};

static void *release_remote(void *argument)
{
	pl_remote_release(argument);
	return NULL;
}

/* Runs under the context's lock, which the releasing thread waits for after it has taken the last reference away. */
static void release_meanwhile(void *argument)
{
	struct releaser *releaser = argument;

	check_number(pthread_create(&releaser->thread, NULL, release_remote, releaser->remote), 0);
	while (atomic_load(&releaser->remote->references))
		sched_yield();
}

static size_t count_remotes(struct pl_context *context, const struct pl_peer *peer)
{
	size_t count = 0;

	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &peer->remotes)
		count++;
	pthread_mutex_unlock(&context->lock);
	return count;
}

static void release_while_reconnecting(void *unused)
{
	struct pl_options options = setting_options(&setting);
	struct pl_context *near, *far = context_open(&setting);
	struct pl_peer *near_peer, *far_peer, *second_far_peer;
	struct scenario_environment environment = { .setting = &setting };
	struct allocation_hook hook;
	struct releaser releaser;
	struct pl_error error;
	struct buffer buffer;
	struct pump pump;
	char address[96];

	(void)unused;
	allocation_hook_init(&hook);
	options.allocator = &hook.allocator;
	near = context_open_with(&options);
	environment.near = near;
	environment.far = far;
	environment.listener = listener_open(&setting, far, address);
	drive(&environment, near);
	drive(&environment, far);
	connect_pair(&environment, near, environment.listener, &near_peer, &far_peer);
	buffer_open(&buffer, far, LENGTH, PL_ACCESS_ALL);
	releaser.remote = share(&environment, buffer.region, near_peer, NULL);
	pump_start(&environment, &pump, far);
	/* The list of one remote region, and of its new import. */
	allocation_hook_arm(&hook, 2 * sizeof(struct pl_remote *), release_meanwhile, &releaser);
	check_ok(pl_peer_reconnect(&near_peer, address, AMPLE_TIME, &error), &error);
	allocation_hook_check(&hook);
	check_number(pthread_join(releaser.thread, NULL), 0);
	check_number(count_remotes(near, near_peer), 0);
	check_ok(pl_accept(environment.listener, AMPLE_TIME, &second_far_peer, &error), &error);
	pump_stop(&pump);
	buffer_close(&buffer);
	pl_close(near);
	pl_close(far);
}

/* A remote region is described by its path over the new connection, and not by the one over the old connection. */
static void path_of_new_connection(void *unused)
{
	struct scenario_environment environment;
	struct pl_remote *remote;
	struct pl_peer *far_peer;
	struct pl_error error;
	struct buffer buffer;
	struct pump pump;

	(void)unused;
	environment_open(&environment, &setting);
	buffer_open(&buffer, environment.far, LENGTH, PL_ACCESS_ALL);
	remote = share(&environment, buffer.region, environment.near_peer, NULL);
	/* As over another fabric, to a newer release. */
	remote->path_reason = "a test";
	remote->trailing = true;
	pump_start(&environment, &pump, environment.far);
	check_ok(pl_peer_reconnect(&environment.near_peer, environment.address, AMPLE_TIME, &error), &error);
	check_ok(pl_accept(environment.listener, AMPLE_TIME, &far_peer, &error), &error);
	pump_stop(&pump);
	check(!remote->path_reason);
	check(!remote->trailing);
	pl_remote_release(remote);
	buffer_close(&buffer);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "release-while-reconnecting", release_while_reconnecting, NULL, 60 },
	{ "path-of-new-connection", path_of_new_connection, NULL, 60 },
};

int main(void)
{
	return cases_run("reconnect-released", cases, PL_ARRAY_SIZE(cases));
}
