/* SPDX-License-Identifier: BSD-2-Clause */
/* Grants and tokens: rights, ranges, expiry, damaged and foreign tokens. */
#include <time.h>

#include "scenarios/scenario.h"

struct token {
	uint8_t bytes[PL_TOKEN_MAX];
	size_t length;
};

static struct token make_token(struct pl_region *region, const struct pl_grant_options *options)
{
	struct token token = { .length = PL_TOKEN_MAX };
	struct pl_error error;

	check_ok(pl_region_share(region, options, token.bytes, &token.length, &error), &error);
	return token;
}

/* Returns the time in nanoseconds since 1970. */
static uint64_t wall_now(void)
{
	struct timespec wall;

	clock_gettime(CLOCK_REALTIME, &wall);
	return (uint64_t)wall.tv_sec * SECOND + (uint64_t)wall.tv_nsec;
}

/* Writes or reads one byte and returns the status of the call or, if 0, of the completion. */
static int transfer_one_byte(struct scenario_environment *environment, struct pl_remote *remote,
			     const struct buffer *local, bool write, struct pl_error *error)
{
	struct pl_operation *operation;
	int status = (write ? pl_write : pl_read)(environment->near_peer,
						  &(struct pl_transfer){ remote, 0, local->region, 0, 1 }, NULL,
						  &operation, error);

	return status ? status : await(environment, operation, NULL, error);
}

static void rights(struct scenario_environment *environment)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer near, far;

	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	bytes_set(near.bytes, 1, 64);
	bytes_set(far.bytes, 2, 64);
	for (unsigned allowed = 1; allowed <= PL_ACCESS_ALL; allowed++) {
		struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
		struct pl_remote *remote;

		options.rights = allowed;
		remote = share(environment, far.region, environment->near_peer, &options);
		check_number(pl_remote_rights(remote), allowed);
		check_number(pl_remote_length(remote), 64);
		if (!(allowed & PL_ACCESS_WRITE))
			check_status(pl_write(environment->near_peer,
					      &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, NULL, &operation,
					      &error),
				     -EACCES, &error);
		if (!(allowed & PL_ACCESS_READ))
			check_status(pl_read(environment->near_peer,
					     &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, NULL, &operation,
					     &error),
				     -EACCES, &error);
		if (!(allowed & PL_ACCESS_ATOMIC))
			check_status(
				pl_fetch_add(environment->near_peer,
					     &(struct pl_atomic){ .remote = remote, .remote_offset = 0, .operand = 1 },
					     NULL, &operation, &error),
				-EACCES, &error);
		if (allowed & PL_ACCESS_WRITE)
			check_ok(transfer_one_byte(environment, remote, &near, true, &error), &error);
		if (allowed & PL_ACCESS_READ)
			check_ok(transfer_one_byte(environment, remote, &near, false, &error), &error);
		pl_remote_release(remote);
	}
	value_check(far.bytes + 1, 63, 2);
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that a grant cannot exceed the access of its region. */
static void rights_of_region(struct scenario_environment *environment)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_token_info info;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer far;
	struct token token = { .length = PL_TOKEN_MAX };

	buffer_open(&far, environment->far, 64, PL_ACCESS_READ);
	options.rights = PL_ACCESS_WRITE;
	check_status(pl_region_share(far.region, &options, token.bytes, &token.length, &error), -EACCES, &error);
	options.rights = PL_ACCESS_READ | PL_ACCESS_ATOMIC;
	token.length = PL_TOKEN_MAX;
	check_status(pl_region_share(far.region, &options, token.bytes, &token.length, &error), -EACCES, &error);
	token = make_token(far.region, NULL);
	check_ok(pl_token_inspect(token.bytes, token.length, &info, &error), &error);
	check_number(info.rights, PL_ACCESS_READ);
	check_number(info.region_length, 64);
	check_number(info.expires, 0);
	remote = import_token(environment, environment->near_peer, token.bytes, token.length);
	check_number(pl_remote_rights(remote), PL_ACCESS_READ);
	pl_remote_release(remote);
	/* A buffer of the size of the first token is large enough; a byte less is too little. */
	check_ok(pl_region_share(far.region, NULL, token.bytes, &token.length, &error), &error);
	token.length--;
	check_status(pl_region_share(far.region, NULL, token.bytes, &token.length, &error), -ENOBUFS, &error);
	buffer_close(&far);
}

