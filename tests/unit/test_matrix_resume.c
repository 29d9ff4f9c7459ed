/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of `peerlane bench --mpi --resume`: damaged ones, and those of other ranks or options. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/matrix/matrix.h"
#include "cmd/common/output.h"

#define RANKS 3

static struct matrix_rank ranks[RANKS] = { { .host = "a", .memory = "host" },
					   { .host = "a", .memory = "cuda:0" },
					   { .host = "b", .memory = "host" } };
static const struct matrix_options options = { .size = 4096, .duration = 4000000 };

/* Makes a matrix without results. */
static struct matrix make_empty_matrix(void)
{
	struct matrix matrix = { .size = RANKS, .ranks = ranks };

	matrix.cells = calloc(RANKS * RANKS, sizeof(*matrix.cells));
	matrix.measured = calloc(RANKS * RANKS, 1);
	assert_true(matrix.cells && matrix.measured);
	for (int i = 0; i < RANKS * RANKS; i++)
		matrix.cells[i] = matrix_empty_cell();
	return matrix;
}

static void free_cells(struct matrix *matrix)
{
	free(matrix->cells);
	free(matrix->measured);
}

static void set_cell(struct matrix *matrix, int from, int to, double rate)
{
	struct matrix_cell *cell = matrix_cell(matrix, from, to);

	cell->bytes_per_second = rate;
	cell->latency_us = 2.5;
	snprintf(cell->reason, sizeof(cell->reason), "from %d", from);
}

/* Returns the document of a matrix in which the pair of 0 and 1 succeeded, and one direction of the pair of 0 and 2. */
static struct json_object *make_document(void)
{
	struct matrix matrix = make_empty_matrix();
	struct json_object *object;

	matrix.seconds = 7;
	set_cell(&matrix, 0, 1, 1e9);
	set_cell(&matrix, 1, 0, 2e9);
	set_cell(&matrix, 0, 2, 3e9);
	matrix_cell(&matrix, 2, 0)->failed = 1;
	object = matrix_document(&matrix, &options, false);
	assert_non_null(object);
	free_cells(&matrix);
	return object;
}

/* Resumes from a file with this text.  Returns the id of the error, "" without one. */
static const char *resume_text_with(struct matrix *matrix, const char *text, size_t length,
				    const struct matrix_options *with, struct pl_error *error)
{
	char path[] = "/tmp/peerlane-matrix-XXXXXX";
	struct matrix_options resumed = *with;
	int fd = mkstemp(path), rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, length), length);
	close(fd);
	resumed.resume = path;
	rc = matrix_resume(matrix, &resumed, error);
	unlink(path);
	return rc < 0 ? error->id : "";
}

static const char *resume_text(struct matrix *matrix, const char *text, size_t length, struct pl_error *error)
{
	return resume_text_with(matrix, text, length, &options, error);
}

static const char *resume_document_with(struct json_object *object, const struct matrix_options *with,
					struct pl_error *error)
{
	struct matrix matrix = make_empty_matrix();
	const char *text = json_object_to_json_string(object), *id;

	id = resume_text_with(&matrix, text, strlen(text), with, error);
	free_cells(&matrix);
	json_object_put(object);
	return id;
}

static const char *resume_document(struct json_object *object, struct pl_error *error)
{
	return resume_document_with(object, &options, error);
}

static void test_whole_pairs_are_kept(void **state)
{
	struct json_object *object = make_document();
	const char *text = cli_json_string(object, true);
	struct matrix matrix = make_empty_matrix();
	struct pl_error error;

	(void)state;
	assert_non_null(text);
	assert_string_equal(resume_text(&matrix, text, strlen(text), &error), "");
	assert_true(matrix.earlier_seconds == 7);
	assert_int_equal(matrix_count_pairs(&matrix), 1);
	for (int i = 0; i < RANKS * RANKS; i++)
		assert_int_equal(matrix.measured[i], i == 1 || i == RANKS);
	assert_true(matrix_cell(&matrix, 1, 0)->bytes_per_second == 2e9 &&
		    matrix_cell(&matrix, 0, 1)->latency_us == 2.5);
	assert_string_equal(matrix_cell(&matrix, 1, 0)->reason, "from 1");
	/* Both directions of a pair are measured again if one of them failed. */
	assert_true(isnan(matrix_cell(&matrix, 0, 2)->bytes_per_second) && !*matrix_cell(&matrix, 0, 2)->reason);
	free_cells(&matrix);
	json_object_put(object);
}

