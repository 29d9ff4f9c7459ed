/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/endpoint.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <peerlane/counters.h>

#include "bench/common/process.h"
#include "bench/perf/connections.h"
#include "bench/perf/control.h"
#include "bench/perf/options.h"
#include "bench/perf/progress.h"

/* -- errors --------------------------------------------------------------------------------------- */

int bench_fail_with(struct bench_endpoint *ep, const struct pl_error *error)
{
	if (!ep->error.code)
		ep->error = *error;
	return ep->error.code;
}

int bench_fail(struct bench_endpoint *ep, int code, const char *id, const char *object, const char *hint,
	       const char *format, ...)
{
	struct pl_error error;
	char text[sizeof(error.message)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	cli_fail(&error, code, id, object, hint, "%s", text);
	return bench_fail_with(ep, &error);
}

int bench_fail_protocol(struct bench_endpoint *ep, const char *fact)
{
	return bench_fail(ep, -EPROTO, "BENCH-PROTOCOL", NULL, BENCH_VERSION_HINT, "%s", fact);
}

/* -- opening and closing -------------------------------------------------------------------------- */

struct bench_endpoint *bench_endpoint_new(void)
{
	return aligned_alloc(_Alignof(struct bench_endpoint), sizeof(struct bench_endpoint));
}

int bench_endpoint_open(struct bench_endpoint *ep, const struct bench_options *options, uint32_t peers,
			struct pl_error *error)
{
	bool manual = options->manual;
	struct pl_gpu_info gpu = PL_GPU_INFO_INIT;
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct cli_options common = options->common;
	int rc;

	memset(ep, 0, sizeof(*ep));
	/* The signals are blocked before the library starts threads; bench_interrupted() polls for them. */
	bench_block_signals();
	ep->manual = manual;
	ep->huge = options->huge;
	snprintf(ep->memory, sizeof(ep->memory), "%s", options->memory);
	bench_cost_open(&ep->cost, "/sys");
	/* Loads the GPU driver, as the library considers it when it chooses the fabric. */
	if (strcmp(ep->memory, "host"))
		pl_gpu_query(0, &gpu, NULL);
	ep->peers = calloc(peers, sizeof(*ep->peers));
	if (!ep->peers)
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	ep->peer = ep->peers;
	ep->peer_count = peers;
	ep->timeout = options->common.timeout ? options->common.timeout : 30 * CLI_NS_PER_S;
	/* Caching makes a registration of known memory differ from one of new memory. */
	common.keep = options->plan.operation->registers ? BENCH_SIZE_MAX : 0;
	common.program = CLI_PROGRAM_BENCH;
	rc = cli_open(&ep->context, &common, manual ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD, error);
	if (rc == 0 && !manual) {
		ep->fd = pl_fd(ep->context);
		if (ep->fd < 0)
			rc = cli_fail_errno(error, ep->fd, "pl_fd", NULL);
	}
	/* The measuring thread polls as long as the library's threads do. */
	if (rc == 0 && !manual)
		rc = pl_context_query(ep->context, &info, error);
	ep->poll_time = info.poll_time;
	if (rc == 0)
		rc = pl_region_allocate(ep->context, (size_t)peers * BENCH_POSTED_CONTROLS * BENCH_MESSAGE_MAX,
					PL_ACCESS_LOCAL, &ep->control, error);
	if (rc < 0)
		bench_endpoint_close(ep);
	return rc;
}

void bench_endpoint_close(struct bench_endpoint *ep)
{
	if (ep->context)
		bench_endpoint_free_memory(ep);
	pl_close(ep->context);
	ep->context = NULL;
	bench_cost_close(&ep->cost);
	bench_samples_close(&ep->samples);
	bench_pipeline_free(&ep->pipeline);
	for (uint32_t i = 0; ep->peers && i < ep->peer_count; i++)
		free(ep->peers[i].stats);
	free(ep->peers);
	ep->peers = NULL;
}

int bench_endpoint_begin(struct bench_endpoint *ep)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc = 0;

	pl_peer_query(ep->peer->control, &info);
	ep->one_sided = strcmp(info.fabric, "tcp") != 0;
	for (uint32_t i = 0; rc == 0 && i < BENCH_POSTED_CONTROLS; i++)
		rc = bench_control_post(ep, (uint32_t)(ep->peer - ep->peers) * BENCH_POSTED_CONTROLS + i);
	bench_restart_timeout(ep);
	return rc;
}

