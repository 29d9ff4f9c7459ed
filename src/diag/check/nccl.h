/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NCCL as it starts on a machine: its releases, the network plugins that it can load, the variables that decide, and
 * the network that follows from them. Releases 2.19 to 2.30 differ in the rules that nccl.c states.
 */
#ifndef PL_DIAG_CHECK_NCCL_H
#define PL_DIAG_CHECK_NCCL_H

#include "base/base.h"

struct pl_check_machine;

#define PL_NCCL_LIBRARIES_MAX 7
#define PL_NCCL_PLUGINS_MAX 16
#define PL_NCCL_FILE_MAX 256
#define PL_NCCL_NAME_MAX 64
/* NCCL reads as many characters of a variable in its configuration files. */
#define PL_NCCL_VALUE_MAX 1024

enum pl_nccl_variable_id {
	PL_NCCL_NET,
	PL_NCCL_NET_PLUGIN,
	PL_NCCL_NET_PLUGIN_REF_COUNT,
	PL_NCCL_IB_DISABLE,
	PL_NCCL_NET_GDR_LEVEL,
	PL_NCCL_NET_GDR_READ,
	PL_NCCL_DMABUF_ENABLE,
	PL_NCCL_SOCKET_IFNAME,
	PL_NCCL_VARIABLES,
};

struct pl_nccl_variable {
	const char *name;
	bool set; /* an empty value is set, too */
	char value[PL_NCCL_VALUE_MAX];
	char origin[PL_NCCL_FILE_MAX]; /* "environment", or the file */
};

/* libnccl.so.2 in one place. */
struct pl_nccl_library {
	char file[PL_NCCL_FILE_MAX];
	unsigned release; /* 22809: 2.28.9; 0: unknown */
};

enum pl_nccl_reason {
	PL_NCCL_NAMED,     /* NCCL_NET_PLUGIN names the plugin */
	PL_NCCL_DEFAULT,   /* libnccl-net.so, found by the loader of shared libraries */
	PL_NCCL_INSTALLED, /* NCCL does not look there */
};

struct pl_nccl_plugin {
	enum pl_nccl_reason reason;
	char asked[PL_NCCL_FILE_MAX]; /* item of NCCL_NET_PLUGIN, name or path */
	char file[PL_NCCL_FILE_MAX];  /* empty: no file was loaded */
	char name[PL_NCCL_NAME_MAX];  /* empty: unknown, or no table */
	unsigned tables;              /* bit N: the file has ncclNetPlugin_vN */
	bool tried;                   /* a process loaded the file, or failed to */
	char trouble[200];            /* reason why the file is no plugin; empty: the file is one */
};

enum pl_nccl_network {
	PL_NCCL_NETWORK_UNKNOWN,
	PL_NCCL_NETWORK_NONE, /* every communicator fails */
	PL_NCCL_NETWORK_PLUGIN,
	PL_NCCL_NETWORK_IB,
	PL_NCCL_NETWORK_SOCKET,
};

struct pl_nccl {
	bool asked; /* the environment was read, and the plugins were loaded */
	struct pl_nccl_variable variables[PL_NCCL_VARIABLES];
	char unread[PL_NCCL_FILE_MAX]; /* configuration file that was not read; empty: none */
	struct pl_nccl_library libraries[PL_NCCL_LIBRARIES_MAX];
	size_t library_count;
	struct pl_nccl_plugin
		plugins[PL_NCCL_PLUGINS_MAX]; /* in the order in which NCCL tries them; then installed ones */
	size_t plugin_count;
	unsigned release; /* of the library that the loader finds first; 0: unknown */
	enum pl_nccl_network network;
	const struct pl_nccl_plugin *plugin; /* for PL_NCCL_NETWORK_PLUGIN */
	unsigned table;                      /* version of its table */
	char why[200];
};

/* Returns "plugin", "IB", "socket" or "none"; NULL: unknown. */
const char *pl_nccl_network_name(enum pl_nccl_network network);
/* Formats a release as NCCL does: 2.28.9. */
void pl_nccl_format_release(unsigned release, char text[24]);

/* -- for the check ------------------------------------------------------------------------------------- */

/* Patterns of the places of libnccl.so.2; NULL at the end. */
extern const char *const pl_nccl_library_places[];

/*
 * Asks this machine: reads the environment and the user's configuration file, and loads libraries and plugins in
 * processes that have no network, for at most three times `timeout` nanoseconds. Never calls a plugin. Adds facts nccl.*.
 */
void pl_nccl_ask(const struct pl_check_machine *machine, uint64_t timeout);
/* Fills nccl from facts, and from /etc/nccl.conf below the machine's root. */
void pl_nccl_take(struct pl_nccl *nccl, const struct pl_check_machine *machine);

/* Reads variables: from facts, else from /etc/nccl.conf (nccl_variables.c). */
void pl_nccl_variables_take(struct pl_nccl *nccl, const struct pl_check_machine *machine);
/* Sets facts of variables in the environment and in the user's configuration file. */
void pl_nccl_variables_ask(const struct pl_check_machine *machine);
/* True if NCCL takes the variable for a number other than 0. */
bool pl_nccl_is_on(const struct pl_nccl_variable *variable);
/* True if NCCL takes the variable for the number 0. */
bool pl_nccl_is_zero(const struct pl_nccl_variable *variable);

/* Begins the trouble of a plugin whose file is not there. */
#define PL_NCCL_NOT_FOUND "not found: "
bool pl_nccl_not_found(const struct pl_nccl_plugin *plugin);

/* File, or name for the loader, that may be a plugin. */
struct pl_nccl_candidate {
	enum pl_nccl_reason reason;
	char asked[PL_NCCL_FILE_MAX];
};
/* Lists candidates in the order of struct pl_nccl (nccl_places.c). Returns their number. */
size_t pl_nccl_candidates(const struct pl_check_machine *machine, const struct pl_nccl *nccl,
			  struct pl_nccl_candidate candidates[PL_NCCL_PLUGINS_MAX]);
/* Lists places of libnccl.so.2; the first is the name for the loader. Returns their number. */
size_t pl_nccl_library_candidates(const struct pl_check_machine *machine,
				  struct pl_nccl_candidate candidates[PL_NCCL_LIBRARIES_MAX]);

#endif