/* Rails of a pair of which one direction failed are measured again too. */
static void test_rails_of_whole_pairs_are_kept(void **state)
{
	struct matrix matrix = make_empty_matrix(), resumed = make_empty_matrix();
	size_t cells = 2 * RANKS * RANKS;
	struct json_object *object;
	struct pl_error error;
	const char *text;

	(void)state;
	matrix.rails = resumed.rails = 2;
	matrix.rail_cells = calloc(cells, sizeof(*matrix.rail_cells));
	resumed.rail_cells = calloc(cells, sizeof(*resumed.rail_cells));
	assert_true(matrix.rail_cells && resumed.rail_cells);
	for (size_t i = 0; i < cells; i++) {
		matrix.rail_cells[i] = (struct matrix_cell){ .bytes_per_second = 1e9, .latency_us = 2 };
		resumed.rail_cells[i] = matrix_empty_cell();
	}
	set_cell(&matrix, 0, 1, 1e9);
	set_cell(&matrix, 1, 0, 2e9);
	set_cell(&matrix, 0, 2, 3e9);
	object = matrix_document(&matrix, &options, false);
	text = cli_json_string(object, false);
	assert_string_equal(resume_text(&resumed, text, strlen(text), &error), "");
	for (int rail = 0; rail < 2; rail++) {
		assert_true(matrix_rail_cell(&resumed, rail, 1, 0)->latency_us == 2);
		assert_true(isnan(matrix_rail_cell(&resumed, rail, 0, 2)->bytes_per_second));
		assert_true(isnan(matrix_rail_cell(&resumed, rail, 2, 0)->latency_us));
	}
	json_object_put(object);
	free(matrix.rail_cells);
	free(resumed.rail_cells);
	free_cells(&matrix);
	free_cells(&resumed);
}

/* The end of a long name counts too. */
static void test_long_names_of_hosts_are_compared(void **state)
{
	struct matrix_rank before = ranks[2];
	struct pl_error error;
	struct json_object *object;

	(void)state;
	memset(ranks[2].host, 'x', MATRIX_HOST - 1);
	assert_string_equal(resume_document(make_document(), &error), "");
	object = make_document();
	ranks[2].host[MATRIX_HOST - 2] = 'y';
	assert_string_equal(resume_document(object, &error), "MATRIX-OTHER");
	ranks[2] = before;
}

static void test_each_cut_is_refused(void **state)
{
	struct json_object *object = make_document();
	const char *text = cli_json_string(object, false);
	struct pl_error error;

	(void)state;
	assert_non_null(text);
	for (size_t length = 0; length < strlen(text); length++) {
		struct matrix matrix = make_empty_matrix();

		assert_string_equal(resume_text(&matrix, text, length, &error), "MATRIX-DAMAGED");
		free_cells(&matrix);
	}
	json_object_put(object);
}

/* The file of a large matrix is read; one beyond the limit is not. */
static void test_the_limit_of_a_file(void **state)
{
	static const off_t sizes[] = { 129 << 20, CLI_DOCUMENT_MAX + 1 };
	struct matrix matrix = make_empty_matrix();

	(void)state;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(sizes); i++) {
		char path[] = "/tmp/peerlane-matrix-XXXXXX";
		struct matrix_options resumed = options;
		struct pl_error error;
		int fd = mkstemp(path);

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, sizes[i]), 0);
		close(fd);
		resumed.resume = path;
		assert_int_equal(matrix_resume(&matrix, &resumed, &error), -EBADMSG);
		unlink(path);
		assert_int_equal(strstr(error.message, "regular file") != NULL, i == 1);
	}
	free_cells(&matrix);
}

static void test_wrong_members_are_refused(void **state)
{
	static const struct {
		const char *name, *value, *id;
	} cases[] = {
		{ "kind", "\"bench\"", "MATRIX-DAMAGED" },
		{ "format", "2", "MATRIX-DAMAGED" },
		{ "options", "null", "MATRIX-DAMAGED" },
		{ "ranks", "3", "MATRIX-DAMAGED" },
		{ "bytes_per_second", "[[null, 1, 1], [1, null, 1]]", "MATRIX-DAMAGED" },
		{ "bytes_per_second", "[[null, 1, 1], [1, null, 1], [1, 1]]", "MATRIX-DAMAGED" },
		{ "bytes_per_second", "[[null, -1, 1], [1, null, 1], [1, 1, null]]", "MATRIX-DAMAGED" },
		{ "bytes_per_second", "[[null, \"1\", 1], [1, null, 1], [1, 1, null]]", "MATRIX-DAMAGED" },
		{ "latency_us", "[[null, 1e300, 1], [1, null, 1], [1, 1, null]]", "MATRIX-DAMAGED" },
		{ "latency_us", "null", "MATRIX-DAMAGED" },
		{ "reason_of", "[[null, 9, 0], [0, null, 0], [0, 0, null]]", "MATRIX-DAMAGED" },
		{ "reason_of", "[[null, -1, 0], [0, null, 0], [0, 0, null]]", "MATRIX-DAMAGED" },
		{ "reasons", "[1, 2]", "MATRIX-DAMAGED" },
		{ "version", "\"0.0.1\"", "MATRIX-OTHER" },
		{ "ranks", "[{}, {}]", "MATRIX-OTHER" },
		{ "ranks", "[{}, {}, {}]", "MATRIX-OTHER" },
		{ "ranks",
		  "[{\"host\": \"a\", \"memory\": \"host\"}, {\"host\": \"a\", \"memory\": \"cuda:1\"}, {}]",
		  "MATRIX-OTHER" },
		{ "options", "{}", "MATRIX-OTHER" },
	};
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct json_object *object = make_document();

		json_object_object_add(object, cases[i].name, json_tokener_parse(cases[i].value));
		if (strcmp(resume_document(object, &error), cases[i].id))
			fail_msg("%s: %s: %s", cases[i].name, cases[i].value, error.id);
	}
}

