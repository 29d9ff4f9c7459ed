/* SPDX-License-Identifier: BSD-2-Clause */
/* External side of a card: ports, GIDs, network devices. */
#include "topology/build.h"

#include <stdlib.h>

#define PORTS_MAX 64
#define GIDS_MAX 256
#define NETDEVS_MAX 64

/* "4: ACTIVE": only the word. */
static void read_state(struct pl_sysroot *root, char *to, size_t size, const char *device, unsigned port,
		       const char *file)
{
	char text[64], *colon;

	if (pl_sysroot_text(root, text, sizeof(text), "sys/class/infiniband/%s/ports/%u/%s", device, port, file) <= 0)
		return;
	colon = strstr(text, ": ");
	pl_copy_printable(to, size, colon ? colon + 2 : text);
}

/* "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" */
static unsigned parse_lanes(const char *text)
{
	const char *mark = strchr(text, '(');
	unsigned long lanes = mark ? strtoul(mark + 1, NULL, 10) : 0;

	return lanes <= 12 ? (unsigned)lanes : 0;
}

static uint64_t parse_rate(const char *text)
{
	uint64_t rate = 0, unit = 1000000000;

	for (; *text >= '0' && *text <= '9' && rate < 1000000; text++)
		rate = rate * 10 + (uint64_t)(*text - '0');
	rate *= unit;
	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9' && unit; text++)
			rate += (uint64_t)(*text - '0') * (unit /= 10);
	return strncmp(text, " Gb/sec", 7) ? 0 : rate;
}

static bool is_zero_gid(const char *gid)
{
	return gid[strspn(gid, "0:")] == '\0';
}

static int read_gid(struct pl_rdma_port *port, struct pl_sysroot *root, const char *device, const char *index)
{
	char gid[64];
	struct pl_rdma_gid *entry;
	int rc;

	if (pl_sysroot_text(root, gid, sizeof(gid), "sys/class/infiniband/%s/ports/%u/gids/%s", device, port->number,
			    index) <= 0 ||
	    is_zero_gid(gid))
		return 0;
	rc = TOPOLOGY_ADD(port->gids, port->gid_count, GIDS_MAX);
	if (rc < 0)
		return rc;
	entry = &port->gids[rc];
	entry->index = (unsigned)strtoul(index, NULL, 10);
	TOPOLOGY_COPY(entry->gid, gid);
	if (pl_sysroot_text(root, gid, sizeof(gid), "sys/class/infiniband/%s/ports/%u/gid_attrs/types/%s", device,
			    port->number, index) > 0)
		TOPOLOGY_COPY(entry->type, gid);
	if (pl_sysroot_text(root, gid, sizeof(gid), "sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%s", device,
			    port->number, index) > 0)
		TOPOLOGY_COPY(entry->netdev, gid);
	return 0;
}

static int compare_gids(const void *a, const void *b)
{
	const struct pl_rdma_gid *left = a, *right = b;

	return left->index < right->index ? -1 : left->index > right->index;
}

static int read_gids(struct pl_rdma_port *port, struct pl_sysroot *root, const char *device)
{
	struct pl_sysroot_list list;
	int rc = 0;

	if (pl_sysroot_list(root, &list, "sys/class/infiniband/%s/ports/%u/gids", device, port->number) < 0)
		return 0;
	for (size_t i = 0; i < list.count && rc == 0; i++)
		rc = read_gid(port, root, device, list.names[i]);
	pl_sysroot_list_free(&list);
	if (port->gid_count)
		qsort(port->gids, port->gid_count, sizeof(*port->gids), compare_gids);
	return rc == -ENOMEM ? rc : 0;
}

static int32_t read_lid(struct pl_sysroot *root, const char *device, unsigned port, const char *name)
{
	uint64_t value;

	if (pl_sysroot_number(root, 10, &value, "sys/class/infiniband/%s/ports/%u/%s", device, port, name) < 0 ||
	    value > UINT16_MAX)
		return -1;
	return (int32_t)value;
}

