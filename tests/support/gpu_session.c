/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/gpu_session.h"

#include <stdlib.h>

#include "support/gpu.h"

const struct setting gpu_setting = {
	.name = "gpu-local",
	.fabric = "auto",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 2,
	.one_sided = true,
};

unsigned gpu_session_multiprocessors;
size_t gpu_session_staging;

void gpu_agent_alloc(int fd)
{
	(void)fd;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
}

void gpu_agent_pool(int fd)
{
	(void)fd;
	if (!gpu_open("pool"))
		exit(SKIPPED);
}

void gpu_session_connect(struct gpu_session *session, size_t size)
{
	struct pl_options options = setting_options(&gpu_setting);
	struct pl_error error;

	options.gpu_multiprocessors = gpu_session_multiprocessors;
	options.staging_bytes = gpu_session_staging;
	session->environment = (struct scenario_environment){ .setting = &gpu_setting };
	session->environment.near = context_open_with(&options);
	check_ok(pl_connect(session->environment.near, session->agent.address, 0, &session->peer, &error), &error);
	agent_accept(&session->agent);
	session->environment.near_peer = session->peer;
	check_ok(pl_remote_import(session->peer, session->agent.token, session->agent.token_length, 0, &session->remote,
				  &error),
		 &error);
	buffer_open(&session->buffer, session->environment.near, size, PL_ACCESS_ALL);
}

void gpu_session_disconnect(struct gpu_session *session)
{
	pl_remote_release(session->remote);
	pl_peer_close(session->peer);
	buffer_close(&session->buffer);
	pl_close(session->environment.near);
}

void gpu_session_open(struct gpu_session *session, void (*prepare)(int), const char *kind, size_t size)
{
	agent_fork(&session->agent, &gpu_setting, size, prepare);
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_kind = kind;
	agent_ready(&session->agent);
	gpu_session_connect(session, size);
}

void gpu_session_close(struct gpu_session *session)
{
	gpu_session_disconnect(session);
	agent_stop(&session->agent);
	if (gpu_standin.opened)
		check_number(gpu_standin.opened(), 0);
	if (gpu_standin.handles)
		check_number(gpu_standin.handles(), 0);
	if (gpu_standin.depth)
		check_number(gpu_standin.depth(), 0);
}

int gpu_session_transfer(struct gpu_session *session, bool write, uint64_t offset, uint64_t length,
			 const struct pl_attributes *attributes, struct pl_completion *receipt, struct pl_error *error)
{
	struct pl_region *region = session->buffer.region;
	struct pl_operation *operation;
	int rc;

	if (write)
		rc = pl_write(session->peer, &(struct pl_transfer){ session->remote, offset, region, offset, length },
			      attributes, &operation, error);
	else
		rc = pl_read(session->peer, &(struct pl_transfer){ session->remote, offset, region, offset, length },
			     attributes, &operation, error);
	return rc < 0 ? rc : await(&session->environment, operation, receipt, error);
}

static void check_route(const struct pl_completion *receipt, enum pl_route route, uint64_t bytes, const char *reason)
{
	check_text(receipt->fabric, "local");
	check_number(receipt->route, route);
	check_number(receipt->bytes, bytes);
	check_number((receipt->bytes - receipt->bytes_staged), route == PL_ROUTE_DIRECT ? bytes : 0);
	check_number(receipt->bytes_staged, route == PL_ROUTE_STAGED ? bytes : 0);
	if (!strstr(receipt->reason, reason))
		check_text(receipt->reason, reason);
}

void gpu_session_check(struct gpu_session *session, size_t size, enum pl_route route, const char *reason)
{
	gpu_session_check_from(session, 0, size, route, reason);
}

void gpu_session_check_from(struct gpu_session *session, size_t least, size_t size, enum pl_route route,
			    const char *reason)
{
	const size_t lengths[] = { 8, 1000, 64 << 10, 1 << 20, (1 << 20) + 1, size };
	struct pl_completion receipt;
	struct pl_error error;

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t length = lengths[i], offset = size - length;
		uint64_t seed = i + 1;

		if (length > size || length < least)
			continue;
		pattern_fill(session->buffer.bytes + offset, length, seed, offset);
		check_ok(gpu_session_transfer(session, true, offset, length, NULL, &receipt, &error), &error);
		check_route(&receipt, route, length, reason);
		check(agent_matches(&session->agent, seed, offset, length));
		bytes_set(session->buffer.bytes, POISON, size);
		check_ok(gpu_session_transfer(session, false, offset, length, NULL, &receipt, &error), &error);
		check_route(&receipt, route, length, reason);
		pattern_check(session->buffer.bytes + offset, length, seed, offset);
		if (offset)
			value_check(session->buffer.bytes, 1, POISON);
	}
}
