/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Jobs of helper threads that move queue pairs to RTR. For RoCE the kernel resolves the neighbour's address in that call,
 * and waits up to a second for a host that does not answer (Linux, ib_modify_qp_with_udata()).
 */
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fabric/verbs/verbs.h"

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

static void run_ready_job(struct verbs_job *base)
{
	struct verbs_ready_job *job = pl_container_of(base, struct verbs_ready_job, base);

	verbs_connector_run(job->library, job);
	/* The job may be gone after this. */
	pl_engine_post(job->engine, &job->done);
}

void verbs_connector_start(struct verbs_state *state, struct verbs_ready_job *job)
{
	job->busy = true;
	job->library = state->library;
	job->base.run = run_ready_job;
	/* Without a thread, this one may wait. */
	if (!verbs_helpers_start(&state->connectors, &job->base))
		run_ready_job(&job->base);
}