static void ranges(struct scenario_environment *environment)
{
	static const struct {
		uint64_t remote, local, length;
		int status;
	} cases[] = {
		{ 0, 0, 101, -ERANGE },
		{ 100, 0, 1, -ERANGE },
		{ 101, 0, 0, -ERANGE },
		{ 1, 0, 100, -ERANGE },
		{ UINT64_MAX, 0, 2, -ERANGE },
		{ 0, 200, 1, -ERANGE },
		{ 0, 101, 100, -ERANGE },
		{ 0, UINT64_MAX, 1, -ERANGE },
		{ 0, 201, 0, -ERANGE },
		{ 0, 0, UINT64_MAX, -ERANGE },
		{ 50, 50, UINT64_MAX - 49, -ERANGE },
		{ 0, 0, 100, 0 },
		{ 99, 199, 1, 0 },
		{ 100, 200, 0, 0 },
	};
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer near, far;

	buffer_open(&near, environment->near, 200, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, 200, PL_ACCESS_ALL);
	pattern_fill(near.bytes, 200, 1, 0);
	options.offset = 50;
	options.length = 100;
	remote = share(environment, far.region, environment->near_peer, &options);
	check_number(pl_remote_length(remote), 100);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int write = 0; write < 2; write++) {
			int status = (write ? pl_write
					    : pl_read)(environment->near_peer,
						       &(struct pl_transfer){ remote, cases[i].remote, near.region,
									      cases[i].local, cases[i].length },
						       NULL, &operation, &error);
			check_status(status, cases[i].status, &error);
			if (!status)
				complete(environment, operation, NULL);
		}
	}
	pattern_fill(near.bytes, 200, 1, 0);
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 100 }, NULL,
			  &operation, &error),
		 &error);
	complete(environment, operation, NULL);
	value_check(far.bytes, 50, POISON);
	pattern_check(far.bytes + 50, 100, 1, 0);
	value_check(far.bytes + 150, 50, POISON);
	check_status(pl_send(environment->near_peer, 1, &(struct pl_buffer){ near.region, 1, 200 }, NULL, &operation,
			     &error),
		     -ERANGE, &error);
	check_status(pl_receive(environment->near_peer, 1, 0, &(struct pl_buffer){ near.region, 201, 0 }, NULL,
				&operation, &error),
		     -ERANGE, &error);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

static void ranges_of_grants(struct scenario_environment *environment)
{
	static const struct {
		size_t offset, length;
		int status;
		uint64_t covers;
	} cases[] = {
		{ 0, 0, 0, 200 },
		{ 199, 0, 0, 1 },
		{ 10, 190, 0, 190 },
		{ 10, 191, -ERANGE, 0 },
		{ 200, 0, -ERANGE, 0 },
		{ 201, 0, -ERANGE, 0 },
		{ 0, 201, -ERANGE, 0 },
		{ SIZE_MAX, 1, -ERANGE, 0 },
		{ 1, SIZE_MAX, -ERANGE, 0 },
	};
	struct pl_error error;
	struct buffer far;

	buffer_open(&far, environment->far, 200, PL_ACCESS_ALL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
		struct token token = { .length = PL_TOKEN_MAX };
		struct pl_token_info info;

		options.offset = cases[i].offset;
		options.length = cases[i].length;
		check_status(pl_region_share(far.region, &options, token.bytes, &token.length, &error), cases[i].status,
			     &error);
		if (cases[i].status)
			continue;
		check_ok(pl_token_inspect(token.bytes, token.length, &info, &error), &error);
		check_number(info.region_length, cases[i].covers);
	}
	buffer_close(&far);
}

/*
 * Shares and imports with at least this lifetime.  Doubles the lifetime while a slow machine lets the grant expire before
 * use.
 */
static struct pl_remote *import_living(struct scenario_environment *environment, const struct buffer *near,
				       const struct buffer *far, struct token *token, uint64_t *lifetime)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct pl_operation *operation;
	struct pl_token_info info;
	struct pl_completion receipt;
	struct pl_error error;
	uint64_t before;
	int status;

	for (;; *lifetime *= 2) {
		options.lifetime = *lifetime;
		before = wall_now();
		*token = make_token(far->region, &options);
		check_ok(pl_token_inspect(token->bytes, token->length, &info, &error), &error);
		check(info.expires > before && info.expires <= wall_now() + *lifetime);
		check_ok(pl_remote_import_start(environment->near_peer, token->bytes, token->length, 0, &operation,
						&error),
			 &error);
		status = await(environment, operation, &receipt, &error);
		if (status == 0) {
			status = transfer_one_byte(environment, receipt.remote, near, true, &error);
			if (status == 0)
				return receipt.remote;
			pl_remote_release(receipt.remote);
		}
		check_status(status, -EACCES, &error);
		check(wall_now() >= info.expires);
	}
}

/* Checks the end of a grant.  Returns false if the grant was usable for more than half its lifetime after the expiry. */
static bool expires_soon(struct scenario_environment *environment, const struct buffer *near, const struct buffer *far,
			 uint64_t *lifetime)
{
	struct pl_remote *remote;
	struct pl_error error;
	struct token token;
	uint64_t imported;
	bool soon;

	bytes_set(near->bytes, 3, 64);
	remote = import_living(environment, near, far, &token, lifetime);
	imported = clock_now();
	value_check(far->bytes, 1, 3);
	settle(environment, (unsigned)(*lifetime / MS) + 25);
	/* The owner's engine may run its timer late. */
	progress_until(environment, transfer_one_byte(environment, remote, near, true, &error) < 0);
	soon = clock_now() - imported <= *lifetime + *lifetime / 2;
	bytes_set(far->bytes, 4, 64);
	check_status(transfer_one_byte(environment, remote, near, true, &error), -EACCES, &error);
	check_status(transfer_one_byte(environment, remote, near, false, &error), -EACCES, &error);
	value_check(far->bytes, 64, 4);
	check_number(import_status(environment, environment->near_peer, token.bytes, token.length), -EACCES);
	pl_remote_release(remote);
	return soon;
}

