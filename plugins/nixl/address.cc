/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses that an agent tells its peers. */
#include <cstring>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "settings.h"

namespace peerlane_nixl
{
namespace
{

constexpr size_t ADDRESSES_MAX = 16;

/* Bridges and ends of containers and virtual machines: other hosts have the same addresses there. */
constexpr const char *INSIDE[] = { "docker", "br-", "virbr", "veth", "cni", "flannel", "cali" };

bool interface_is_outside(const ifaddrs &each)
{
	if (!each.ifa_addr || !(each.ifa_flags & IFF_UP) || (each.ifa_flags & IFF_LOOPBACK))
		return false;
	for (const char *prefix : INSIDE) {
		if (strncmp(each.ifa_name, prefix, strlen(prefix)) == 0)
			return false;
	}
	return true;
}

/* Returns the address of an interface as a host, without link-local ones; "" if it has none of the family. */
std::string host_of_interface(const ifaddrs &each, int family)
{
	socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
	char host[NI_MAXHOST];

	if (each.ifa_addr->sa_family != family)
		return "";
	if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const sockaddr_in6 *)each.ifa_addr)->sin6_addr))
		return "";
	if (getnameinfo(each.ifa_addr, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST))
		return "";
	return family == AF_INET6 ? "[" + std::string(host) + "]" : host;
}

} // namespace

std::vector<std::string> reachable_addresses(const std::string &bound)
{
	size_t colon = bound.rfind(':');
	std::string host = bound.substr(0, colon), port = bound.substr(colon);
	std::vector<std::string> found;
	ifaddrs *all;

	if (host != "0.0.0.0" && host != "[::]" && !host.empty())
		return { bound };
	if (getifaddrs(&all) == 0) {
		for (int family : { AF_INET, AF_INET6 }) {
			for (ifaddrs *each = all; each; each = each->ifa_next) {
				std::string name = interface_is_outside(*each) ? host_of_interface(*each, family) : "";
				bool fits = family == AF_INET || host == "[::]";
				if (!name.empty() && fits && found.size() < ADDRESSES_MAX - 1)
					found.push_back(name + port);
			}
		}
		freeifaddrs(all);
	}
	if (found.empty())
		found.push_back("127.0.0.1" + port);
	return found;
}

} // namespace peerlane_nixl