void bench_endpoint_reset(struct bench_endpoint *ep)
{
	bench_connections_close(ep);
	for (uint32_t i = 0; i < ep->peer_count; i++) {
		pl_peer_close(ep->peers[i].control);
		memset(&ep->peers[i], 0, sizeof(ep->peers[i]));
	}
	/* All operations have ended; their completions must not be taken for those of the next connection. */
	while (pl_poll(ep->context, ep->completions, BENCH_BATCH) > 0)
		;
	bench_endpoint_free_memory(ep);
	ep->error.code = 0;
	ep->started = ep->finished = ep->in_run = ep->closing = false;
	ep->posted_receives = 0;
}

/* -- memory --------------------------------------------------------------------------------------- */

int bench_endpoint_allocate(struct bench_endpoint *ep)
{
	int rc;

	bench_plan_layout(&ep->plan, &ep->layout);
	rc = bench_buffer_open(ep, &ep->local, ep->layout.window * ep->peer_count, PL_ACCESS_LOCAL);
	if (rc == 0)
		rc = bench_buffer_open(ep, &ep->exposed,
				       ep->layout.window * (bench_endpoint_is_target(ep) ? ep->peer_count : 1),
				       ep->plan.operation->access);
	if (rc < 0)
		return rc;
	/* Touches all pages, and not with zeros: page faults would be measured too. */
	if (bench_endpoint_initiates(ep))
		memset(ep->local.bytes, 0x5a, ep->local.length);
	if (bench_endpoint_is_target(ep))
		memset(ep->exposed.bytes, 0, ep->exposed.length);
	rc = bench_buffer_sync_in(ep, &ep->local, 0, ep->local.length);
	return rc < 0 ? rc : bench_pipeline_allocate(ep);
}

int bench_endpoint_grant(struct bench_endpoint *ep, struct bench_message *message)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	size_t length = sizeof(message->token);
	struct pl_error error;

	message->token_length = 0;
	if (!ep->plan.operation->access)
		return 0;
	options.offset = bench_exposed_offset(ep, ep->peer);
	options.length = ep->layout.window;
	if (pl_region_share(ep->exposed.region, &options, message->token, &length, &error) < 0)
		return bench_fail_with(ep, &error);
	message->token_length = (uint16_t)length;
	return 0;
}

uint64_t bench_exposed_offset(const struct bench_endpoint *ep, const struct bench_peer *peer)
{
	return bench_endpoint_is_target(ep) ? (uint64_t)(peer - ep->peers) * ep->layout.window : 0;
}

int bench_endpoint_import(struct bench_endpoint *ep, const struct bench_message *message)
{
	int rc;

	if (!ep->plan.operation->access)
		return 0;
	rc = bench_connections_import(ep, message->token, message->token_length);
	if (rc < 0)
		return rc;
	if (pl_remote_length(ep->connections[(ep->peer - ep->peers) * ep->plan.connections].remote) !=
	    ep->layout.window)
		return bench_fail_protocol(ep, "the peer's memory region has another size than agreed");
	return 0;
}

void bench_endpoint_free_memory(struct bench_endpoint *ep)
{
	/* Prepared vectors keep their regions in use. */
	bench_pipeline_free(&ep->pipeline);
	bench_connections_release(ep);
	bench_buffer_close(&ep->local);
	bench_buffer_close(&ep->exposed);
}

bool bench_endpoint_initiates(const struct bench_endpoint *ep)
{
	return !ep->server || ep->plan.both_ways || bench_plan_pingpong(&ep->plan);
}

bool bench_endpoint_is_target(const struct bench_endpoint *ep)
{
	return ep->server || ep->plan.both_ways || bench_plan_pingpong(&ep->plan);
}
