/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of counters between two times. */
#include <string.h>
#include <time.h>

#include "bench/counters/counters.h"
#include "cmd/common/cli.h"
#include "topology/sysroot.h"

/* The longest wait for new values, and the granularity of the kernel's clock. */
#define LIFESPAN_MAX CLI_NS_PER_S
#define LIFESPAN_MARGIN (10 * CLI_NS_PER_MS)

/* Returns the counter of the same name, searching from *at on in the sorted list; NULL: there is none. */
static const struct card_counter *find_same_counter(const struct card_port_counters *port, uint32_t *at,
						    const struct card_counter *counter)
{
	for (; *at < port->count; ++*at) {
		const struct card_counter *found = &port->list[*at];
		int order = found->folder != counter->folder ? (int)found->folder - (int)counter->folder
							     : strcmp(found->name, counter->name);

		if (order >= 0)
			return order == 0 ? found : NULL;
	}
	return NULL;
}

/* Converts the counters of the specification that count in units of 4 bytes. */
static void convert_to_bytes(struct card_counter *counter)
{
	static const char *const names[][2] = {
		{ "port_rcv_data", "port_rcv_bytes" },
		{ "port_xmit_data", "port_xmit_bytes" },
	};

	for (size_t i = 0; counter->folder == CARD_COUNTERS && i < CLI_ARRAY_SIZE(names); i++) {
		if (strcmp(counter->name, names[i][0]))
			continue;
		strcpy(counter->name, names[i][1]);
		counter->value = CLI_MIN(counter->value, UINT64_MAX / 4) * 4;
	}
}

static void subtract_port_counters(struct card_port_counters *after, const struct card_port_counters *before)
{
	uint32_t kept = 0, at = 0;

	for (uint32_t i = 0; i < after->count; i++) {
		struct card_counter counter = after->list[i];
		const struct card_counter *earlier = find_same_counter(before, &at, &counter);

		if (!earlier || earlier->value == counter.value)
			continue;
		counter.fell = counter.value < earlier->value;
		counter.value = counter.fell ? 0 : counter.value - earlier->value;
		convert_to_bytes(&counter);
		after->list[kept++] = counter;
	}
	after->count = kept;
	after->readable = after->readable && before->readable;
}

void card_counters_subtract(struct card_counters *after, const struct card_counters *before)
{
	for (unsigned i = 0; i < after->count; i++)
		subtract_port_counters(&after->ports[i], &before->ports[i]);
}

void card_watch_open(struct card_watch *watch, const char *root)
{
	struct pl_error error;

	*watch = (struct card_watch){ .root = NULL };
	if (pl_sysroot_open(&watch->root, root, &error) < 0)
		snprintf(watch->unreadable, sizeof(watch->unreadable), "%.100s", error.message);
}

void card_watch_begin(struct card_watch *watch, const struct card_ports *ports)
{
	card_counters_free(watch->before);
	watch->before = watch->root && ports->count ? card_counters_read(watch->root, ports) : NULL;
}

/* Waits until the kernel reads new values from the card. */
static void wait_for_new_values(const struct card_counters *before)
{
	uint64_t until = before->time + CLI_MIN(before->lifespan, LIFESPAN_MAX) + LIFESPAN_MARGIN;
	struct timespec time = { .tv_sec = (time_t)(until / CLI_NS_PER_S), .tv_nsec = (long)(until % CLI_NS_PER_S) };

	if (before->lifespan)
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
			;
}

struct card_counters *card_watch_end(struct card_watch *watch)
{
	struct card_counters *before = watch->before, *after;
	struct card_ports ports = { .count = 0 };
	bool readable = false;

	if (!before)
		return NULL;
	for (unsigned i = 0; i < before->count; i++)
		ports.list[ports.count++] = before->ports[i].port;
	wait_for_new_values(before);
	after = card_counters_read(watch->root, &ports);
	watch->before = NULL;
	if (after)
		card_counters_subtract(after, before);
	for (unsigned i = 0; after && i < after->count; i++) {
		readable = readable || after->ports[i].readable;
		if (!after->ports[i].readable)
			snprintf(watch->unreadable, sizeof(watch->unreadable),
				 "/sys/class/infiniband/%s/ports/%u has no readable counters",
				 after->ports[i].port.device, after->ports[i].port.number);
	}
	card_counters_free(before);
	if (readable)
		return after;
	card_counters_free(after);
	return NULL;
}

void card_watch_close(struct card_watch *watch)
{
	card_counters_free(watch->before);
	pl_sysroot_close(watch->root);
	watch->before = NULL;
	watch->root = NULL;
}
