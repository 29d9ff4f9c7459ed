/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/gid.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdio.h>

#define SUBNET_AT 6

uint16_t verbs_gid_flid(const union ibv_gid *gid)
{
	static const uint8_t site_local[] = { 0xfe, 0xc0, 0, 0 };

	if (memcmp(gid->raw, site_local, sizeof(site_local)))
		return 0;
	return (uint16_t)(gid->raw[sizeof(site_local)] << 8 | gid->raw[sizeof(site_local) + 1]);
}

bool verbs_gid_same_subnet(const union ibv_gid *a, const union ibv_gid *b)
{
	/* Ports of one subnet may have several FLIDs. */
	const size_t from = verbs_gid_flid(a) && verbs_gid_flid(b) ? SUBNET_AT : 0;

	return !memcmp(a->raw + from, b->raw + from, sizeof(a->global.subnet_prefix) - from);
}

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

static bool is_empty(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return verbs_gid_same(gid, &none);
}

/* Reads an entry. Returns false if it is empty, or cannot be read. */
static bool read_gid_entry(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
			   struct verbs_gid_entry *one)
{
	struct ibv_gid_entry entry;
	int rc;

	if (library->_ibv_query_gid_ex) {
		rc = library->_ibv_query_gid_ex(context, port, one->index, &entry, 0, sizeof(entry));
		one->gid = entry.gid;
		one->second_version = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
	} else {
		rc = library->ibv_query_gid(context, port, one->index, &one->gid);
		one->second_version =
			rc == 0 && is_second_version(library->ibv_get_device_name(context->device), port, one->index);
	}
	return rc == 0 && !is_empty(&one->gid);
}

/*
 * Reads the tables of all ports of the device at once. Returns the number of the port's entries, or -1 if that is not
 * possible: an old library, an old kernel, or more entries in use than there is room for.
 */
static int read_gid_table(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
			  struct verbs_gid_entry entries[VERBS_GID_TABLE_MAX])
{
	struct ibv_gid_entry all[VERBS_GID_TABLE_MAX];
	ssize_t found = -1;
	int count = 0;

	if (library->_ibv_query_gid_table)
		found = library->_ibv_query_gid_table(context, all, PL_ARRAY_SIZE(all), 0, sizeof(all[0]));
	if (found < 0)
		return -1;
	for (ssize_t i = 0; i < found; i++)
		if (all[i].port_num == port && all[i].gid_index < VERBS_GID_TABLE_MAX && !is_empty(&all[i].gid))
			entries[count++] = (struct verbs_gid_entry){
				.gid = all[i].gid,
				.index = (uint8_t)all[i].gid_index,
				.second_version = all[i].gid_type == IBV_GID_TYPE_ROCE_V2,
			};
	return count;
}

unsigned verbs_gids_read(const struct verbs_library *library, struct ibv_context *context, uint8_t port, int length,
			 struct verbs_gid_entry entries[VERBS_GID_TABLE_MAX])
{
	int count = length > 1 ? read_gid_table(library, context, port, entries) : -1;
	unsigned single = 0;

	if (count >= 0)
		return (unsigned)count;
	for (int i = 0; i < PL_MIN(length, VERBS_GID_TABLE_MAX); i++) {
		entries[single].index = (uint8_t)i;
		single += read_gid_entry(library, context, port, &entries[single]);
	}
	return single;
}
