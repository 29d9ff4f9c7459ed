/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments: accepted values, refused values, and structures of other versions. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "scenarios/scenario.h"

static void check_options_refused(const struct pl_options *options, int status)
{
	struct pl_context *context = NULL;
	struct pl_error error;

	check_status(pl_open(&context, options, &error), status, &error);
	check(!context);
}

static void context_options(struct scenario_environment *environment)
{
	struct pl_options good = setting_options(environment->setting), options;
	struct pl_context *context;
	struct pl_error error;
	uint8_t key[1025] = { 1 };

	options = good, options.workers = 65, check_options_refused(&options, -EINVAL);
	options = good, options.lanes = 17, check_options_refused(&options, -EINVAL);
	options = good, options.rails = 9, check_options_refused(&options, -EINVAL);
	options = good, options.service_level = 16, check_options_refused(&options, -EINVAL);
	options = good, options.gid_index = PL_GID_INDEX(256), check_options_refused(&options, -EINVAL);
	options = good, options.pkey = 0x10000, check_options_refused(&options, -EINVAL);
	options = good, options.pkey = 0x8000, check_options_refused(&options, -EINVAL);
	options = good, options.ack_timeout = 32, check_options_refused(&options, -EINVAL);
	options = good, options.retries = 8, check_options_refused(&options, -EINVAL);
	options = good, options.rnr_timer = 32, check_options_refused(&options, -EINVAL);
	options = good, options.progress = 7, check_options_refused(&options, -EINVAL);
	options = good, options.key = key, options.key_length = 15, check_options_refused(&options, -EINVAL);
	options = good, options.key = key, options.key_length = 1025, check_options_refused(&options, -EINVAL);
	options = good, options.key = NULL, options.key_length = 0, options.encrypt_data = true;
	check_options_refused(&options, -EINVAL);
	options = good, options.fabric = "carrier pigeon", check_options_refused(&options, -ENOTSUP);
	options = good, options.fabric = "", check_options_refused(&options, -ENOTSUP);
	options = good, options.key = key, options.key_length = 16, options.workers = 64, options.lanes = 16;
	pl_close(context_open_with(&options));
	options = good, options.key = key, options.key_length = 1024, options.workers = options.lanes = 1;
	pl_close(context_open_with(&options));
	options = good, options.routes = "/nonexistent", check_options_refused(&options, -EINVAL);
	options = good, options.routes = "";
	pl_close(context_open_with(&options));
	options = good, options.fabric = "auto";
	pl_close(context_open_with(&options));
	check_ok(pl_open(&context, NULL, &error), &error);
	pl_close(context);
	/* NULL is allowed for `error`. */
	check_number(pl_open(&context, &(struct pl_options){ .size = 1 }, NULL), -EINVAL);
}

/* Counts the TCP connections of this process that have this traffic class. */
static size_t count_marked(int class)
{
	size_t count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_storage address;
		socklen_t length = sizeof(address), size = sizeof(int);
		int four = 0, six = 0;

		if (getpeername(fd, (struct sockaddr *)&address, &length) < 0 || address.ss_family == AF_UNIX)
			continue;
		getsockopt(fd, IPPROTO_IP, IP_TOS, &four, &size);
		size = sizeof(six);
		getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &six, &size);
		count += (address.ss_family == AF_INET6 ? six : four) == class;
	}
	return count;
}

/* Checks that both ends of a connection are marked, and no other socket. */
static void traffic_class(struct scenario_environment *environment)
{
	struct pl_options options = setting_options(environment->setting);
	struct pl_context *near, *far;
	struct pl_peer *near_peer, *far_peer;
	struct pl_listener *listener;
	char address[96];

	options.traffic_class = 256, check_options_refused(&options, -EINVAL);
	options.traffic_class = 0;
	options.poll_time = SECOND + 1, check_options_refused(&options, -EINVAL);
	options.poll_time = PL_NO_POLLING;
	check_number(count_marked(104), 0);
	options.traffic_class = 104;
	near = context_open_with(&options);
	far = context_open_with(&options);
	drive(environment, near);
	drive(environment, far);
	listener = listener_open(environment->setting, far, address);
	connect_pair(environment, near, listener, &near_peer, &far_peer);
	check(count_marked(104) >= 2);
	drive_no_more(environment, near);
	drive_no_more(environment, far);
	pl_close(near);
	pl_close(far);
	check_number(count_marked(104), 0);
}

/* Options structure of a later header. */
struct later_options {
	struct pl_options known;
	uint64_t unknown[4];
};

