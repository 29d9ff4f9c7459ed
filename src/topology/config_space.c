/* SPDX-License-Identifier: BSD-2-Clause */
/* Configuration space: payload sizes, ACS, ATS, resizable BARs. */
#include "topology/build.h"

#define STATUS 0x06
#define STATUS_CAPABILITIES 0x10
#define CAPABILITIES 0x34
#define CAPABILITY_EXPRESS 0x10
#define EXTENDED 0x100
#define EXTENDED_ACS 0x000d
#define EXTENDED_ATS 0x000f
#define EXTENDED_REBAR 0x0015
/* Limit for the list of capabilities, which may be circular. */
#define CAPABILITIES_MAX 48
#define EXTENDED_MAX 960

static uint32_t word(const uint8_t *data, size_t at)
{
	return data[at] | (uint32_t)data[at + 1] << 8;
}

static uint32_t dword(const uint8_t *data, size_t at)
{
	return word(data, at) | word(data, at + 2) << 16;
}

static uint16_t bytes_of(uint32_t code)
{
	return code <= 5 ? (uint16_t)(128u << code) : 0;
}

static void parse_express(struct pl_pci_config *config, const uint8_t *at)
{
	config->express = true;
	config->port_type = word(at, 2) >> 4 & 0xf;
	config->payload_supported = bytes_of(dword(at, 4) & 7);
	config->payload = bytes_of(word(at, 8) >> 5 & 7);
	config->read_request = bytes_of(word(at, 8) >> 12 & 7);
}

static void parse_capabilities(struct pl_pci_config *config, const uint8_t *data, size_t length)
{
	size_t at;

	if (!(word(data, STATUS) & STATUS_CAPABILITIES))
		return;
	at = data[CAPABILITIES] & ~3u;
	for (unsigned i = 0; i < CAPABILITIES_MAX && at >= 64 && at + 2 <= length; i++, at = data[at + 1] & ~3u)
		if (data[at] == CAPABILITY_EXPRESS && at + 10 <= length) {
			parse_express(config, data + at);
			return;
		}
}

static void parse_resizable(struct pl_pci_node *node, const uint8_t *data, size_t at, size_t length)
{
	unsigned count;

	if (at + 12 > length)
		return;
	count = dword(data, at + 8) >> 5 & 7;
	for (unsigned i = 0; i < count && at + 12 + 8 * i <= length; i++) {
		uint32_t capability = dword(data, at + 4 + 8 * i), control = dword(data, at + 8 + 8 * i);
		unsigned bar = control & 7;

		if (bar < PL_PCI_BARS)
			node->bars[bar].sizes = (uint64_t)(control >> 16) << 28 | capability >> 4;
	}
}

static void parse_extended(struct pl_pci_node *node, const uint8_t *data, size_t length)
{
	struct pl_pci_config *config = &node->config;
	size_t at = EXTENDED;

	config->extended = true;
	for (unsigned i = 0; i < EXTENDED_MAX && at >= EXTENDED && at + 8 <= length; i++) {
		uint32_t header = dword(data, at);

		switch (header & 0xffff) {
		case EXTENDED_ACS:
			config->acs = true;
			config->acs_capability = (uint16_t)word(data, at + 4);
			config->acs_control = (uint16_t)word(data, at + 6);
			break;
		case EXTENDED_ATS:
			config->ats = true;
			config->ats_enabled = word(data, at + 6) >> 15;
			break;
		case EXTENDED_REBAR:
			parse_resizable(node, data, at, length);
			break;
		default:
			break;
		}
		at = header >> 20 & ~3u;
	}
}

void topology_config_parse(struct pl_pci_node *node, const uint8_t *data, size_t length)
{
	if (length <= 64)
		return;
	parse_capabilities(&node->config, data, length);
	if (length >= 4096)
		parse_extended(node, data, length);
}