static void expiry(struct scenario_environment *environment)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	uint64_t lifetime = 400 * MS;
	struct buffer near, far;
	struct token token;
	unsigned tries = 5;

	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	while (!expires_soon(environment, &near, &far, &lifetime)) {
		check(--tries);
		/* The owner looks at the clock each second: a longer life would hide a timer that is late. */
		lifetime = lifetime < 3 * SECOND ? lifetime * 2 : lifetime;
	}
	/* The grant expires before the import, after 1 ms. */
	options.lifetime = 1 * MS;
	token = make_token(far.region, &options);
	settle(environment, 50);
	check_number(import_status(environment, environment->near_peer, token.bytes, token.length), -EACCES);
	buffer_close(&near);
	buffer_close(&far);
}

static void damaged_tokens(struct scenario_environment *environment)
{
	struct pl_token_info info;
	struct pl_error error;
	struct pl_operation *operation;
	struct token token, bad;
	struct buffer far;

	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	token = make_token(far.region, NULL);
	for (size_t bit = 0; bit < token.length * 8; bit++) {
		bad = token;
		bad.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		check_status(pl_token_inspect(bad.bytes, bad.length, &info, &error), -EINVAL, &error);
		if (bit % 61 == 0)
			check_number(import_status(environment, environment->near_peer, bad.bytes, bad.length),
				     -EINVAL);
		if (bit % 61 == 0)
			check_number(pl_region_revoke(far.region, bad.bytes, bad.length), -EINVAL);
	}
	for (size_t length = 0; length < token.length; length++)
		check_status(pl_token_inspect(token.bytes, length, &info, &error), -EINVAL, &error);
	check_status(pl_token_inspect(token.bytes, token.length + 1, &info, &error), -EINVAL, &error);
	check_status(
		pl_remote_import_start(environment->near_peer, token.bytes, token.length - 1, 0, &operation, &error),
		-EINVAL, &error);
	buffer_close(&far);
}

/* Presents valid tokens to a context that did not make them. */
static void foreign_tokens(struct scenario_environment *environment)
{
	struct pl_context *third = context_open(environment->setting);
	struct buffer own, thirds;
	struct token token;

	buffer_open(&own, environment->near, 64, PL_ACCESS_ALL);
	buffer_open(&thirds, third, 64, PL_ACCESS_ALL);
	token = make_token(own.region, NULL);
	check_number(import_status(environment, environment->near_peer, token.bytes, token.length), -EACCES);
	token = make_token(thirds.region, NULL);
	check_number(import_status(environment, environment->near_peer, token.bytes, token.length), -EACCES);
	check_number(import_status(environment, environment->far_peer, token.bytes, token.length), -EACCES);
	buffer_close(&own);
	buffer_close(&thirds);
	pl_close(third);
}

static void share_and_import_twice(struct scenario_environment *environment)
{
	enum { SIZE = 4 << 20 };
	struct pl_remote *first, *again, *second;
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer near, far;
	struct token one, two;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	pattern_fill(near.bytes, SIZE, 2, 0);
	one = make_token(far.region, NULL);
	two = make_token(far.region, NULL);
	check(one.length != two.length || memcmp(one.bytes, two.bytes, one.length));
	first = import_token(environment, environment->near_peer, one.bytes, one.length);
	again = import_token(environment, environment->near_peer, one.bytes, one.length);
	second = import_token(environment, environment->near_peer, two.bytes, two.length);
	check(first != again);
	/* An operation continues after the release of its remote region. */
	check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ first, 0, near.region, 0, SIZE }, NULL,
			  &operation, &error),
		 &error);
	pl_remote_release(first);
	complete(environment, operation, NULL);
	pattern_check(far.bytes, SIZE, 2, 0);
	check_ok(transfer_one_byte(environment, again, &near, true, &error), &error);
	check_number(pl_region_revoke(far.region, one.bytes, one.length), 0);
	check_status(transfer_one_byte(environment, again, &near, true, &error), -EACCES, &error);
	check_ok(transfer_one_byte(environment, second, &near, true, &error), &error);
	pl_remote_release(again);
	pl_remote_release(second);
	pl_remote_release(NULL);
	buffer_close(&near);
	buffer_close(&far);
}

const struct scenario grant_scenarios[] = {
	{ "rights", rights, SCENARIO_SETTING },
	{ "rights-of-region", rights_of_region, SCENARIO_SETTING },
	{ "ranges", ranges, SCENARIO_SETTING },
	{ "ranges-of-grants", ranges_of_grants, SCENARIO_SETTING },
	{ "expiry", expiry, SCENARIO_SETTING },
	{ "damaged-tokens", damaged_tokens, SCENARIO_SETTING },
	{ "foreign-tokens", foreign_tokens, SCENARIO_SETTING },
	{ "share-and-import-twice", share_and_import_twice, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
