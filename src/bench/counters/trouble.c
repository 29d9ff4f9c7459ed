/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters that tell of trouble, and their meaning. */
#include <inttypes.h>
#include <string.h>

#include "bench/counters/counters.h"

/*
 * Sources: Documentation/ABI/stable/sysfs-class-infiniband of the kernel for `counters`; the descriptions of the
 * drivers' commits and NVIDIA's documentation for `hw_counters`: mlx5 (ConnectX), rxe (soft-RoCE), bnxt_re (Broadcom).
 */
const struct card_trouble card_troubles[] = {
	/* hw_counters of mlx5 */
	{ "out_of_sequence", "packets arrived out of order" },
	{ "packet_seq_err", "the other end missed packets" },
	{ "implied_nak_seq_err", "answers to reads or atomics were lost" },
	{ "local_ack_timeout_err", "no acknowledgement arrived in time" },
	{ "duplicate_request", "the other end sent requests again" },
	{ "rnr_nak_retry_err", "the receiver had no buffer ready" },
	{ "out_of_buffer", "packets were dropped for lack of receive buffers" },
	{ "rx_icrc_encapsulated", "packets arrived damaged" },
	{ "roce_adp_retrans", "packets were sent again" },
	{ "roce_adp_retrans_to", "packets were sent again after a timeout" },
	{ "roce_slow_restart", "sending slowed down after losses" },
	{ "np_ecn_marked_roce_packets", "switches marked packets: congestion" },
	{ "np_cnp_sent", "this end told the other to slow down: congestion" },
	{ "rp_cnp_handled", "this end slowed down: congestion" },
	/* hw_counters of rxe */
	{ "out_of_seq_request", "packets arrived out of order" },
	{ "rcvd_seq_err", "the other end missed packets" },
	{ "rcvd_rnr_err", "the receiver had no buffer ready" },
	{ "send_rnr_err", "this end had no receive buffer ready" },
	{ "completer_retry_err", "packets were sent again" },
	{ "retry_exceeded_err", "a connection gave up after retries" },
	{ "retry_rnr_exceeded_err", "a connection gave up on a receiver without buffers" },
	{ "send_err", "packets could not be sent" },
	/* hw_counters of bnxt_re */
	{ "to_retransmits", "packets were sent again after a timeout" },
	{ "seq_err_naks_rcvd", "the other end missed packets" },
	{ "rnr_naks_rcvd", "the receiver had no buffer ready" },
	{ "max_retry_exceeded", "a connection gave up after retries" },
	{ "missing_resp", "answers to reads or atomics were lost" },
	{ "rx_roce_discards", "received packets were dropped" },
	{ "tx_roce_discards", "packets were dropped before they were sent" },
	/* counters; link_downed also of rxe */
	{ "symbol_error", "minor errors on the link" },
	{ "link_error_recovery", "the link recovered from errors" },
	{ "link_downed", "the link went down" },
	{ "port_rcv_errors", "packets arrived damaged" },
	{ "port_rcv_remote_physical_errors", "packets arrived that were marked as bad" },
	{ "port_rcv_switch_relay_errors", "the switch dropped packets that it could not forward" },
	{ "port_rcv_constraint_errors", "received packets were filtered out" },
	{ "port_xmit_constraint_errors", "packets to send were filtered out" },
	{ "port_xmit_discards", "packets were dropped: the port was down or congested" },
	{ "local_link_integrity_errors", "too many errors on the link" },
	{ "excessive_buffer_overrun_errors", "the input buffer of the port overran" },
	{ "VL15_dropped", "management packets were dropped" },
	{ NULL, NULL },
};

static const struct card_port_counters *find_card_port(const struct card_counters *changes,
						       const struct card_port *port)
{
	for (unsigned i = 0; changes && i < changes->count; i++)
		if (changes->ports[i].port.number == port->number &&
		    !strcmp(changes->ports[i].port.device, port->device))
			return &changes->ports[i];
	return NULL;
}

static uint64_t sum_counter(const struct card_counters *const *results, unsigned count, const struct card_port *port,
			    const char *name)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < count; i++) {
		const struct card_port_counters *found = find_card_port(results[i], port);

		for (uint32_t j = 0; found && j < found->count; j++)
			if (!strcmp(found->list[j].name, name))
				sum += found->list[j].value;
	}
	return sum;
}

static void print_port_troubles(FILE *file, const struct card_counters *const *results, unsigned count,
				const struct card_port *port)
{
	bool any = false;

	for (const struct card_trouble *trouble = card_troubles; trouble->name; trouble++) {
		uint64_t sum = sum_counter(results, count, port, trouble->name);

		if (!sum)
			continue;
		if (any)
			fputs(", ", file);
		else
			fprintf(file, "trouble at %s:%u: ", port->device, port->number);
		fprintf(file, "%s %" PRIu64 " (%s)", trouble->name, sum, trouble->meaning);
		any = true;
	}
	if (any)
		fputc('\n', file);
}

void card_troubles_print(FILE *file, const struct card_counters *const *results, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		for (unsigned j = 0; results[i] && j < results[i]->count; j++) {
			const struct card_port *port = &results[i]->ports[j].port;
			bool printed = false;

			for (unsigned k = 0; k < i; k++)
				printed = printed || find_card_port(results[k], port);
			if (!printed)
				print_port_troubles(file, results, count, port);
		}
	}
}
