/* SPDX-License-Identifier: BSD-2-Clause */
/* Text of the metrics of `peerlane serve`: identifiers of errors as labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/transfer/metrics.h"

#define IDS (METRICS_IDS_MAX + 3)

static struct metrics metrics;
static struct server server;

static int open_server(void **state)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)state;
	memset(&metrics, 0, sizeof(metrics));
	memset(&server, 0, sizeof(server));
	metrics_init(&metrics);
	return pl_open(&server.context, &options, NULL);
}

static int close_server(void **state)
{
	(void)state;
	pl_close(server.context);
	metrics_close(&metrics);
	return 0;
}

static void refuse_connection(const char *id)
{
	struct pl_error error = { .code = -EACCES };

	snprintf(error.id, sizeof(error.id), "%s", id);
	metrics_count_refused_connection(&metrics, &error);
}

static void assert_has_line(const char *text, const char *line)
{
	const char *at = strstr(text, line);

	if (!at || at[strlen(line)] != '\n')
		fail_msg("no line '%s' in:\n%s", line, text);
}

static void test_labels_are_bounded(void **state)
{
	char id[24], line[80], *text;
	size_t lines = 0;

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < IDS; i++) {
			snprintf(id, sizeof(id), "ERROR-%d", i);
			refuse_connection(id);
		}
	}
	text = metrics_text(&metrics, &server);
	assert_non_null(text);
	for (const char *at = text; (at = strstr(at, "\npeerlane_refused_connections_total{")); at++)
		lines++;
	assert_int_equal(lines, METRICS_IDS_MAX + 1);
	snprintf(line, sizeof(line), "peerlane_refused_connections_total{id=\"ERROR-%d\"} 2", METRICS_IDS_MAX - 1);
	assert_has_line(text, line);
	assert_has_line(text, "peerlane_refused_connections_total{id=\"other\"} 6");
	free(text);
}

static void test_labels_are_escaped(void **state)
{
	char *text;

	(void)state;
	refuse_connection("a\"b\\c\nd\xff");
	text = metrics_text(&metrics, &server);
	assert_non_null(text);
	assert_has_line(text, "peerlane_refused_connections_total{id=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\"} 1");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_labels_are_bounded, open_server, close_server),
		cmocka_unit_test_setup_teardown(test_labels_are_escaped, open_server, close_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
