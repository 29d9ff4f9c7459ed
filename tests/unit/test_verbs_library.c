/* SPDX-License-Identifier: BSD-2-Clause */
/* Loading libibverbs: an error names a library that is missing or too old. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "rdma/library.h"

static void test_missing(void **state)
{
	struct verbs_library library;
	struct pl_error error;

	(void)state;
	assert_int_equal(verbs_library_open("libthere-is-none.so.1", &library, &error), -ELIBACC);
	assert_string_equal(error.id, "RDMA-NO-LIBRARY");
	assert_string_equal(error.object, "libthere-is-none.so.1");
	assert_true(strstr(error.hint, "libibverbs1") != NULL);
	assert_int_equal(verbs_library_open("libthere-is-none.so.1", &library, NULL), -ELIBACC);
}

static void test_lacks_functions(void **state)
{
	struct verbs_library library;
	struct pl_error error;

	(void)state;
	assert_int_equal(verbs_library_open("libc.so.6", &library, &error), -ELIBBAD);
	assert_string_equal(error.id, "RDMA-LIBRARY-OLD");
	assert_string_equal(error.object, "libc.so.6");
	assert_true(strstr(error.message, "ibv_") != NULL);
}

/* The library of this machine, which came with its headers. */
static void test_there(void **state)
{
	const struct verbs_library *library;
	struct pl_error error;

	(void)state;
	library = verbs_library_get(&error);
	assert_non_null(library);
	assert_ptr_equal(verbs_library_get(NULL), library);
	assert_non_null(library->ibv_reg_mr);
	assert_non_null(library->ibv_create_qp);
	assert_non_null(library->ibv_query_gid);
	assert_string_equal(library->ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR), "remote access error");
	/* The connection manager's contexts and events belong to the whole process. */
	assert_null(dlopen("librdmacm.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void test_results(void **state)
{
	int object;

	(void)state;
	assert_int_equal(verbs_result(0), 0);
	assert_int_equal(verbs_result(ENOMEM), -ENOMEM);
	errno = EPERM;
	assert_int_equal(verbs_result(-1), -EPERM);
	assert_int_equal(verbs_made(NULL), -EPERM);
	assert_int_equal(verbs_made(&object), 0);
	errno = 0;
	assert_int_equal(verbs_made(NULL), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_lacks_functions),
		cmocka_unit_test(test_there),
		cmocka_unit_test(test_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
