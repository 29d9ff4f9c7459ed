/* SPDX-License-Identifier: BSD-2-Clause */
/* Locks of mappings for copies of GPUs: a hostile owner may release one at any time. */
#include <stdlib.h>

#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/local.h"

#define LENGTH (1u << 20)

static unsigned pins, unpins;

static int count_pin(const struct pl_memory *memory, void *address, size_t length, bool read_only, void **holder)
{
	(void)memory;
	(void)address;
	(void)length;
	(void)read_only;
	*holder = NULL;
	pins++;
	return 0;
}

static void count_unpin(void *holder, void *address)
{
	(void)holder;
	(void)address;
	unpins++;
}

static const struct pl_memory_ops ops = { .pin = count_pin, .unpin = count_unpin };
static const struct pl_memory memory = { .ops = &ops };

/* A copy that begins after the release gets no memory that is unpinned meanwhile, also while another copy keeps it pinned. */
static void released(void *argument)
{
	struct pl_context *context = context_open(&local_manual);
	void *mapping = malloc(LENGTH);
	struct local_host_pin *pin = local_host_pin_new(context, mapping, LENGTH, false);

	(void)argument;
	check(local_host_pin_hold(pin));
	for (unsigned i = 0; i < 2; i++)
		local_host_pin_note_copy(pin, &memory, LENGTH);
	check_number(pins, 1);
	check(local_host_pin_is_locked(pin));
	local_host_pin_release(pin);
	check(!local_host_pin_is_locked(pin));
	check(!local_host_pin_hold(pin));
	check_number(unpins, 0);
	local_host_pin_put(pin);
	check_number(unpins, 1);
	check(!local_host_pin_hold(pin));
	check_number(unpins, 1);
	local_host_pin_free(pin);
	free(mapping);
	pl_close(context);
}

/* Copies go on with memory that the driver did not pin, or that is too short. */
static void not_pinned(void *argument)
{
	struct pl_context *context = context_open(&local_manual);
	void *mapping = malloc(LENGTH);
	struct local_host_pin *pin = local_host_pin_new(context, mapping, LENGTH, false);

	(void)argument;
	check(local_host_pin_hold(NULL));
	local_host_pin_put(NULL);
	local_host_pin_release(pin);
	check(local_host_pin_hold(pin));
	local_host_pin_put(pin);
	check_number(unpins, 0);
	local_host_pin_free(pin);
	free(mapping);
	pl_close(context);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "released", released, NULL, 20 },
		{ "not pinned", not_pinned, NULL, 20 },
	};

	return cases_run("host pins", cases, PL_ARRAY_SIZE(cases));
}
