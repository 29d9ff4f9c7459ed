/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports: links, addresses, identifiers. */
#include <stdio.h>

#include "diag/check/row.h"

#define GROUP "Network"
#define CLASS "sys/class/infiniband/%s/ports/%u/"
#define IPV4_GID "0000:0000:0000:0000:0000:ffff:"

struct object {
	char name[72];
};

static struct object name_of(const struct check_device *device, const struct pl_rdma_port *port)
{
	struct object object;

	snprintf(object.name, sizeof(object.name), "%s/%u", device->name, port->number);
	return object;
}

typedef void (*judgement)(const struct pl_check_machine *machine, const struct check_device *device,
			  const struct pl_rdma_port *port, const char *name, struct pl_check_result *result);

static void each_port(const struct pl_check_machine *machine, struct pl_check_result *result, judgement judge)
{
	for (size_t i = 0; i < machine->device_count; i++)
		for (size_t j = 0; j < machine->devices[i].rdma->port_count; j++) {
			const struct pl_rdma_port *port = &machine->devices[i].rdma->ports[j];

			judge(machine, &machine->devices[i], port, name_of(&machine->devices[i], port).name, result);
		}
}

static bool is_infiniband(const struct pl_rdma_port *port)
{
	return !strcmp(port->link_layer, "InfiniBand");
}

static bool any_active(const struct pl_check_machine *machine)
{
	for (size_t i = 0; i < machine->device_count; i++)
		for (size_t j = 0; j < machine->devices[i].rdma->port_count; j++)
			if (machine->devices[i].rdma->ports[j].active)
				return true;
	return false;
}

static void judge_state(const struct pl_check_machine *machine, const struct check_device *device,
			const struct pl_rdma_port *port, const char *name, struct pl_check_result *result)
{
	if (!*port->state) {
		pl_check_unknown(result, name, "ibv_devinfo", "its state cannot be read");
	} else if (port->active && is_infiniband(port) && port->lanes == 1) {
		pl_check_note(result, PL_CHECK_WARN, name, "active, but with 1 lane only: %.4g Gbit/s",
			      (double)port->rate / 1e9);
		pl_check_remedy(result, "clean or change the cable, then: ibportstate -D 0 %u reset; mlxlink -d %s -c",
				port->number, device->name);
	} else if (port->active) {
		pl_check_note(result, PL_CHECK_OK, name, "active, %.4g Gbit/s", (double)port->rate / 1e9);
	} else if (!strcmp(port->state, "INIT") || !strcmp(port->state, "ARMED")) {
		pl_check_note(result, PL_CHECK_FAIL, name,
			      "the link is up, but in state %s: no subnet manager set it up", port->state);
		pl_check_remedy(result, "start a subnet manager, once in the network: systemctl start opensm");
	} else {
		/* An unused second port is usual. */
		pl_check_note(result, any_active(machine) ? PL_CHECK_WARN : PL_CHECK_FAIL, name, "%s (%s)", port->state,
			      port->physical);
		if (*port->netdev && !is_infiniband(port))
			pl_check_remedy(result,
					"ip link set %s up; if that does not help: cable and switch port (ethtool %s)",
					port->netdev, port->netdev);
		pl_check_remedy(result, "check cable and switch port; ibportstate -D 0 %u; ibstat %s", port->number,
				device->name);
	}
}

static void probe_state(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	each_port(machine, result, judge_state);
}

/* Reports the link layer; two kinds on one machine are worth a warning. */
static void probe_layer(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const char *first = NULL;

	for (size_t i = 0; i < machine->device_count; i++) {
		for (size_t j = 0; j < machine->devices[i].rdma->port_count; j++) {
			const struct pl_rdma_port *port = &machine->devices[i].rdma->ports[j];
			struct object object = name_of(&machine->devices[i], port);

			if (!*port->link_layer)
				pl_check_unknown(result, object.name, "ibv_devinfo | grep link_layer",
						 "it does not say");
			else if (first && strcmp(first, port->link_layer) && port->active)
				pl_check_note(result, PL_CHECK_WARN, object.name, "%s, where others have %s",
					      port->link_layer, first);
			else
				pl_check_note(result, PL_CHECK_OK, object.name, "%s%s", port->link_layer,
					      is_infiniband(port) ? "" : " (RoCE or iWARP)");
			if (!first && port->active)
				first = *port->link_layer ? port->link_layer : NULL;
		}
	}
}