static void test_narrow_grants_are_told_from_the_default(void **state)
{
	static const char *const expected[] = { [PL_DEFAULT] = "null", [PL_ON] = "true", [PL_OFF] = "false" };
	struct matrix_options with = options;

	(void)state;
	for (int choice = PL_DEFAULT; choice <= PL_OFF; choice++) {
		struct json_object *object, *value;

		with.common.narrow = choice;
		object = matrix_json_options(&with);
		assert_true(json_object_object_get_ex(object, "narrow-grants", &value));
		assert_string_equal(value ? json_object_get_string(value) : "null", expected[choice]);
		json_object_put(object);
	}
}

/* Resumes from a file with narrow grants of this value, "": none, of a command with a further option, or NULL. */
static const char *resume_narrow(const char *value, const char *option, enum pl_choice now)
{
	struct json_object *object = make_document(), *other, *command;
	struct matrix_options resumed = options;
	static struct pl_error error;

	assert_true(json_object_object_get_ex(object, "options", &other));
	json_object_object_del(other, "narrow-grants");
	if (*value)
		json_object_object_add(other, "narrow-grants", json_tokener_parse(value));
	assert_true(json_object_object_get_ex(object, "command", &command));
	if (option)
		json_object_array_add(command, json_object_new_string(option));
	resumed.common.narrow = now;
	return resume_document_with(object, &resumed, &error);
}

/* Grants are narrow by default. Earlier versions wrote no such setting, or false unless --narrow-grants was given. */
static void test_a_missing_setting_is_the_default(void **state)
{
	static const char off[] = "--no-narrow-grants";

	(void)state;
	assert_string_equal(resume_narrow("", NULL, PL_DEFAULT), "");
	assert_string_equal(resume_narrow("", NULL, PL_ON), "");
	assert_string_equal(resume_narrow("", NULL, PL_OFF), "MATRIX-OTHER");
	assert_string_equal(resume_narrow("false", NULL, PL_DEFAULT), "");
	assert_string_equal(resume_narrow("false", NULL, PL_ON), "");
	assert_string_equal(resume_narrow("false", NULL, PL_OFF), "MATRIX-OTHER");
	assert_string_equal(resume_narrow("false", off, PL_DEFAULT), "MATRIX-OTHER");
	assert_string_equal(resume_narrow("false", off, PL_OFF), "");
	assert_string_equal(resume_narrow("true", NULL, PL_DEFAULT), "");
	assert_string_equal(resume_narrow("true", NULL, PL_OFF), "MATRIX-OTHER");
}

static void test_each_other_option_is_refused(void **state)
{
	static const char *const names[] = { "size",  "duration", "network",	   "fabric",	    "device",  "lanes",
					     "rails", "encrypt",  "traffic-class", "narrow-grants", "key",
					     "service-level", "gid-index", "pkey", "ack-timeout", "retries", "rnr-timer" };
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct json_object *object = make_document(), *other;

		assert_true(json_object_object_get_ex(object, "options", &other));
		json_object_object_add(other, names[i], json_object_new_string("other"));
		assert_string_equal(resume_document(object, &error), "MATRIX-OTHER");
		assert_non_null(strstr(error.message, names[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_pairs_are_kept),
		cmocka_unit_test(test_rails_of_whole_pairs_are_kept),
		cmocka_unit_test(test_long_names_of_hosts_are_compared),
		cmocka_unit_test(test_each_cut_is_refused),
		cmocka_unit_test(test_the_limit_of_a_file),
		cmocka_unit_test(test_wrong_members_are_refused),
		cmocka_unit_test(test_narrow_grants_are_told_from_the_default),
		cmocka_unit_test(test_a_missing_setting_is_the_default),
		cmocka_unit_test(test_each_other_option_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
