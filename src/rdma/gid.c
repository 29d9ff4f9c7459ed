/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/gid.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>

bool verbs_gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

union ibv_gid verbs_gid_of(const struct sockaddr_storage *address)
{
	union ibv_gid gid = { .raw = { 0 } };

	if (address->ss_family == AF_INET) {
		gid.raw[10] = gid.raw[11] = 0xff;
		memcpy(gid.raw + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
	} else if (address->ss_family == AF_INET6) {
		memcpy(gid.raw, &((const struct sockaddr_in6 *)address)->sin6_addr, sizeof(gid.raw));
	}
	return gid;
}

socklen_t verbs_gid_to_address(const union ibv_gid *gid, uint16_t port, struct sockaddr_storage *address)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;

	memset(address, 0, sizeof(*address));
	if (verbs_gid_is_ipv4(gid)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, gid->raw + 12, sizeof(v4->sin_addr));
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	memcpy(&v6->sin6_addr, gid->raw, sizeof(v6->sin6_addr));
	return sizeof(*v6);
}

void verbs_gid_format(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN])
{
	bool ipv4 = verbs_gid_is_ipv4(gid);

	inet_ntop(ipv4 ? AF_INET : AF_INET6, gid->raw + (ipv4 ? 12 : 0), text, INET6_ADDRSTRLEN);
}

/* True if the kernel says that an entry is of RoCE v2; for libraries before rdma-core 34. */
static bool is_second_version(const char *device, unsigned port, unsigned index)
{
	char path[PATH_MAX], type[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%u", device, port, index);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(type, sizeof(type), file))
		type[0] = 0;
	fclose(file);
	return !strcmp(type, "RoCE v2\n");
}

bool verbs_gid_read(const struct verbs_library *library, struct ibv_context *context, uint8_t port, unsigned index,
		    union ibv_gid *gid, bool *second_version)
{
	static const union ibv_gid none;
	struct ibv_gid_entry entry;
	int rc;

	*second_version = false;
	if (library->_ibv_query_gid_ex) {
		rc = library->_ibv_query_gid_ex(context, port, index, &entry, 0, sizeof(entry));
		*gid = entry.gid;
		*second_version = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
	} else {
		rc = library->ibv_query_gid(context, port, (int)index, gid);
		*second_version = rc == 0 && is_second_version(library->ibv_get_device_name(context->device), port, index);
	}
	return rc == 0 && !verbs_gid_same(gid, &none);
}
