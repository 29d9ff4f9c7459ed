/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/environment.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

const char test_key[32] = "the pre-shared key of the tests";

static bool is_loopback(const char *host)
{
	return !strncmp(host, "127.", 4) || !strcmp(host, "[::1]");
}

bool narrow_grants;
uint64_t poll_time, connect_time;
unsigned rail_limit;

struct pl_options setting_options(const struct setting *setting)
{
	struct pl_options options = PL_OPTIONS_INIT;

	options.progress = setting->progress;
	options.workers = 2;
	options.lanes = setting->lanes;
	options.fabric = setting->fabric;
	options.narrow_grants = narrow_grants ? PL_ON : PL_OFF;
	options.connect_timeout = connect_time ? connect_time : AMPLE_TIME;
	options.operation_timeout = 2 * AMPLE_TIME;
	/* The kernel ends a connection whose other end has had no room for so long. Ends that a test leaves so stay connected. */
	options.keepalive = 3600 * SECOND;
	options.poll_time = poll_time;
	options.rails = rail_limit;
	if (setting->key) {
		options.key = test_key;
		options.key_length = sizeof(test_key);
	}
	options.encrypt_data = setting->encrypted;
	options.insecure = !setting->key && !is_loopback(setting->host);
	return options;
}

struct pl_context *context_open_with(const struct pl_options *options)
{
	struct pl_context *context = NULL;
	struct pl_error error;

	check_ok(pl_open(&context, options, &error), &error);
	check(context);
	return context;
}

struct pl_context *context_open(const struct setting *setting)
{
	struct pl_options options = setting_options(setting);

	return context_open_with(&options);
}

struct pl_listener *listener_open(const struct setting *setting, struct pl_context *context, char address[96])
{
	struct pl_listener *listener = NULL;
	struct pl_error error;

	snprintf(address, 96, "%s:0", setting->host);
	check_ok(pl_listen(context, address, &listener, &error), &error);
	check(pl_listener_address(listener, address, 96) < 96);
	return listener;
}

void connect_pair(struct scenario_environment *environment, struct pl_context *from, struct pl_listener *to,
		  struct pl_peer **from_peer, struct pl_peer **to_peer)
{
	struct pl_operation *connecting, *accepting;
	struct pl_completion receipt;
	struct pl_error error;
	char address[96];

	check(pl_listener_address(to, address, sizeof(address)) < (int)sizeof(address));
	check_ok(pl_accept_start(to, 11, &accepting, &error), &error);
	check_ok(pl_connect_start(from, address, 0, 22, &connecting, &error), &error);
	complete(environment, connecting, &receipt);
	check_number(receipt.kind, PL_KIND_CONNECT);
	check_number(receipt.user_data, 22);
	check(receipt.peer);
	*from_peer = receipt.peer;
	complete(environment, accepting, &receipt);
	check_number(receipt.kind, PL_KIND_ACCEPT);
	check_number(receipt.user_data, 11);
	check(receipt.peer);
	*to_peer = receipt.peer;
}

void environment_listen(struct scenario_environment *environment, const struct setting *setting)
{
	*environment = (struct scenario_environment){ .setting = setting };
	environment->near = context_open(setting);
	environment->far = context_open(setting);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(setting, environment->far, environment->address);
}

void environment_open(struct scenario_environment *environment, const struct setting *setting)
{
	environment_listen(environment, setting);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

void environment_close(struct scenario_environment *environment)
{
	pl_peer_close(environment->near_peer);
	pl_peer_close(environment->far_peer);
	pl_listener_close(environment->listener);
	pl_close(environment->near);
	pl_close(environment->far);
	*environment = (struct scenario_environment){ 0 };
}

bool environment_manual(const struct scenario_environment *environment)
{
	return environment->setting->progress == PL_PROGRESS_MANUAL;
}

bool atomics_one_sided(const struct scenario_environment *environment)
{
	const struct setting *setting = environment->setting;

	return setting->one_sided && (buffers_allocated || strcmp(setting->fabric, "local"));
}

void drive(struct scenario_environment *environment, struct pl_context *context)
{
	for (unsigned i = 0; i < ENVIRONMENT_CONTEXTS; i++) {
		if (!environment->driven[i]) {
			environment->driven[i] = context;
			return;
		}
	}
	check(!"too many contexts");
}

void drive_no_more(struct scenario_environment *environment, struct pl_context *context)
{
	for (unsigned i = 0; i < ENVIRONMENT_CONTEXTS; i++) {
		if (environment->driven[i] == context)
			environment->driven[i] = NULL;
	}
}

void progress(struct scenario_environment *environment)
{
	if (!environment_manual(environment)) {
		sched_yield();
		return;
	}
	for (unsigned i = 0; i < ENVIRONMENT_CONTEXTS; i++) {
		if (environment->driven[i])
			check_number(pl_poll(environment->driven[i], NULL, 0), 0);
	}
}

struct pl_peer_info peer_information_of(struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(peer, &info), 0);
	return info;
}

void settle(struct scenario_environment *environment, unsigned milliseconds)
{
	uint64_t end = clock_now() + milliseconds * MS;

	if (!environment_manual(environment)) {
		sleep_ms(milliseconds);
		return;
	}
	while (clock_now() < end)
		progress(environment);
}

void await_lanes(struct scenario_environment *environment, unsigned lanes)
{
	progress_until(environment, peer_information_of(environment->near_peer).lanes == lanes &&
					    peer_information_of(environment->far_peer).lanes == lanes);
}

