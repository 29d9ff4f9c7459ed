/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes that agents exchange by NIXL's means: connection information, and public data of registered memory. */
#ifndef PLUGIN_NIXL_WIRE_H
#define PLUGIN_NIXL_WIRE_H

#include <cstdint>
#include <string>
#include <vector>

namespace peerlane_nixl
{

/* Connection information of an agent. */
struct agent_card {
	std::vector<std::string> addresses; /* "host:port", in the order in which a peer tries them */
	std::string token;                  /* of a region of the agent: proves that a listener is this agent's */
};

/* Public data of a registered range. */
struct memory_card {
	uint64_t address = 0;
	uint64_t length = 0;
	bool gpu = false;
	std::string token;
};

std::string encode(const agent_card &card);
std::string encode(const memory_card &card);

/* Decoders return false for bytes that are damaged, of another kind, or of another release of the format. */
bool decode(const std::string &bytes, agent_card &card);
bool decode(const std::string &bytes, memory_card &card);

} // namespace peerlane_nixl

#endif
