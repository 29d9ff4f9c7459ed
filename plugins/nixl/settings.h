/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings of an engine, from NIXL's parameters and the environment; docs/nixl.md lists them. */
#ifndef PLUGIN_NIXL_SETTINGS_H
#define PLUGIN_NIXL_SETTINGS_H

#include <string>
#include <unordered_map>
#include <vector>

#include <peerlane/peerlane.h>

namespace peerlane_nixl
{

/* Writes a line to standard error, "peerlane-nixl: ...". */
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes such a line about a failure of the library: its object, reason, id and hint. */
void warn_error(const std::string &action, const pl_error &error);

using parameters = std::unordered_map<std::string, std::string>;

/* Returns all parameters with empty values, which mean the variable of the environment, or the default. */
parameters parameter_names();

/* Largest notification, and so the least memory for those that arrive. */
constexpr size_t NOTICE_MAX = 64u << 20;

struct settings {
	std::string address; /* "host:port" to listen on */
	uint64_t notice_memory = 0; /* bytes for large notifications that arrive, of all connections */
	std::string fabric;
	std::string devices;
	std::string key;
	std::string identity, authority, authorized, known_hosts; /* paths */
	pl_options options = PL_OPTIONS_INIT; /* points to the strings above, once apply() was called */

	/* Reads the settings. Returns 0; -EINVAL, or the error of the key file, after a warning that names it. */
	int read(const parameters &given);

	/* Lets the options point to this object's strings. */
	void apply();
};

/* Returns the addresses of this host under which a listener that is bound to `bound` can be reached. */
std::vector<std::string> reachable_addresses(const std::string &bound);

} // namespace peerlane_nixl

#endif
