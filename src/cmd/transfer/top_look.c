/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "cmd/transfer/top.h"

/* Most clients that a server may list. */
#define ROWS_MAX 65536u
#define RATE_MAX 1e18

static int fail_look(const struct session *session, const char *fact, struct pl_error *error)
{
	return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address, NULL, "%s", fact);
}

static int add_row(const struct session *session, struct top_look *look, const struct service_client *row,
		   struct pl_error *error)
{
	/* A server that repeats clients does not end here otherwise. */
	if (look->count && row->number >= look->rows[look->count - 1].number)
		return fail_look(session, "the server listed clients that are not in order", error);
	if (look->count == ROWS_MAX)
		return fail_look(session, "the server lists more clients than this command takes", error);
	if (look->count == look->room) {
		size_t room = look->room ? look->room * 2 : 16;
		struct service_client *rows = realloc(look->rows, room * sizeof(*rows));

		if (!rows)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		look->rows = rows;
		look->room = room;
	}
	look->rows[look->count++] = *row;
	return 0;
}

int top_look(struct session *session, struct top_look *look, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_WATCH, .offset = SERVICE_WATCH_ROUTES | SERVICE_WATCH_SUMS },
			       answer;
	struct service_client row;
	int rc;

	look->count = 0;
	do {
		size_t offset = 0, before = look->count;

		rc = session_call(session, &request, &answer, error);
		if (rc == 0 && before == 0) {
			look->time = cli_now();
			look->read = answer.size;
			look->written = answer.length;
			look->routes = answer.more & SERVICE_MORE_SUMS;
			look->direct = answer.direct;
			look->staged = answer.staged;
			look->clients = answer.done;
		}
		while (rc == 0 && service_client_next(&answer, &offset, &row))
			rc = add_row(session, look, &row, error);
		if (rc < 0)
			return rc;
		if (answer.more & SERVICE_MORE && look->count == before)
			return fail_look(session, "the server announced more clients and sent none", error);
		/* A server of an earlier version tells no routes or no sums, and would take the flag for a number. */
		if (answer.more & SERVICE_MORE)
			request.offset = look->rows[look->count - 1].number |
					 (answer.more & SERVICE_MORE_ROUTES ? SERVICE_WATCH_ROUTES : 0) |
					 (answer.more & SERVICE_MORE_SUMS ? SERVICE_WATCH_SUMS : 0);
	} while (answer.more & SERVICE_MORE);
	return 0;
}

void top_look_free(struct top_look *look)
{
	free(look->rows);
	*look = (struct top_look){ 0 };
}

/* -- rates ---------------------------------------------------------------------------------------------- */

static double rate_of(uint64_t before, uint64_t now, uint64_t span)
{
	/* Another server at the same address counts anew. No honest server has as much as RATE_MAX. */
	double rate = now > before && span ? (double)(now - before) * CLI_NS_PER_S / (double)span : 0;

	return CLI_MIN(rate, RATE_MAX);
}

/* The numbers of the rows descend. */
static int compare_numbers(const void *key, const void *element)
{
	const uint64_t *number = key;
	const struct service_client *row = element;

	return row->number > *number ? 1 : row->number < *number ? -1 : 0;
}

static const struct service_client *find_row(const struct top_look *look, uint64_t number)
{
	return look->count ? bsearch(&number, look->rows, look->count, sizeof(*look->rows), compare_numbers) : NULL;
}

struct top_rates top_rates_of(const struct top_look *before, const struct top_look *now,
			      const struct service_client *row)
{
	static const struct service_client none;
	const struct service_client *earlier = find_row(before, row->number);
	uint64_t span = now->time - before->time;

	if (!earlier) {
		earlier = &none;
		span = CLI_MIN(span, row->connected);
	}
	return (struct top_rates){ .read = rate_of(earlier->read, row->read, span),
				   .write = rate_of(earlier->written, row->written, span),
				   .direct = rate_of(earlier->direct, row->direct, span),
				   .staged = rate_of(earlier->staged, row->staged, span),
				   .requests = rate_of(earlier->requests, row->requests, span) };
}

struct top_rates top_rates_of_all(const struct top_look *before, const struct top_look *now)
{
	uint64_t span = now->time - before->time;

	return (struct top_rates){ .read = rate_of(before->read, now->read, span),
				   .write = rate_of(before->written, now->written, span),
				   .direct = rate_of(before->direct, now->direct, span),
				   .staged = rate_of(before->staged, now->staged, span) };
}

static int compare_rows(const void *left, const void *right)
{
	const struct top_row *a = left, *b = right;
	double rate_a = a->rates.read + a->rates.write, rate_b = b->rates.read + b->rates.write;

	if (rate_a != rate_b)
		return rate_a < rate_b ? 1 : -1;
	return a->client->number < b->client->number ? -1 : a->client->number > b->client->number;
}

struct top_row *top_sort(const struct top_look *before, const struct top_look *now)
{
	struct top_row *rows = calloc(now->count + 1, sizeof(*rows));

	if (!rows)
		return NULL;
	for (size_t i = 0; i < now->count; i++)
		rows[i] = (struct top_row){ &now->rows[i], top_rates_of(before, now, &now->rows[i]) };
	qsort(rows, now->count, sizeof(*rows), compare_rows);
	return rows;
}
