/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the counters of ports. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "bench/counters/counters.h"
#include "cmd/common/cli.h"
#include "cmd/common/units.h"
#include "topology/sysroot.h"

#define DEVICES "sys/class/infiniband"
#define PORT_MAX 255u

static const char *const folder_names[CARD_FOLDERS] = {
	[CARD_HW_COUNTERS] = "hw_counters",
	[CARD_COUNTERS] = "counters",
};

static void add_card_port(struct card_ports *ports, const char *device, unsigned number)
{
	struct card_port *port = &ports->list[ports->count];

	for (unsigned i = 0; i < ports->count; i++)
		if (ports->list[i].number == number && !strcmp(ports->list[i].device, device))
			return;
	if (ports->count == CARD_PORTS_MAX)
		return;
	snprintf(port->device, sizeof(port->device), "%s", device);
	port->number = number;
	ports->count++;
}

static void add_ports_of_device(struct card_ports *ports, struct pl_sysroot *root, const char *device)
{
	struct pl_sysroot_list numbers;
	unsigned number;

	if (pl_sysroot_list(root, &numbers, DEVICES "/%s/ports", device) < 0)
		return;
	for (size_t i = 0; i < numbers.count; i++)
		if (cli_parse_number(numbers.names[i], 1, PORT_MAX, &number) == 0)
			add_card_port(ports, device, number);
	pl_sysroot_list_free(&numbers);
}

void card_ports_add(struct card_ports *ports, struct pl_sysroot *root, const char *name)
{
	size_t length = strcspn(name, ":");
	char device[CARD_NAME_MAX];
	unsigned number;

	/* The name becomes part of a path. */
	if (!length || length >= sizeof(device) || strchr(name, '/') || name[0] == '.')
		return;
	snprintf(device, sizeof(device), "%.*s", (int)length, name);
	if (!name[length])
		add_ports_of_device(ports, root, device);
	else if (cli_parse_number(name + length + 1, 1, PORT_MAX, &number) == 0)
		add_card_port(ports, device, number);
}

/* Parses a whole file as one decimal number: some drivers have texts such as "N/A (no PMA)". */
static bool parse_counter(const char *text, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end;
}

static bool append_counter(struct card_port_counters *port, const struct card_counter *counter)
{
	if (port->count == port->room) {
		uint32_t room = port->room ? port->room * 2 : 64;
		struct card_counter *list = realloc(port->list, room * sizeof(*list));

		if (!list)
			return false;
		port->list = list;
		port->room = room;
	}
	port->list[port->count++] = *counter;
	return true;
}

/* Reads one folder.  Returns false if out of memory. */
static bool read_counter_folder(struct pl_sysroot *root, struct card_port_counters *port, enum card_folder folder,
				uint64_t *lifespan)
{
	const char *device = port->port.device;
	struct pl_sysroot_list names;
	bool enough = true;

	if (pl_sysroot_list(root, &names, DEVICES "/%s/ports/%u/%s", device, port->port.number, folder_names[folder]) <
	    0)
		return true;
	for (size_t i = 0; enough && i < names.count; i++) {
		struct card_counter counter = { .folder = folder };
		char text[32];

		if (strlen(names.names[i]) >= sizeof(counter.name) ||
		    pl_sysroot_text(root, text, sizeof(text), DEVICES "/%s/ports/%u/%s/%s", device, port->port.number,
				    folder_names[folder], names.names[i]) < 0 ||
		    !parse_counter(text, &counter.value))
			continue;
		strcpy(counter.name, names.names[i]);
		/* A setting, in milliseconds. */
		if (!strcmp(counter.name, "lifespan"))
			*lifespan = CLI_MAX(*lifespan, CLI_MIN(counter.value, 10000ull) * CLI_NS_PER_MS);
		else
			enough = append_counter(port, &counter);
	}
	pl_sysroot_list_free(&names);
	return enough;
}

struct card_counters *card_counters_read(struct pl_sysroot *root, const struct card_ports *ports)
{
	struct card_counters *counters = calloc(1, sizeof(*counters) + ports->count * sizeof(counters->ports[0]));
	bool enough = counters;

	for (unsigned i = 0; enough && i < ports->count; i++) {
		struct card_port_counters *port = &counters->ports[i];

		port->port = ports->list[i];
		counters->count++;
		for (enum card_folder folder = 0; enough && folder < CARD_FOLDERS; folder++)
			enough = read_counter_folder(root, port, folder, &counters->lifespan);
		port->readable = port->count > 0;
	}
	if (!enough) {
		card_counters_free(counters);
		return NULL;
	}
	counters->time = cli_now();
	return counters;
}

void card_counters_free(struct card_counters *counters)
{
	for (unsigned i = 0; counters && i < counters->count; i++)
		free(counters->ports[i].list);
	free(counters);
}
