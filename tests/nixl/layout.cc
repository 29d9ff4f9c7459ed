/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints what the plugin and NIXL must agree on: sizes, offsets, numbers, and places in tables of virtual functions.
 * check_headers.sh compares the output for the plugin's declarations with that for NIXL's headers. The places come
 * from pointers to virtual functions, which hold them in the C++ ABI of Linux.
 */
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "interface.h"

template <class Function> void place(const char *name, Function function)
{
	ptrdiff_t words[2];

	static_assert(sizeof(function) == sizeof(words));
	memcpy(words, &function, sizeof(words));
#ifdef __aarch64__
	words[0] |= words[1] & 1;
#endif
	printf("virtual %s %td\n", name, words[0] - 1);
}

template <class Class, class Member> void offset(const char *name, Member Class::*member)
{
	alignas(Class) static char object[sizeof(Class)];
	Class *at = reinterpret_cast<Class *>(object);

	printf("offset %s %td, %zu bytes\n", name, reinterpret_cast<const char *>(&(at->*member)) - object,
	       sizeof(Member));
}

#define SIZE(type) printf("size %s %zu\n", #type, sizeof(type))
#define NUMBER(name) printf("number %s %lld\n", #name, (long long)(name))
#define OFFSET(type, member) offset<type>(#type "::" #member, &type::member)

/* Reaches the protected members that the constructor in the plugin sets. */
struct probe : nixlBackendEngine {
	static void print()
	{
		offset<nixlBackendEngine>("initErr", &probe::initErr);
		offset<nixlBackendEngine>("localAgent", &probe::localAgent);
		offset<nixlBackendEngine>("enableTelemetry_", &probe::enableTelemetry_);
	}
};

struct list_probe : nixlDescList<nixlMetaDesc> {
	static void print()
	{
		offset<nixlDescList<nixlMetaDesc>>("nixlDescList::type", &list_probe::type);
		offset<nixlDescList<nixlMetaDesc>>("nixlDescList::descs", &list_probe::descs);
	}
};

static void print_numbers()
{
	NUMBER(DRAM_SEG);
	NUMBER(VRAM_SEG);
	NUMBER(NIXL_READ);
	NUMBER(NIXL_WRITE);
	NUMBER(NIXL_IN_PROG);
	NUMBER(NIXL_SUCCESS);
	NUMBER(NIXL_ERR_INVALID_PARAM);
	NUMBER(NIXL_ERR_BACKEND);
	NUMBER(NIXL_ERR_NOT_FOUND);
	NUMBER(NIXL_ERR_MISMATCH);
	NUMBER(NIXL_ERR_NOT_ALLOWED);
	NUMBER(NIXL_ERR_REPOST_ACTIVE);
	NUMBER(NIXL_ERR_NOT_SUPPORTED);
	NUMBER(NIXL_ERR_REMOTE_DISCONNECT);
	NUMBER(NIXL_ERR_CANCELED);
	NUMBER(NIXL_PLUGIN_API_VERSION);
}

static void print_structures()
{
	SIZE(nixl_mem_t);
	SIZE(nixl_status_t);
	SIZE(nixlBackendEngine);
	SIZE(nixlBackendPlugin);
	SIZE(nixlBackendInitParams);
	SIZE(nixlBackendOptionalArgs);
	SIZE(nixlBackendReqH);
	SIZE(nixlBackendMD);
	SIZE(nixlBasicDesc);
	SIZE(nixlBlobDesc);
	SIZE(nixlMetaDesc);
	SIZE(nixl_meta_dlist_t);
	SIZE(notif_list_t);
	SIZE(nixl_b_params_t);
	OFFSET(nixlBackendInitParams, localAgent);
	OFFSET(nixlBackendInitParams, type);
	OFFSET(nixlBackendInitParams, customParams);
	OFFSET(nixlBackendInitParams, enableProgTh);
	OFFSET(nixlBackendInitParams, enableTelemetry_);
	OFFSET(nixlBackendOptionalArgs, notifMsg);
	OFFSET(nixlBackendOptionalArgs, hasNotif);
	OFFSET(nixlBasicDesc, addr);
	OFFSET(nixlBasicDesc, len);
	OFFSET(nixlBasicDesc, devId);
	OFFSET(nixlBlobDesc, metaInfo);
	OFFSET(nixlMetaDesc, metadataP);
	OFFSET(nixlBackendPlugin, api_version);
	OFFSET(nixlBackendPlugin, create_engine);
	OFFSET(nixlBackendPlugin, destroy_engine);
	OFFSET(nixlBackendPlugin, get_plugin_name);
	OFFSET(nixlBackendPlugin, get_plugin_version);
	OFFSET(nixlBackendPlugin, get_backend_options);
	OFFSET(nixlBackendPlugin, get_backend_mems);
	probe::print();
	list_probe::print();
	static_assert(std::has_virtual_destructor_v<nixlBackendEngine> &&
		      std::has_virtual_destructor_v<nixlBackendMD> && std::has_virtual_destructor_v<nixlBackendReqH>);
}

static void print_places()
{
	using engine = nixlBackendEngine;

	place("supportsRemote", &engine::supportsRemote);
	place("supportsLocal", &engine::supportsLocal);
	place("supportsNotif", &engine::supportsNotif);
	place("getSupportedMems", &engine::getSupportedMems);
	place("registerMem", &engine::registerMem);
	place("deregisterMem", &engine::deregisterMem);
	place("connect", &engine::connect);
	place("disconnect", &engine::disconnect);
	place("unloadMD", &engine::unloadMD);
	place("prepXfer", &engine::prepXfer);
	place("postXfer", &engine::postXfer);
	place("checkXfer", &engine::checkXfer);
	place("releaseReqH", &engine::releaseReqH);
	place("releaseMemView", &engine::releaseMemView);
	place("getPublicData", &engine::getPublicData);
	place("getConnInfo", &engine::getConnInfo);
	place("loadRemoteConnInfo", &engine::loadRemoteConnInfo);
	place("loadRemoteMD", &engine::loadRemoteMD);
	place("loadLocalMD", &engine::loadLocalMD);
	place("getNotifs", &engine::getNotifs);
	place("genNotif", &engine::genNotif);
	place("queryMem", &engine::queryMem);
	place("estimateXferCost", &engine::estimateXferCost);
}

int main()
{
	print_numbers();
	print_structures();
	print_places();
	return 0;
}
