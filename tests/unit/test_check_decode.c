/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of the check: rows that can be told apart, and causes that name rows that there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "diag/check/check.h"
#include "diag/check/decode.h"
#include "diag/check/decode_table.h"

static void test_rows(void **state)
{
	const struct pl_check_row *row, *other;

	(void)state;
	for (size_t i = 0; (row = pl_check_row_at(i)); i++) {
		assert_true(row->id[0] && row->group[0] && row->title[0] && row->requirement[0]);
		assert_true(row->how[0] && row->reason[0] && row->remedy[0]);
		/* `peerlane routes` fills its rows itself. */
		assert_int_equal(!row->probe, !strcmp(row->group, "Tested route"));
		assert_ptr_equal(pl_check_row_find(row->id), row);
		for (size_t j = 0; j < i; j++) {
			other = pl_check_row_at(j);
			/* Two of the same rank would leave it to their order which one is mended first. */
			assert_int_not_equal(other->rank, row->rank);
		}
	}
	assert_null(pl_check_row_find("no-such-row"));
}

static void test_causes(void **state)
{
	const char *known;

	(void)state;
	for (size_t i = 0; i < pl_decode_entry_count; i++) {
		const struct pl_decode_entry *entry = &pl_decode_entries[i];
		int kind = pl_decode_kind_of(entry->call, &known);

		assert_true(kind >= 0);
		assert_string_equal(known, entry->call);
		assert_non_null(entry->causes[0].text);
		/* One that stands behind another of the same number would never be found. */
		assert_ptr_equal(pl_decode_find(entry->call, entry->error), entry);
		if (entry->error)
			assert_non_null(pl_decode_symbol((enum pl_decode_kind)kind, entry->error));
		for (size_t j = 0; j < PL_DECODE_CAUSES && entry->causes[j].text; j++)
			assert_true(!entry->causes[j].row || pl_check_row_find(entry->causes[j].row));
	}
}

/* Each call has something to say of an error that nobody thought of. */
static void test_other_errors(void **state)
{
	const char *call;

	(void)state;
	for (size_t i = 0; (call = pl_decode_call_at(i)); i++) {
		assert_non_null(pl_decode_find(call, 4000));
		assert_int_equal(pl_decode_find(call, 4000)->error, 0);
	}
	assert_null(pl_decode_find("printf", 1));
}

static void test_numbers(void **state)
{
	static const struct {
		enum pl_decode_kind kind;
		const char *text;
		int number;
	} cases[] = {
		{ PL_DECODE_ERRNO, "EFAULT", EFAULT },
		{ PL_DECODE_ERRNO, "14", 14 },
		{ PL_DECODE_ERRNO, "-14", 14 },
		{ PL_DECODE_ERRNO, "EOPNOTSUPP", EOPNOTSUPP },
		{ PL_DECODE_ERRNO, "ENOTSUP", EOPNOTSUPP },
		{ PL_DECODE_ERRNO, "EKEYREJECTED", EKEYREJECTED },
		{ PL_DECODE_ERRNO, "Bad address", EFAULT },
		{ PL_DECODE_ERRNO, "ENOTSUPP", EOPNOTSUPP },
		{ PL_DECODE_ERRNO, "-524", EOPNOTSUPP },
		{ PL_DECODE_ERRNO, "efault", -EINVAL },
		{ PL_DECODE_ERRNO, "", -EINVAL },
		{ PL_DECODE_ERRNO, "14x", -EINVAL },
		{ PL_DECODE_ERRNO, "99999999999999999999", -EINVAL },
		{ PL_DECODE_CUDA, "CUDA_ERROR_NOT_SUPPORTED", 801 },
		{ PL_DECODE_CUDA, "cudaErrorNotSupported", 801 },
		{ PL_DECODE_CUDA, "EFAULT", -EINVAL },
		{ PL_DECODE_COMPLETION, "IBV_WC_RETRY_EXC_ERR", 12 },
		{ PL_DECODE_COMPLETION, "remote access error", 10 },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++)
		assert_int_equal(pl_decode_number(cases[i].kind, cases[i].text), cases[i].number);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_other_errors),
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
