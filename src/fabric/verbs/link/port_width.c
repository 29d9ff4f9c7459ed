/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports that one queue pair does not fill. A bond is one device with several cables, and each queue pair uses one of
 * them. Above 200 Gb/s a single queue pair is short of requests under way, and takes one of several paths of a network.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fabric/verbs/verbs.h"
#include "rdma/port_rate.h"

/* Rate, in units of 100 Mb/s, above which a port has two queue pairs. */
#define WIDE_RATE 2000u
/* Members of a bond that are looked at, and the longest name of a network interface with its NUL. */
#define MEMBERS_MAX 16
#define NAME_MAX_WITH_NUL 16

/* Reads the first line of a file, without its end. Returns false if there is none. */
static bool read_line(char *text, size_t size, const char *path)
{
	size_t length = pl_read_head(path, text, size);

	text[strcspn(text, "\n")] = 0;
	return length > 0;
}

/* True if a member carries packets: it is up, and not the spare one of a pair. */
static bool member_is_active(const char *net, const char *member)
{
	char path[PATH_MAX], state[16], link[16];

	snprintf(path, sizeof(path), "%s/%s/bonding_slave/state", net, member);
	if (!read_line(state, sizeof(state), path))
		return false;
	snprintf(path, sizeof(path), "%s/%s/bonding_slave/mii_status", net, member);
	return read_line(link, sizeof(link), path) && !strcmp(state, "active") && !strcmp(link, "up");
}

unsigned verbs_bond_members(const char *net, const char *interface)
{
	char path[PATH_MAX], members[MEMBERS_MAX * NAME_MAX_WITH_NUL];
	unsigned count = 0;
	char *rest = members;

	snprintf(path, sizeof(path), "%s/%s/bonding/slaves", net, interface);
	if (!read_line(members, sizeof(members), path))
		return 0;
	for (const char *member = strsep(&rest, " "); member; member = strsep(&rest, " "))
		count += *member && member_is_active(net, member);
	return count;
}

/* Returns the members of the bond whose device the port belongs to. The first GID is that of the port's interface. */
static unsigned members_of_port(const struct verbs_port *port)
{
	char path[PATH_MAX], interface[NAME_MAX_WITH_NUL + 1];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/0",
		 verbs_device_name(port->device), port->number);
	return read_line(interface, sizeof(interface), path) ? verbs_bond_members("/sys/class/net", interface) : 0;
}

bool verbs_port_is_wide(const struct verbs_port *port, const struct ibv_port_attr *attributes)
{
	if (rdma_port_rate(attributes->active_speed, attributes->active_width) > WIDE_RATE)
		return true;
	return port->link_layer == IBV_LINK_LAYER_ETHERNET && members_of_port(port) > 1;
}