int await(struct scenario_environment *environment, struct pl_operation *operation, struct pl_completion *receipt,
	  struct pl_error *error)
{
	int status;

	if (!environment_manual(environment))
		return pl_wait(operation, UINT64_MAX, receipt, error);
	while ((status = pl_test(operation, receipt, error)) == -EINPROGRESS)
		progress(environment);
	return status;
}

void complete_at(const char *file, int line, struct scenario_environment *environment, struct pl_operation *operation,
		 struct pl_completion *receipt)
{
	struct pl_error error;
	struct pl_completion unused;

	if (!receipt)
		receipt = &unused;
	check_status_at(file, line, "the operation", await(environment, operation, receipt, &error), 0, &error);
	if (receipt->status)
		check_failed(file, line, "the receipt's status is %d", receipt->status);
}

void fail_with_at(const char *file, int line, struct scenario_environment *environment, struct pl_operation *operation,
		  int status)
{
	struct pl_error error;
	struct pl_completion receipt;

	check_status_at(file, line, "the operation", await(environment, operation, &receipt, &error), status, &error);
	if (receipt.status != status)
		check_failed(file, line, "the receipt's status is %d, not %d", receipt.status, status);
}

void collect(struct scenario_environment *environment, struct pl_context *context, struct pl_completion *completions,
	     int n)
{
	while (n) {
		int got = pl_poll(context, completions, n);

		check(got >= 0 && got <= n);
		completions += got;
		n -= got;
		if (!got)
			progress(environment);
	}
}

static void *pump_run(void *argument)
{
	struct pump *pump = argument;
	struct pollfd poll_fd = { pl_fd(pump->context), POLLIN, 0 };

	check(poll_fd.fd >= 0);
	while (!atomic_load(&pump->stop)) {
		pl_poll(pump->context, NULL, 0);
		poll(&poll_fd, 1, 1);
	}
	return NULL;
}

void pump_start(struct scenario_environment *environment, struct pump *pump, struct pl_context *context)
{
	*pump = (struct pump){ .context = context, .running = environment_manual(environment) };
	if (pump->running)
		check_number(pthread_create(&pump->thread, NULL, pump_run, pump), 0);
}

void pump_stop(struct pump *pump)
{
	atomic_store(&pump->stop, true);
	if (pump->running)
		pthread_join(pump->thread, NULL);
}

int import_status(struct scenario_environment *environment, struct pl_peer *importer, const void *token, size_t length)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	int status = pl_remote_import_start(importer, token, length, 5, &operation, &error);

	if (status) {
		check_status(status, status, &error);
		return status;
	}
	status = await(environment, operation, &receipt, &error);
	if (status)
		check_status(status, status, &error);
	else
		pl_remote_release(receipt.remote);
	return status;
}

struct pl_remote *import_token(struct scenario_environment *environment, struct pl_peer *importer, const void *token,
			       size_t length)
{
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_remote_import_start(importer, token, length, 77, &operation, &error), &error);
	complete(environment, operation, &receipt);
	check_number(receipt.kind, PL_KIND_IMPORT);
	check_number(receipt.user_data, 77);
	check(receipt.remote);
	check(receipt.peer == importer);
	return receipt.remote;
}

struct pl_remote *share(struct scenario_environment *environment, struct pl_region *region, struct pl_peer *importer,
			const struct pl_grant_options *options)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(region, options, token, &length, &error), &error);
	check(length > 0 && length <= PL_TOKEN_MAX);
	return import_token(environment, importer, token, length);
}

void receipt_check_at(const char *file, int line, const struct scenario_environment *environment,
		      const struct pl_completion *receipt, enum pl_kind kind, uint64_t bytes)
{
	uint64_t now = clock_now();

	if (receipt->kind != kind || receipt->status)
		check_failed(file, line, "receipt: kind %d status %d, not kind %d", receipt->kind, receipt->status,
			     kind);
	if (receipt->bytes != bytes || (receipt->bytes - receipt->bytes_staged) + receipt->bytes_staged != bytes)
		check_failed(file, line, "receipt: %llu bytes, %llu direct, %llu staged, not %llu",
			     (unsigned long long)receipt->bytes,
			     (unsigned long long)(receipt->bytes - receipt->bytes_staged),
			     (unsigned long long)receipt->bytes_staged, (unsigned long long)bytes);
	if (!receipt->fabric || strcmp(receipt->fabric, environment->setting->fabric) || !receipt->reason)
		check_failed(file, line, "receipt: fabric %s, reason %s", receipt->fabric ? receipt->fabric : "(null)",
			     receipt->reason ? receipt->reason : "(null)");
	if (bytes ? receipt->route == PL_ROUTE_NONE || !receipt->lanes : receipt->route != PL_ROUTE_NONE)
		check_failed(file, line, "receipt: route %d with %u lanes for %llu bytes", receipt->route,
			     receipt->lanes, (unsigned long long)bytes);
	if (receipt->peer != environment->near_peer && receipt->peer != environment->far_peer)
		check_failed(file, line, "receipt: another peer");
	if (!receipt->posted || receipt->posted > receipt->completed || receipt->completed > now)
		check_failed(file, line, "receipt: posted at %llu, completed at %llu, now %llu",
			     (unsigned long long)receipt->posted, (unsigned long long)receipt->completed,
			     (unsigned long long)now);
}
