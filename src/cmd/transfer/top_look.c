/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "cmd/transfer/top.h"

/* Most clients that a server may list. */
#define ROWS_MAX (1u << 20)

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
	struct service_message request = { .type = SERVICE_WATCH }, answer;
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
			look->clients = answer.done;
		}
		while (rc == 0 && service_client_next(&answer, &offset, &row))
			rc = add_row(session, look, &row, error);
		if (rc < 0)
			return rc;
		if (answer.more && look->count == before)
			return fail_look(session, "the server announced more clients and sent none", error);
		if (answer.more)
			request.offset = look->rows[look->count - 1].number;
	} while (answer.more);
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
	/* Another server at the same address counts anew. */
	return now > before && span ? (double)(now - before) * CLI_NS_PER_S / (double)span : 0;
}

static const struct service_client *find_row(const struct top_look *look, uint64_t number)
{
	for (size_t i = 0; i < look->count; i++)
		if (look->rows[i].number == number)
			return &look->rows[i];
	return NULL;
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
	return (struct top_rates){ rate_of(earlier->read, row->read, span),
				   rate_of(earlier->written, row->written, span),
				   rate_of(earlier->requests, row->requests, span) };
}

struct top_rates top_rates_of_all(const struct top_look *before, const struct top_look *now)
{
	uint64_t span = now->time - before->time;

	return (struct top_rates){ rate_of(before->read, now->read, span), rate_of(before->written, now->written, span),
				   0 };
}

struct sorted_row {
	double rate;
	struct service_client row;
};

static int compare_rows(const void *left, const void *right)
{
	const struct sorted_row *a = left, *b = right;

	if (a->rate != b->rate)
		return a->rate < b->rate ? 1 : -1;
	return a->row.number < b->row.number ? -1 : a->row.number > b->row.number;
}

void top_sort(const struct top_look *before, struct top_look *now)
{
	struct sorted_row *sorted = calloc(now->count + 1, sizeof(*sorted));

	/* Without memory they stay in the order of connecting. */
	for (size_t i = 0; sorted && i < now->count; i++) {
		struct top_rates rates = top_rates_of(before, now, &now->rows[i]);

		sorted[i] = (struct sorted_row){ rates.read + rates.write, now->rows[i] };
	}
	if (sorted)
		qsort(sorted, now->count, sizeof(*sorted), compare_rows);
	for (size_t i = 0; sorted && i < now->count; i++)
		now->rows[i] = sorted[i].row;
	free(sorted);
}