static void sizes_of_structures(struct scenario_environment *environment)
{
	struct later_options later = { setting_options(environment->setting), { 0 } };
	struct {
		struct pl_attributes known;
		uint64_t unknown;
	} attributes = { PL_ATTRIBUTES_INIT, 0 };
	struct {
		struct pl_grant_options known;
		uint64_t unknown;
	} grant = { PL_GRANT_OPTIONS_INIT, 0 };
	struct pl_options earlier = setting_options(environment->setting);
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer near;

	earlier.size = offsetof(struct pl_options, keepalive);
	earlier.keepalive = UINT64_MAX;
	earlier.allocator = (const struct pl_allocator *)1;
	pl_close(context_open_with(&earlier));
	earlier.size = 0;
	check_options_refused(&earlier, -EINVAL);
	later.known.size = sizeof(later);
	pl_close(context_open_with(&later.known));
	later.unknown[3] = 1;
	check_options_refused(&later.known, -EINVAL);

	buffer_open(&near, environment->near, 64, PL_ACCESS_ALL);
	attributes.known.size = sizeof(attributes);
	check_ok(pl_send_copy(environment->near_peer, 1, "x", 1, &attributes.known, &operation, &error), &error);
	complete(environment, operation, NULL);
	attributes.unknown = 1;
	check_status(pl_send_copy(environment->near_peer, 1, "x", 1, &attributes.known, &operation, &error), -EINVAL,
		     &error);
	attributes.known.size = offsetof(struct pl_attributes, user_data);
	check_ok(pl_send_copy(environment->near_peer, 1, "x", 1, &attributes.known, &operation, &error), &error);
	complete(environment, operation, NULL);
	attributes.known.size = 0;
	check_status(pl_send_copy(environment->near_peer, 1, "x", 1, &attributes.known, &operation, &error), -EINVAL,
		     &error);
	grant.known.size = sizeof(grant);
	check_ok(pl_region_share(near.region, &grant.known, token, &length, &error), &error);
	grant.unknown = 1;
	length = sizeof(token);
	check_status(pl_region_share(near.region, &grant.known, token, &length, &error), -EINVAL, &error);
	grant.known.size = offsetof(struct pl_grant_options, lifetime);
	check_ok(pl_region_share(near.region, &grant.known, token, &length, &error), &error);
	buffer_close(&near);
}

static void attributes(struct scenario_environment *environment)
{
	struct pl_attributes bad = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation = NULL;
	struct pl_error error;

	bad.flags = 1u << 31;
	check_status(pl_notify(environment->near_peer, 1, NULL, 0, &bad, &operation, &error), -EINVAL, &error);
	bad.flags = 0;
	bad.visible = 99;
	check_status(pl_notify(environment->near_peer, 1, NULL, 0, &bad, &operation, &error), -EINVAL, &error);
	bad.visible = PL_VISIBLE_PLACED;
	bad.timeout = UINT64_MAX;
	check_ok(pl_notify(environment->near_peer, 1, NULL, 0, &bad, &operation, &error), &error);
	complete(environment, operation, NULL);
}

/*
 * Checks that an allocation above the file size limit (RLIMIT_FSIZE) fails.  A write above the limit would raise
 * SIGXFSZ.
 */
static void allocate_beyond_limit(struct pl_context *context)
{
	struct rlimit before, low;
	struct pl_region *region = NULL;
	struct pl_error error;

	check_number(getrlimit(RLIMIT_FSIZE, &before), 0);
	low = (struct rlimit){ 1 << 20, before.rlim_max };
	check_number(setrlimit(RLIMIT_FSIZE, &low), 0);
	check_status(pl_region_allocate(context, (1 << 20) + 1, PL_ACCESS_LOCAL, &region, &error), -ENOMEM, &error);
	check(!region);
	check_ok(pl_region_allocate(context, 1 << 20, PL_ACCESS_LOCAL, &region, &error), &error);
	check_number(pl_region_deregister(region), 0);
	check_number(setrlimit(RLIMIT_FSIZE, &before), 0);
}

