/* SPDX-License-Identifier: BSD-2-Clause */
#include "settings.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace peerlane_nixl
{
namespace
{

constexpr uint64_t SECOND = 1000000000;
/* Requests of engines have their own time-outs, and are released then. */
constexpr uint64_t OPERATION_S = 600;
constexpr uint64_t CONNECT_S = 10;
constexpr unsigned long MIB = 1ul << 20;
constexpr unsigned long NOTICE_MEMORY_MIB = 1024;
constexpr unsigned long NOTICE_MEMORY_MIB_MAX = 1ul << 20;

struct parameter {
	const char *name;
	const char *variable;
};

constexpr parameter PARAMETERS[] = {
	{ "address", "PEERLANE_NIXL_ADDRESS" },
	{ "key_file", "PEERLANE_KEY_FILE" },
	{ "insecure", "PEERLANE_NIXL_INSECURE" },
	{ "identity", "PEERLANE_IDENTITY" },
	{ "authority", "PEERLANE_AUTHORITY" },
	{ "authorized", "PEERLANE_AUTHORIZED" },
	{ "known_hosts", "PEERLANE_KNOWN_HOSTS" },
	{ "encrypt", "PEERLANE_ENCRYPT" },
	{ "fabric", "PEERLANE_FABRIC" },
	{ "devices", "PEERLANE_DEVICES" },
	{ "progress", "PEERLANE_NIXL_PROGRESS" },
	{ "workers", "PEERLANE_WORKERS" },
	{ "lanes", "PEERLANE_LANES" },
	{ "keepalive", "PEERLANE_KEEPALIVE" },
	{ "connect_timeout", "PEERLANE_NIXL_CONNECT_TIMEOUT" },
	{ "operation_timeout", "PEERLANE_NIXL_OPERATION_TIMEOUT" },
	{ "notification_memory", "PEERLANE_NIXL_NOTIFICATION_MEMORY" },
};

class lookup
{
	const parameters &given;

public:
	explicit lookup(const parameters &all) : given(all) {}

	/* Returns the value of a parameter, or of its variable; "" if neither is set. */
	std::string text(const std::string &name) const
	{
		auto found = given.find(name);

		if (found != given.end() && !found->second.empty())
			return found->second;
		for (const parameter &each : PARAMETERS) {
			const char *value = name == each.name ? getenv(each.variable) : nullptr;
			if (value)
				return value;
		}
		return "";
	}

	bool number(const char *name, unsigned long least, unsigned long most, unsigned long standard,
		    unsigned long &value) const
	{
		std::string found = text(name);
		char *end;

		value = standard;
		if (found.empty())
			return true;
		errno = 0;
		value = strtoul(found.c_str(), &end, 10);
		if (errno == 0 && *end == '\0' && found[0] != '-' && value >= least && value <= most)
			return true;
		warn("%s=%s is no number from %lu to %lu", name, found.c_str(), least, most);
		return false;
	}

	bool choice(const char *name, pl_choice &value) const
	{
		std::string found = text(name);

		if (!found.empty())
			value = found == "1" ? PL_ON : PL_OFF;
		if (found.empty() || found == "0" || found == "1")
			return true;
		warn("%s=%s is neither 0 nor 1", name, found.c_str());
		return false;
	}
};

int read_key(const std::string &path, std::string &key)
{
	uint8_t bytes[PL_KEY_MAX];
	pl_error error = {};
	int length = pl_key_file_read(path.c_str(), bytes, &error);

	if (length < 0) {
		warn_error("key_file", error);
		return length;
	}
	key.assign((const char *)bytes, (size_t)length);
	explicit_bzero(bytes, sizeof(bytes));
	return 0;
}

int read_progress(const std::string &text, pl_progress &progress)
{
	if (!text.empty() && text != "thread" && text != "manual") {
		warn("progress=%s is neither thread nor manual", text.c_str());
		return -EINVAL;
	}
	progress = text == "manual" ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD;
	return 0;
}

} // namespace

void warn(const char *format, ...)
{
	char line[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fprintf(stderr, "peerlane-nixl: %s\n", line);
}

void warn_error(const std::string &action, const pl_error &error)
{
	char text[600];

	pl_error_format(&error, text, sizeof(text));
	for (char *at = text; (at = strchr(at, '\n'));)
		*at = ';';
	warn("%s: %s", action.c_str(), text);
}

parameters parameter_names()
{
	parameters names;

	for (const parameter &each : PARAMETERS)
		names[each.name] = "";
	return names;
}

int settings::read(const parameters &given)
{
	lookup from(given);
	parameters known = parameter_names();
	unsigned long workers, lanes, keepalive, connect_s, operation_s, notice_mib;
	int status;

	for (const auto &each : given) {
		if (!known.count(each.first))
			warn("the parameter %s does not exist; it has no effect", each.first.c_str());
	}
	if (!from.number("workers", 1, 64, 0, workers) || !from.number("lanes", 1, 16, 0, lanes) ||
	    !from.number("keepalive", 1, 86400, 0, keepalive) ||
	    !from.number("connect_timeout", 1, 86400, CONNECT_S, connect_s) ||
	    !from.number("operation_timeout", 1, 86400, OPERATION_S, operation_s) ||
	    !from.number("notification_memory", NOTICE_MAX / MIB, NOTICE_MEMORY_MIB_MAX, NOTICE_MEMORY_MIB,
			 notice_mib) ||
	    !from.choice("insecure", options.insecure) || !from.choice("encrypt", options.encrypt_data))
		return -EINVAL;
	status = read_progress(from.text("progress"), options.progress);
	if (status == 0 && !from.text("key_file").empty())
		status = read_key(from.text("key_file"), key);
	if (status < 0)
		return status;
	notice_memory = notice_mib * MIB;
	options.workers = (unsigned)workers;
	options.lanes = (unsigned)lanes;
	options.keepalive = keepalive * SECOND;
	options.connect_timeout = connect_s * SECOND;
	options.operation_timeout = operation_s * SECOND;
	fabric = from.text("fabric");
	devices = from.text("devices");
	address = from.text("address");
	identity = from.text("identity");
	authority = from.text("authority");
	authorized = from.text("authorized");
	known_hosts = from.text("known_hosts");
	bool open_to_hosts = !key.empty() || options.insecure == PL_ON || !authority.empty() || !authorized.empty();
	if (address.empty())
		address = open_to_hosts ? ":0" : "127.0.0.1:0";
	if (!open_to_hosts)
		warn("no key: only processes of this host can connect; set key_file, or PEERLANE_KEY_FILE, or use "
		     "identities");
	return 0;
}

void settings::apply()
{
	auto text = [](const std::string &value) { return value.empty() ? nullptr : value.c_str(); };

	options.fabric = text(fabric);
	options.devices = text(devices);
	options.identity = text(identity);
	options.authority = text(authority);
	options.authorized = text(authorized);
	options.known_hosts = text(known_hosts);
	options.key = key.empty() ? nullptr : key.data();
	options.key_length = key.size();
	options.program = "peerlane-nixl";
}

} // namespace peerlane_nixl
