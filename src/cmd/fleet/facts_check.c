/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of a check: statuses, findings, the inventory, and texts of checks that describe a configuration. */
#include <string.h>

#include "cmd/fleet/facts.h"

/*
 * Checks whose findings are the same on equal machines when they are OK.  Other texts have counts, addresses or loads,
 * which differ from host to host and from run to run.
 */
static const char *const constant_checks[] = {
	"access-memlock", "bus-platform", "driver-flavour", "gpu-partition", "kernel-signing",
	"path-class",     "nccl-network", "nccl-plugin",    "path-payload",  "peer-ofed",
	"port-mtu",       "soft-mpi",     "soft-nccl",      "soft-ucx",
};

static bool is_constant_check(const char *id)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(constant_checks); i++)
		if (!strcmp(constant_checks[i], id))
			return true;
	return false;
}

/* Returns PL_CHECK_NONE for an unknown text, too. */
static enum pl_check_status read_status(struct json_object *object)
{
	const char *text = cli_json_member_text(object, "status");

	for (enum pl_check_status status = PL_CHECK_FAIL; text && status > PL_CHECK_NONE; status--)
		if (!strcmp(text, pl_check_status_name(status)))
			return status;
	return PL_CHECK_NONE;
}

static void read_check_findings(struct facts *facts, struct json_object *check, const char *id,
				enum pl_check_status status)
{
	bool constant = status == PL_CHECK_OK && is_constant_check(id);
	struct json_object *finding;
	const char *object, *found;

	for (size_t i = 0; (constant || status > PL_CHECK_OK) && (finding = fleet_element(check, "findings", i)); i++) {
		object = cli_json_member_text(finding, "object");
		found = cli_json_member_text(finding, "found");
		/* Accepted findings do not count, nor do those that are better than the check. */
		if (!found || cli_json_member_text(finding, "accepted") || read_status(finding) != status)
			continue;
		facts_add(facts, constant ? FACT_VALUE : FACT_FINDING, status, id, object, found);
	}
}

static void read_checks(struct facts *facts, struct json_object *document)
{
	struct json_object *check;

	for (size_t i = 0; (check = fleet_element(document, "checks", i)); i++) {
		const char *id = cli_json_member_text(check, "id");
		enum pl_check_status status = read_status(check);

		if (!id || !*id || facts_is_property(id))
			continue;
		facts_add(facts, FACT_STATUS, status, id, NULL, pl_check_status_name(status));
		read_check_findings(facts, check, id, status);
	}
}

/* Adds the link of a device.  The speed of an idle one changes with its load. */
static void add_link_facts(struct facts *facts, struct json_object *device, const char *pci)
{
	facts_add_lanes(facts, pci, fleet_number(device, "width_lanes"));
	if (!json_object_get_boolean(cli_json_member(device, "idle", json_type_boolean)))
		facts_add_rate(facts, "speed", pci, fleet_number(device, "speed_transfers_per_second"), 1e9, "GT/s");
}

static void read_inventory_devices(struct facts *facts, struct json_object *inventory, const char *name)
{
	struct json_object *device, *array = cli_json_member(inventory, name, json_type_array);

	if (!array)
		return;
	facts_add_number(facts, name, NULL, (int64_t)json_object_array_length(array), "");
	for (size_t i = 0; (device = fleet_element(inventory, name, i)); i++) {
		const char *pci = cli_json_member_text(device, "pci");

		if (!pci || !*pci)
			continue;
		facts_add(facts, FACT_OBJECT, PL_CHECK_NONE, name, pci, "present");
		facts_add_text(facts, "model", pci, device, "model");
		facts_add_number(facts, "numa", pci, fleet_number(device, "numa"), "");
		add_link_facts(facts, device, pci);
	}
}

static void read_inventory_ports(struct facts *facts, struct json_object *device, const char *name)
{
	struct json_object *port;
	char object[FACT_OBJECT_MAX];

	for (size_t i = 0; (port = fleet_element(device, "ports", i)); i++) {
		snprintf(object, sizeof(object), "%s/%lld", name, (long long)fleet_number(port, "port"));
		facts_add_text(facts, "state", object, port, "state");
		facts_add_text(facts, "layer", object, port, "layer");
		facts_add_rate(facts, "rate", object, fleet_number(port, "rate_bytes_per_second"), 1e9 / 8, "Gbit/s");
	}
}

void facts_read_check(struct facts *facts, struct json_object *document)
{
	struct json_object *inventory = cli_json_member(document, "inventory", json_type_object), *device;
	struct json_object *root = cli_json_member(document, "root", json_type_boolean);

	read_checks(facts, document);
	facts_add_text(facts, "version", NULL, document, "version");
	if (root)
		facts_add(facts, FACT_VALUE, PL_CHECK_NONE, "root", NULL, json_object_get_boolean(root) ? "yes" : "no");
	facts_add_text(facts, "driver", NULL, inventory, "driver");
	facts_add_text(facts, "kernel", NULL, inventory, "kernel");
	read_inventory_devices(facts, inventory, "gpus");
	read_inventory_devices(facts, inventory, "cards");
	for (size_t i = 0; (device = fleet_element(inventory, "devices", i)); i++) {
		const char *name = cli_json_member_text(device, "device");

		if (!name || !*name)
			continue;
		facts_add_text(facts, "firmware", name, device, "firmware");
		read_inventory_ports(facts, device, name);
	}
	facts_sort(facts);
}
