/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread cancels an operation while another one closes the peer, which waits for a chunk that an engine copies. The endpoint's
 * sockets are gone then: AddressSanitizer reports a use of them. And one call that cancels many operations sweeps their peer once.
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH ((size_t)16 << 20)

static const struct setting setting = {
	.name = "cancel-closing", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Engine whose copy is held. `held`: it has begun one. */
static struct pl_engine *_Atomic holder;
static atomic_bool held, released;

/* Replaces that of the C library. Other engines copy nothing before the holder has begun, so that they leave it a chunk. */
ssize_t process_vm_writev(pid_t process, const struct iovec *local, unsigned long local_count,
			  const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	struct pl_engine *engine = atomic_load(&holder);

	if (engine && pl_engine_held(engine)) {
		atomic_store(&held, true);
		while (!atomic_load(&released))
			usleep(100);
	} else if (engine) {
		while (!atomic_load(&held))
			usleep(100);
	}
	return syscall(SYS_process_vm_writev, process, local, local_count, remote, remote_count, flags);
}

static void *close_peer(void *peer)
{
	pl_peer_close(peer);
	return NULL;
}

static void cancel_while_closing(void *unused)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_engine *engine;
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;
	pthread_t thread;

	(void)unused;
	environment_open(&environment, &setting);
	buffer_open(&near, environment.near, LENGTH, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, LENGTH, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	engine = environment.near->engines[environment.near->engines[0] == environment.near_peer->home];
	atomic_store(&holder, engine);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, LENGTH }, NULL,
			  &operation, &error),
		 &error);
	while (!atomic_load(&held))
		usleep(100);
	check_number(pthread_create(&thread, NULL, close_peer, environment.near_peer), 0);
	/* The sockets are closed once the thread waits for the engine that copies. */
	while (!atomic_load(&engine->waiting))
		usleep(100);
	check_number(atomic_load(&operation->state), PL_RUNNING);
	pl_cancel(operation);
	atomic_store(&released, true);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	check_number(pthread_join(thread, NULL), 0);
	environment.near_peer = NULL;
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

#define READS 100

static const struct setting swept = {
	.name = "cancel-sweep", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static unsigned sweeps;
static void (*sweep)(struct pl_endpoint *endpoint);

static void count_sweep(struct pl_endpoint *endpoint)
{
	sweeps++;
	sweep(endpoint);
}

static void cancel_many(void *unused)
{
	struct pl_completion completions[READS];
	struct scenario_environment environment;
	const struct pl_fabric_ops *before;
	struct pl_fabric_ops ops;
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;

	(void)unused;
	environment_open(&environment, &swept);
	buffer_open(&near, environment.near, 8, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, 8, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	before = environment.near_peer->ops;
	ops = *before;
	sweep = ops.sweep;
	ops.sweep = count_sweep;
	environment.near_peer->ops = &ops;
	/* The far end, which nobody drives, does not answer. */
	for (unsigned i = 0; i < READS; i++)
		check_ok(pl_read(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, NULL,
				 NULL, &error),
			 &error);
	check_number(pl_cancel_all_posted(environment.near), READS);
	check_number(sweeps, 1);
	environment.near_peer->ops = before;
	collect(&environment, environment.near, completions, READS);
	for (unsigned i = 0; i < READS; i++)
		check_completion(environment.near, &completions[i], -ECANCELED);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "cancel-while-closing", cancel_while_closing, NULL, 30 },
	{ "cancel-many", cancel_many, NULL, 30 },
};

int main(void)
{
	return cases_run("cancel-closing", cases, PL_ARRAY_SIZE(cases));
}
