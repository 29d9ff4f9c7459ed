/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of another process's GPU, as the local fabric opens it: its owner may withdraw it at any moment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fabric/local/local.h"

#define LENGTH 4096u

static struct {
	struct local_device *device;
	unsigned opened, closed, asked;
	bool refuses;   /* the driver does not open the memory */
	bool withdraws; /* the owner withdraws the memory while a kernel's reach is asked for */
} rig;

static int fake_import(const uint8_t *handle, size_t handle_length, size_t length, bool own,
		       const struct pl_memory *beside, struct pl_ipc_fds *fds, struct pl_memory *memory,
		       const char **why)
{
	(void)handle, (void)handle_length, (void)own, (void)fds;
	*memory = (struct pl_memory){ .ops = beside->ops, .length = length };
	*why = NULL;
	rig.opened++;
	return rig.refuses ? -EACCES : 0;
}

static void fake_release(struct pl_memory *memory)
{
	(void)memory;
	rig.closed++;
}

static bool fake_reaches(const struct pl_memory *memory, const struct pl_memory *other, bool written)
{
	(void)written;
	rig.asked++;
	if (rig.withdraws)
		local_device_shut(rig.device);
	/* The opened memory is there until this has read it. */
	assert_int_equal(rig.closed, 0);
	assert_ptr_equal(other->ops, memory->ops);
	return true;
}

static const struct pl_memory_ops fake_ops = {
	.import_ipc = fake_import,
	.release = fake_release,
	.gather_reaches = fake_reaches,
};

static void rig_open(void)
{
	static struct pl_context context;
	static struct local_state local = { .context = &context };
	static struct local_endpoint endpoint = { .state = &local };
	const struct local_key key = { .id = 1 };

	memset(&rig, 0, sizeof(rig));
	context.allocator = pl_system_allocator;
	rig.device = local_device_new(&endpoint, &key, NULL, LENGTH);
	assert_non_null(rig.device);
}

static void test_withdrawn_while_asked(void **state)
{
	struct pl_memory here = { .ops = &fake_ops, .device = 1 };

	(void)state;
	rig_open();
	assert_true(local_device_kernel_reaches(rig.device, &here, false));
	assert_int_equal(rig.opened, 1);
	rig.withdraws = true;
	assert_true(local_device_kernel_reaches(rig.device, &here, false));
	/* The last user has closed it, and no kernel reaches it any more. */
	assert_int_equal(rig.closed, 1);
	assert_false(local_device_kernel_reaches(rig.device, &here, false));
	assert_int_equal(rig.asked, 2);
	local_device_free(rig.device);
	assert_int_equal(rig.closed, 1);
}

/* Each use of a GPU has a number of its own. The memory is opened for some of them only, so that these take no memory without end. */
static void test_opened_for_many(void **state)
{
	struct pl_memory here = { .ops = &fake_ops };
	struct local_access access = { .path = &local_device_path };
	const char *reason;

	(void)state;
	rig_open();
	access.device = rig.device;
	here.device = 1;
	assert_true(local_device_reaches(&access, &here, &reason));
	rig.refuses = true;
	for (here.device = 2; here.device < 1000; here.device++)
		assert_false(local_device_reaches(&access, &here, &reason));
	assert_int_equal(rig.opened, 64);
	assert_non_null(strstr(reason, "no room"));
	here.device = 1;
	assert_true(local_device_reaches(&access, &here, &reason));
	local_device_free(rig.device);
	assert_int_equal(rig.closed, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opened_for_many),
		cmocka_unit_test(test_withdrawn_while_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
