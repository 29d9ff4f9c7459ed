/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/driver_call.h"

#include <dlfcn.h>
#include <time.h>

#include "rdma/driver_thread.h"

static void drop_call(struct rdma_call *call)
{
	pthread_cond_destroy(&call->changed);
	pthread_mutex_destroy(&call->lock);
	call->drop(call);
}

static void *run_call(void *argument)
{
	struct rdma_call *call = argument;
	bool left;

	call->run(call);
	pthread_mutex_lock(&call->lock);
	call->ended = true;
	left = call->left;
	pthread_cond_broadcast(&call->changed);
	pthread_mutex_unlock(&call->lock);
	/* Otherwise the caller may have dropped it already. */
	if (left)
		drop_call(call);
	return NULL;
}

void rdma_call_start(struct rdma_call *call)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&call->lock, NULL);
	pthread_cond_init(&call->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	call->ended = call->left = false;
	call->since = pl_now();
	call->threaded = rdma_thread_create(&call->thread, run_call, call) == 0;
	if (!call->threaded)
		run_call(call);
}

bool rdma_call_await(struct rdma_call *call, uint64_t until)
{
	const struct timespec end = { (time_t)(until / PL_NS_PER_S), (long)(until % PL_NS_PER_S) };
	bool ended;

	pthread_mutex_lock(&call->lock);
	while (!call->ended && !pthread_cond_timedwait(&call->changed, &call->lock, &end))
		;
	ended = call->ended;
	pthread_mutex_unlock(&call->lock);
	return ended;
}

/* The program may unload this library meanwhile: its code must stay for the thread. */
static void keep_code(void)
{
	Dl_info here;

	if (dladdr(__func__, &here) && here.dli_fname)
		dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void rdma_call_leave(struct rdma_call *call)
{
	const bool threaded = call->threaded;
	pthread_t thread = call->thread;
	bool ended;

	pthread_mutex_lock(&call->lock);
	ended = call->ended;
	if (!ended)
		keep_code();
	call->left = true;
	pthread_mutex_unlock(&call->lock);
	if (!ended) {
		pthread_detach(thread);
		return;
	}
	if (threaded)
		pthread_join(thread, NULL);
	drop_call(call);
}