static void judge_manager(const struct pl_check_machine *machine, const struct check_device *device,
			  const struct pl_rdma_port *port, const char *name, struct pl_check_result *result)
{
	bool up = !strcmp(port->physical, "LinkUp");
	char description[64];

	if (!is_infiniband(port) || !up)
		return;
	if (port->lid < 0 || port->sm_lid < 0) {
		pl_check_unknown(result, name, "ibstat", "lid and sm_lid cannot be read");
	} else if (!port->lid || !port->sm_lid) {
		pl_check_note(result, PL_CHECK_FAIL, name, "lid %d, subnet manager at %d: there is none", port->lid,
			      port->sm_lid);
	} else if (check_text(machine, description, "sys/class/infiniband/%s/node_desc", device->name) >= 0 &&
		   !*description) {
		pl_check_note(result, PL_CHECK_WARN, name, "lid %d, subnet manager at %d; it has no node description",
			      port->lid, port->sm_lid);
		pl_check_remedy(result,
				"echo \"$(hostname -s) %s\" > /sys/class/infiniband/%s/node_desc   # ibhosts shows it",
				device->name, device->name);
	} else {
		pl_check_note(result, PL_CHECK_OK, name, "lid %d, subnet manager at %d", port->lid, port->sm_lid);
	}
}

static void probe_manager(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	each_port(machine, result, judge_manager);
}

static void judge_address(const struct pl_check_machine *machine, const struct check_device *device,
			  const struct pl_rdma_port *port, const char *name, struct pl_check_result *result)
{
	/* InfiniBand has LIDs as addresses; programs that connect by rdma_cm want IP addresses there, too. */
	enum pl_check_status missing = is_infiniband(port) ? PL_CHECK_OK : PL_CHECK_WARN;
	const char *rest = is_infiniband(port) ? "; only programs with rdma_cm, such as rping, need one" : "";
	const char *ipv4, *ipv6;

	/* EFA has addresses of its own. */
	if (!port->active || (device->card && !strcmp(device->card->pci->driver, "efa")))
		return;
	if (!*port->netdev) {
		pl_check_note(result, missing, name, "there is no network device for it%s", rest);
		return;
	}
	if (!pl_facts_get(machine->facts, "net.known")) {
		pl_check_unknown(result, name, "ip addr show", "addresses are no files (network device %s)",
				 port->netdev);
		return;
	}
	ipv4 = pl_facts_get(machine->facts, "net.%s.ipv4", port->netdev);
	ipv6 = pl_facts_get(machine->facts, "net.%s.ipv6", port->netdev);
	if (ipv4)
		pl_check_note(result, PL_CHECK_OK, name, "%s has %s", port->netdev, ipv4);
	else if (ipv6)
		pl_check_note(result, strncmp(ipv6, "fe80", 4) ? PL_CHECK_OK : missing, name, "%s has only %s",
			      port->netdev, ipv6);
	else
		pl_check_note(result, missing, name, "%s has no address%s", port->netdev, rest);
	pl_check_remedy(result, "ip addr add ADDRESS/BITS dev %s", port->netdev);
}

static void probe_address(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	each_port(machine, result, judge_address);
}

/* Returns the first GID of RoCE v2 with an IPv4 address, else the first of v2; NULL if there is none. */
static const struct pl_rdma_gid *best_gid(const struct pl_rdma_port *port)
{
	const struct pl_rdma_gid *best = NULL;

	for (size_t i = 0; i < port->gid_count; i++) {
		const struct pl_rdma_gid *gid = &port->gids[i];

		if (strcmp(gid->type, "RoCE v2"))
			continue;
		if (!strncmp(gid->gid, IPV4_GID, strlen(IPV4_GID)))
			return gid;
		best = best ? best : gid;
	}
	return best;
}

