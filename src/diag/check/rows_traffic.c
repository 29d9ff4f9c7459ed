/* SPDX-License-Identifier: BSD-2-Clause */
/* Losses of the network. */
#include <inttypes.h>
#include <stdio.h>

#include "diag/check/row.h"

#define GROUP "Network"
#define PORT "sys/class/infiniband/%s/ports/%u/"
#define GOOD_MTU 2048
#define JUMBO 4200
/* One error in this many packets or fewer is no accident. */
#define PACKETS_A_TROUBLE 100000
#define FEW_TROUBLES 100

static void judge_mtu(const struct pl_check_machine *machine, const struct check_device *device,
		      const struct pl_rdma_port *port, const char *name, struct pl_check_result *result)
{
	long long active =
		pl_facts_number(machine->facts, -1, "verbs.device.%s.port.%u.mtu", device->name, port->number);
	int64_t netdev = *port->netdev ? check_number(machine, "sys/class/net/%s/mtu", port->netdev) : -1;
	bool ethernet = !strcmp(port->link_layer, "Ethernet"), low;

	if (active < 0 && !(ethernet && netdev > 0)) {
		pl_check_unknown(result, name, "ibv_devinfo | grep active_mtu, by a user who may open the device",
				 "the MTU is not known");
		return;
	}
	low = active >= 0 ? active < GOOD_MTU : netdev < JUMBO;
	if (ethernet && netdev > 0)
		pl_check_note(result, low ? PL_CHECK_WARN : PL_CHECK_OK, name,
			      "%s has an MTU of %" PRId64 "%s; both ends and all switches need the same", port->netdev,
			      netdev, low ? ": packets of RDMA have 1024 bytes or less" : "");
	else
		pl_check_note(result, low ? PL_CHECK_WARN : PL_CHECK_OK, name, "packets of %lld bytes", active);
	if (low && ethernet)
		pl_check_remedy(result, "ip link set %s mtu 9000   # and on the switches, and at the other end",
				*port->netdev ? port->netdev : "INTERFACE");
}

static void probe_mtu(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char name[72];

	for (size_t i = 0; i < machine->device_count; i++) {
		const struct check_device *device = &machine->devices[i];

		for (size_t j = 0; j < device->rdma->port_count; j++) {
			snprintf(name, sizeof(name), "%s/%u", device->name, device->rdma->ports[j].number);
			if (device->rdma->ports[j].active &&
			    strcmp(device->card ? device->card->pci->driver : "", "efa"))
				judge_mtu(machine, device, &device->rdma->ports[j], name, result);
		}
	}
}

/* Sums counters that grow when packets are lost. */
static int64_t count_troubles(const struct pl_check_machine *machine, const char *device, unsigned port, char *worst,
			      size_t size)
{
	static const char *const counters[] = { "hw_counters/out_of_sequence", "hw_counters/packet_seq_err",
						"hw_counters/local_ack_timeout_err", "counters/port_rcv_errors",
						"counters/port_xmit_discards" };
	int64_t most = 0, all = -1, value;

	for (size_t i = 0; i < PL_ARRAY_SIZE(counters); i++) {
		value = check_number(machine, PORT "%s", device, port, counters[i]);
		if (value < 0)
			continue;
		if (value > most) {
			most = value;
			snprintf(worst, size, "%s %" PRId64, strchr(counters[i], '/') + 1, value);
		}
		all = PL_MAX(all, most);
	}
	return all;
}

static void judge_congestion(const struct pl_check_machine *machine, const char *device,
			     const struct pl_rdma_port *port, const char *name, struct pl_check_result *result)
{
	int64_t packets = check_number(machine, PORT "counters/port_rcv_packets", device, port->number);
	int64_t marked = check_number(machine, PORT "hw_counters/np_cnp_sent", device, port->number), troubles;
	char worst[64] = "", ecn[64] = "";

	troubles = count_troubles(machine, device, port->number, worst, sizeof(worst));
	if (troubles < 0) {
		pl_check_unknown(result, name, "ethtool -S INTERFACE | grep -E 'discard|pause|cnp'",
				 "the device has no counters of lost packets");
		return;
	}
	if (marked > 0)
		snprintf(ecn, sizeof(ecn), ", ECN slowed senders %" PRId64 " times", marked);
	if (troubles > FEW_TROUBLES && (packets < 0 || troubles > packets / PACKETS_A_TROUBLE))
		pl_check_note(result, PL_CHECK_WARN, name, "%s since it started%s: packets are lost", worst, ecn);
	else
		pl_check_note(result, PL_CHECK_OK, name, "%s%s", *worst ? worst : "no packet lost", ecn);
	if (result->status == PL_CHECK_WARN && *port->netdev)
		pl_check_remedy(result,
				"mlnx_qos -i %s --pfc 0,0,0,1,0,0,0,0 --trust dscp   # and the same on the switches",
				port->netdev);
}

static void probe_congestion(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	char name[72];

	for (size_t i = 0; i < machine->device_count; i++) {
		const struct check_device *device = &machine->devices[i];

		for (size_t j = 0; j < device->rdma->port_count; j++) {
			snprintf(name, sizeof(name), "%s/%u", device->name, device->rdma->ports[j].number);
			if (device->rdma->ports[j].active && !device->rdma->software)
				judge_congestion(machine, device->name, &device->rdma->ports[j], name, result);
		}
	}
}

const struct pl_check_row pl_check_rows_traffic[] = {
	{
		.id = "port-mtu",
		.group = GROUP,
		.title = "size of packets",
		.requirement = "Packets are large: 4096 bytes, for which RoCE needs an Ethernet MTU of 4200 or more.",
		.how = "ibv_devinfo (active_mtu); ip link show; the other end and the switches have the same",
		.reason = "Small packets cost rate; different ones at the two ends lose packets.",
		.remedy = "ip link set INTERFACE mtu 9000; on InfiniBand: the subnet manager's partitions.conf, mtu=5",
		.rank = 74,
		.probe = probe_mtu,
	},
	{
		.id = "port-congestion",
		.group = GROUP,
		.title = "no lost packets: PFC and ECN",
		.requirement =
			"Switches and cards avoid losing packets, by priority flow control and congestion marks.",
		.how = "/sys/class/infiniband/*/ports/*/{hw_counters,counters}: out_of_sequence, packet_seq_err, "
		       "local_ack_timeout_err, port_rcv_errors, port_xmit_discards; np_cnp_sent",
		.reason = "RoCE that loses packets collapses to a small part of its rate.",
		.remedy = "mlnx_qos -i INTERFACE --pfc 0,0,0,1,0,0,0,0 --trust dscp; the same on the switches; "
			  "on InfiniBand: cables and transceivers (mlxlink -d DEVICE -c)",
		.rank = 76,
		.probe = probe_congestion,
	},
	{ .id = NULL },
};
