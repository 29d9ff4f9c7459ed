/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that move queue pairs to RTR. For RoCE the kernel resolves the neighbour's address in that call, and waits up
 * to a second for a host that does not answer (Linux, ib_modify_qp_with_udata()); an engine must not wait so long.
 * Threads start when a job finds none idle, and end with the context.
 */
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"

/* Longest wait of verbs_connector_wait(). */
#define WAIT (50 * PL_NS_PER_MS)
/* Time for the neighbour to answer. */
#define NEIGHBOUR_PAUSE (10 * PL_NS_PER_MS)
/* Port of datagrams that nobody reads (RFC 863). */
#define DISCARD_PORT 9

/*
 * Sends an empty datagram to the other end, so that this host looks for its neighbour now. In RTR the kernel would notice
 * an answer that comes at once only at its timeout, after a second (Linux, rdma_resolve_ip()).
 */
static void ask_for_neighbour(const struct verbs_ready_job *job)
{
	const struct timespec pause = { .tv_nsec = NEIGHBOUR_PAUSE };
	const union ibv_gid *to = &job->receive.ah_attr.grh.dgid;
	struct sockaddr_storage from, there;
	socklen_t length = verbs_gid_to_address(&job->from, 0, &from);
	int fd = socket(from.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	verbs_gid_to_address(to, DISCARD_PORT, &there);
	if (fd >= 0 && from.ss_family == there.ss_family && bind(fd, (struct sockaddr *)&from, length) == 0 &&
	    sendto(fd, "", 0, 0, (struct sockaddr *)&there, length) == 0)
		nanosleep(&pause, NULL);
	if (fd >= 0)
		close(fd);
}

static int move_qp(const struct verbs_library *library, struct verbs_ready_job *job)
{
	int rc = verbs_result(library->ibv_modify_qp(job->qp, &job->receive,
						     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
							     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
							     IBV_QP_MIN_RNR_TIMER));

	if (rc < 0)
		return rc;
	return verbs_result(library->ibv_modify_qp(job->qp, &job->send,
						   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
							   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

void verbs_connector_run(const struct verbs_library *library, struct verbs_ready_job *job)
{
	if (job->asks)
		ask_for_neighbour(job);
	job->rc = move_qp(library, job);
}

static void *connect_queue_pairs(void *argument)
{
	struct verbs_state *state = argument;
	struct verbs_connector *connector = &state->connector;

	pthread_mutex_lock(&connector->lock);
	while (!connector->stopping) {
		struct verbs_ready_job *job;

		if (pl_list_empty(&connector->jobs)) {
			connector->idle++;
			pthread_cond_wait(&connector->work, &connector->lock);
			connector->idle--;
			continue;
		}
		job = pl_list_first(&connector->jobs, struct verbs_ready_job, link);
		pl_list_remove(&job->link);
		connector->pending--;
		pthread_mutex_unlock(&connector->lock);
		verbs_connector_run(state->library, job);
		/* The job may be gone after this. */
		pl_engine_post(job->engine, &job->done);
		pthread_mutex_lock(&connector->lock);
		pthread_cond_broadcast(&connector->ended);
	}
	pthread_mutex_unlock(&connector->lock);
	return NULL;
}

/* Signals are for the program's threads. The caller holds the lock. */
static void start_thread(struct verbs_state *state)
{
	struct verbs_connector *connector = &state->connector;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&connector->threads[connector->count], NULL, connect_queue_pairs, state) == 0)
		connector->count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void verbs_connector_start(struct verbs_state *state, struct verbs_ready_job *job)
{
	struct verbs_connector *connector = &state->connector;
	bool started;

	job->busy = true;
	pthread_mutex_lock(&connector->lock);
	if (connector->pending >= connector->idle && connector->count < VERBS_CONNECTORS)
		start_thread(state);
	started = connector->count;
	if (started) {
		pl_list_append(&connector->jobs, &job->link);
		connector->pending++;
		pthread_cond_signal(&connector->work);
	}
	pthread_mutex_unlock(&connector->lock);
	if (started)
		return;
	/* No thread can be had, and this one may wait. */
	verbs_connector_run(state->library, job);
	pl_engine_post(job->engine, &job->done);
}

bool verbs_connector_withdraw(struct verbs_connector *connector, struct verbs_ready_job *job)
{
	bool waits = false;

	pthread_mutex_lock(&connector->lock);
	pl_list_for_each(at, &connector->jobs)
		waits |= at == &job->link;
	if (waits) {
		pl_list_remove(&job->link);
		connector->pending--;
	}
	pthread_mutex_unlock(&connector->lock);
	return waits;
}

void verbs_connector_wait(struct verbs_connector *connector)
{
	uint64_t end = pl_now() + WAIT;
	struct timespec until = { (time_t)(end / PL_NS_PER_S), (long)(end % PL_NS_PER_S) };

	pthread_mutex_lock(&connector->lock);
	pthread_cond_timedwait(&connector->ended, &connector->lock, &until);
	pthread_mutex_unlock(&connector->lock);
}

void verbs_connector_open(struct verbs_connector *connector)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&connector->lock, NULL);
	pthread_cond_init(&connector->work, NULL);
	pthread_cond_init(&connector->ended, &attributes);
	pthread_condattr_destroy(&attributes);
	pl_list_init(&connector->jobs);
}

void verbs_connector_close(struct verbs_connector *connector)
{
	pthread_mutex_lock(&connector->lock);
	connector->stopping = true;
	pthread_cond_broadcast(&connector->work);
	pthread_mutex_unlock(&connector->lock);
	for (unsigned i = 0; i < connector->count; i++)
		pthread_join(connector->threads[i], NULL);
	pthread_cond_destroy(&connector->ended);
	pthread_cond_destroy(&connector->work);
	pthread_mutex_destroy(&connector->lock);
}