static void judge_gid(const struct pl_check_machine *machine, const struct check_device *device,
		      const struct pl_rdma_port *port, const char *name, struct pl_check_result *result)
{
	bool iwarp = device->card && !strncmp(device->card->pci->driver, "cxgb", 4);
	const struct pl_rdma_gid *best = best_gid(port);

	if (is_infiniband(port) || !port->active || iwarp || !strncmp(device->name, "siw", 3) ||
	    !strncmp(device->name, "efa", 3) || (device->card && !strcmp(device->card->pci->driver, "efa")))
		return;
	if (best)
		pl_check_note(result, PL_CHECK_OK, name, "RoCE v2 is GID %u", best->index);
	else if (!check_exists(machine, CLASS "gid_attrs/types", device->name, port->number))
		pl_check_unknown(result, name, "show_gids, or rdma link show", "GIDs cannot be read");
	else if (port->gid_count)
		pl_check_note(result, PL_CHECK_WARN, name, "there are GIDs, but none of RoCE v2");
	else
		pl_check_note(result, PL_CHECK_FAIL, name, "there is no GID");
	if (!port->gid_count && *port->netdev)
		pl_check_remedy(result, "ip link set %s up; ip addr add ADDRESS/BITS dev %s", port->netdev,
				port->netdev);
}

static void probe_gid(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	each_port(machine, result, judge_gid);
}

const struct pl_check_row pl_check_rows_port[] = {
	{
		.id = "port-state",
		.group = GROUP,
		.title = "link up",
		.requirement = "The port is active.",
		.how = "/sys/class/infiniband/*/ports/*/{state,phys_state,rate}; ibv_devinfo",
		.reason =
			"With an inactive port, connecting times out when a queue pair becomes ready to receive (RTR).",
		.remedy = "check cable, transceiver and switch port; ip link set INTERFACE up; ibportstate",
		.rank = 22,
		.probe = probe_state,
	},
	{
		.id = "port-layer",
		.group = GROUP,
		.title = "InfiniBand or Ethernet",
		.requirement = "Ports that communicate have the same link layer.",
		.how = "/sys/class/infiniband/*/ports/*/link_layer",
		.reason = "InfiniBand uses LIDs as addresses, RoCE uses GIDs; the wrong link layer causes address "
			  "errors.",
		.remedy = "mlxconfig -d ADDRESS set LINK_TYPE_P1=1   # 1 InfiniBand, 2 Ethernet; then a cold reboot",
		.rank = 72,
		.probe = probe_layer,
	},
	{
		.id = "port-manager",
		.group = GROUP,
		.title = "subnet manager",
		.requirement = "An InfiniBand network has a subnet manager, which gave the port a LID; the host has a "
			       "name there.",
		.how = "/sys/class/infiniband/*/ports/*/{lid,sm_lid} are not 0; ibhosts (needs root)",
		.reason = "Without it ports stay in state INIT.",
		.remedy = "on one host, or on the switch: systemctl enable --now opensm",
		.rank = 24,
		.probe = probe_manager,
	},
	{
		.id = "port-address",
		.group = GROUP,
		.title = "IP address for connecting",
		.requirement = "The network device of a RoCE port has an IP address.",
		.how = "ip addr show, of the network device in gid_attrs/ndevs",
		.reason = "A RoCE port gets its GIDs from these addresses, and routers know no others. On InfiniBand only "
			  "programs that connect by rdma_cm need an address.",
		.remedy = "ip addr add ADDRESS/BITS dev INTERFACE",
		.rank = 26,
		.probe = probe_address,
	},
	{
		.id = "port-gid",
		.group = GROUP,
		.title = "GID of RoCE v2",
		.requirement = "The port has a GID of RoCE v2, and both ends use that version; UDP port 4791 is open.",
		.how = "/sys/class/infiniband/*/ports/*/{gids,gid_attrs/types}/*; show_gids",
		.reason = "Without such a GID, or with different versions, connecting fails at RTR or times out. "
			  "Version 1 does not cross routers.",
		.remedy = "use the index shown (NCCL_IB_GID_INDEX, ib_write_bw -x); "
			  "echo RoCE v2 > /sys/kernel/config/rdma_cm/DEVICE/ports/1/default_roce_mode; "
			  "nft add rule inet filter input udp dport 4791 accept",
		.rank = 28,
		.probe = probe_gid,
	},
	{ .id = NULL },
};