static void regions(struct scenario_environment *environment)
{
	struct pl_region *region = NULL;
	struct pl_error error;
	uint8_t bytes[64] = { 0 };
	/* No other thread maps memory here meanwhile: ThreadSanitizer and dlopen() take addresses far above. */
	void *unmapped = mmap((void *)0x20000000, 1 << 20, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	check(unmapped != MAP_FAILED);
	munmap(unmapped, 1 << 20);
	check_status(pl_region_register(environment->near, NULL, 64, 0, &region, &error), -EINVAL, &error);
	check_status(pl_region_register(environment->near, bytes, 0, 0, &region, &error), -EINVAL, &error);
	check_status(pl_region_register(environment->near, bytes, SIZE_MAX, 0, &region, &error), -EINVAL, &error);
	check_status(pl_region_register(environment->near, bytes, 64, 16, &region, &error), -EINVAL, &error);
	check_status(pl_region_register(environment->near, unmapped, 1 << 20, 0, &region, &error), -EFAULT, &error);
	check_status(pl_region_allocate(environment->near, 0, 0, &region, &error), -EINVAL, &error);
	check_status(pl_region_allocate(environment->near, 64, 16, &region, &error), -EINVAL, &error);
	check_status(pl_region_allocate(environment->near, SIZE_MAX / 2, 0, &region, &error), -ENOMEM, &error);
	check(!region);
	allocate_beyond_limit(environment->near);
	check_ok(pl_region_register(environment->near, bytes, 64, PL_ACCESS_LOCAL, &region, &error), &error);
	check(pl_region_address(region) == bytes);
	check_number(pl_region_length(region), 64);
	check_text(pl_region_memory(region), "host");
	check_number(pl_region_deregister(region), 0);
}

static void destructors_accept_null(struct scenario_environment *environment)
{
	pl_close(NULL);
	pl_listener_close(NULL);
	pl_peer_close(NULL);
	pl_remote_release(NULL);
	check_number(pl_region_deregister(NULL), 0);
	check_number(pl_poll(environment->near, NULL, 0), 0);
	check(pl_version()[0]);
}

/* Checks that a peer refuses the handles of another context. */
static void mixed_handles(struct scenario_environment *environment)
{
	struct pl_operation *operation = NULL;
	struct pl_remote *remote, *other_remote;
	struct pl_peer *near, *far;
	struct pl_error error;
	struct buffer mine, theirs;

	buffer_open(&mine, environment->near, 64, PL_ACCESS_ALL);
	buffer_open(&theirs, environment->far, 64, PL_ACCESS_ALL);
	connect_pair(environment, environment->near, environment->listener, &near, &far);
	remote = share(environment, theirs.region, environment->near_peer, NULL);
	other_remote = share(environment, theirs.region, near, NULL);
	check_status(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, theirs.region, 0, 8 }, NULL,
			      &operation, &error),
		     -EINVAL, &error);
	check_status(pl_write(environment->near_peer, &(struct pl_transfer){ other_remote, 0, mine.region, 0, 8 }, NULL,
			      &operation, &error),
		     -EINVAL, &error);
	check_status(pl_send(environment->near_peer, 1, &(struct pl_buffer){ theirs.region, 0, 8 }, NULL, &operation,
			     &error),
		     -EINVAL, &error);
	check(!operation);
	pl_remote_release(remote);
	pl_remote_release(other_remote);
	pl_peer_close(near);
	pl_peer_close(far);
	buffer_close(&mine);
	buffer_close(&theirs);
}

static void count_busy(void *user, const struct pl_identity *identity, const struct pl_error *error)
{
	check_text(error->id, "PEER-BUSY");
	check(identity->connected_to_us && identity->address[0]);
	atomic_fetch_add((atomic_uint *)user, 1);
}

/* Refuses peers beyond peers_max by name at both ends, and accepts again once one is gone. */
static void peers_at_most(struct scenario_environment *environment)
{
	struct pl_options options = setting_options(environment->setting);
	struct pl_context *limited, *client = context_open(environment->setting);
	struct pl_peer *peers[3], *accepted[3];
	struct pl_listener *listener;
	struct pl_error error;
	char address[96];
	struct pump pump;
	atomic_uint busy = 0;

	options.peers_max = 2;
	options.refused = count_busy;
	options.refused_user = &busy;
	limited = context_open_with(&options);
	listener = listener_open(environment->setting, limited, address);
	drive(environment, limited);
	drive(environment, client);
	for (unsigned i = 0; i < 2; i++)
		connect_pair(environment, client, listener, &peers[i], &accepted[i]);
	pump_start(environment, &pump, limited);
	check_status(pl_connect(client, address, AMPLE_TIME, &peers[2], &error), -EBUSY, &error);
	check_text(error.id, "PEER-BUSY");
	check_number(atomic_load(&busy), 1);
	pump_stop(&pump);
	pl_peer_close(accepted[0]);
	pl_peer_close(peers[0]);
	connect_pair(environment, client, listener, &peers[2], &accepted[2]);
	drive_no_more(environment, limited);
	drive_no_more(environment, client);
	pl_close(client);
	pl_close(limited);
}

const struct scenario option_scenarios[] = {
	{ "context-options", context_options, SCENARIO_CONTROL },
	{ "traffic-class", traffic_class, SCENARIO_SETTING },
	{ "peers-at-most", peers_at_most, SCENARIO_SETTING },
	{ "sizes-of-structures", sizes_of_structures, SCENARIO_CONTROL },
	{ "attributes", attributes, SCENARIO_SETTING },
	{ "regions", regions, SCENARIO_SETTING },
	{ "destructors-accept-null", destructors_accept_null, SCENARIO_SETTING },
	{ "mixed-handles", mixed_handles, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