static int read_port(struct pl_card *card, struct pl_sysroot *root, unsigned number)
{
	int index = TOPOLOGY_ADD(card->ports, card->port_count, PORTS_MAX);
	struct pl_rdma_port *port;
	char text[64];

	if (index < 0)
		return index;
	port = &card->ports[index];
	port->number = number;
	read_state(root, port->state, sizeof(port->state), card->name, number, "state");
	port->active = !strcmp(port->state, "ACTIVE");
	read_state(root, port->physical, sizeof(port->physical), card->name, number, "phys_state");
	read_state(root, port->link_layer, sizeof(port->link_layer), card->name, number, "link_layer");
	if (pl_sysroot_text(root, text, sizeof(text), "sys/class/infiniband/%s/ports/%u/rate", card->name, number) >
	    0) {
		port->rate = parse_rate(text);
		port->lanes = parse_lanes(text);
	}
	port->lid = read_lid(root, card->name, number, "lid");
	port->sm_lid = read_lid(root, card->name, number, "sm_lid");
	if (pl_sysroot_text(root, text, sizeof(text), "sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/0", card->name,
			    number) > 0)
		TOPOLOGY_COPY(port->netdev, text);
	return read_gids(port, root, card->name);
}

static int compare_ports(const void *a, const void *b)
{
	const struct pl_rdma_port *left = a, *right = b;

	return left->number < right->number ? -1 : left->number > right->number;
}

int topology_read_ports(struct pl_card *card, struct pl_sysroot *root)
{
	struct pl_sysroot_list list;
	int rc = 0;

	if (pl_sysroot_list(root, &list, "sys/class/infiniband/%s/ports", card->name) < 0)
		return 0;
	for (size_t i = 0; i < list.count && rc == 0; i++) {
		char *end;
		unsigned long number = strtoul(list.names[i], &end, 10);

		if (!*end && number > 0 && number < 256)
			rc = read_port(card, root, (unsigned)number);
	}
	pl_sysroot_list_free(&list);
	if (card->port_count)
		qsort(card->ports, card->port_count, sizeof(*card->ports), compare_ports);
	return rc == -ENOMEM ? rc : 0;
}

int topology_netdev_add(struct pl_card *card, struct pl_sysroot *root, const char *name)
{
	int index;
	struct pl_netdev *device;
	uint64_t mtu;
	int64_t number;
	char text[64];

	if (!name[0] || strchr(name, '/'))
		return 0;
	index = TOPOLOGY_ADD(card->netdevs, card->netdev_count, NETDEVS_MAX);
	if (index < 0)
		return index;
	device = &card->netdevs[index];
	TOPOLOGY_COPY(device->name, name);
	if (pl_sysroot_signed(root, &number, "sys/class/net/%s/dev_port", name) == 0 && number >= 0 &&
	    number < PORTS_MAX)
		device->port = (int)number + 1;
	else
		device->port = -1;
	if (pl_sysroot_text(root, text, sizeof(text), "sys/class/net/%s/operstate", name) > 0)
		TOPOLOGY_COPY(device->state, text);
	if (pl_sysroot_text(root, text, sizeof(text), "sys/class/net/%s/address", name) > 0)
		TOPOLOGY_COPY(device->address, text);
	if (pl_sysroot_number(root, 10, &mtu, "sys/class/net/%s/mtu", name) == 0 && mtu <= UINT32_MAX)
		device->mtu = (uint32_t)mtu;
	if (pl_sysroot_signed(root, &device->speed, "sys/class/net/%s/speed", name) < 0 || device->speed <= 0)
		device->speed = -1;
	return 0;
}

/* On InfiniBand no GID names the network device. */
void topology_name_ports(struct pl_card *card)
{
	for (size_t i = 0; i < card->port_count; i++) {
		struct pl_rdma_port *port = &card->ports[i];

		for (size_t j = 0; j < card->netdev_count && !port->netdev[0]; j++)
			if (card->netdevs[j].port < 0 || card->netdevs[j].port == (int)port->number)
				TOPOLOGY_COPY(port->netdev, card->netdevs[j].name);
	}
}

int topology_read_netdevs(struct pl_card *card, struct pl_sysroot *root, const char *address)
{
	struct pl_sysroot_list list;
	int rc = 0;

	if (pl_sysroot_list(root, &list, "sys/bus/pci/devices/%s/net", address) < 0)
		return 0;
	for (size_t i = 0; i < list.count && rc == 0; i++)
		rc = topology_netdev_add(card, root, list.names[i]);
	pl_sysroot_list_free(&list);
	return rc == -ENOMEM ? rc : 0;
}
