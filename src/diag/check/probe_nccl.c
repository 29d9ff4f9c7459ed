/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads NCCL and its network plugins as NCCL does, each in a process of its own. The code of a library runs there as
 * soon as it is loaded, so the process has a time limit and cannot make sockets. No function of a plugin is called, except
 * the one by which Peerlane's plugin judges its variables.
 */
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/printable.h"
#include "diag/check/machine.h"
#include "diag/check/nccl.h"
#include "diag/check/probe.h"

#define TABLE_OLDEST 4
/* A later release may look for more. */
#define TABLE_NEWEST 31

/* Libraries of NCCL have hundreds of megabytes, and may be on the file system of a network. */
#define LOAD_TIMES 3

/* Most bytes of a name in a message: two names fit into a fact. */
#define NAME_TOLD 216

/* Question to one process. */
struct nccl_question {
	struct pl_nccl_candidate candidate;
	char key[24]; /* "nccl.plugin.N" */
};

/* Makes socket(2) fail in this process, also for root. */
static bool forbid_sockets(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = PL_ARRAY_SIZE(filter), .filter = filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Writes a fact without control characters; of a name that may have no end, only the beginning. */
static void tell_nccl_fact(FILE *to, const char *key, const char *what, const char *text)
{
	char copy[PL_FACT_VALUE_MAX + 1];

	pl_copy_printable(copy, sizeof(copy), text);
	fprintf(to, "%s.%s %s\n", key, what, copy);
	fflush(to);
}

static void tell_nccl_file(FILE *to, const char *key, void *library)
{
	struct link_map *map;

	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		tell_nccl_fact(to, key, "file", map->l_name);
}

/* Opens by the loader, or keeps its message. Returns true in `missing` if the file itself is not there. */
static void *open_nccl_name(const char *name, int mode, char message[PL_FACT_VALUE_MAX], bool *missing)
{
	void *library = dlopen(name, mode | RTLD_LOCAL);
	size_t length = strlen(name);

	*missing = false;
	if (library)
		return library;
	snprintf(message, PL_FACT_VALUE_MAX, "%s", dlerror());
	*missing = !strncmp(message, name, length) && message[length] == ':' &&
		   strstr(message, "No such file or directory");
	return NULL;
}

/*
 * The name itself; after any failure libnccl-net-NAME.so, unless the name is a path or the name of a library. The loader finds
 * a folder that has the name, too, such as that of Peerlane's files.
 */
static void *open_nccl_plugin(const struct pl_nccl_candidate *candidate, char message[PL_FACT_VALUE_MAX])
{
	const char *asked = candidate->asked;
	size_t length = strlen(asked);
	bool whole =
		strchr(asked, '/') || (!strncmp(asked, "lib", 3) && length > 3 && !strcmp(asked + length - 3, ".so"));
	char second[PL_NCCL_FILE_MAX + 20], message_too[PL_FACT_VALUE_MAX];
	bool missing, missing_too;
	void *library = open_nccl_name(asked, RTLD_NOW, message, &missing);

	if (library)
		return library;
	if (whole) {
		if (missing)
			snprintf(message, PL_FACT_VALUE_MAX, PL_NCCL_NOT_FOUND "%s", asked);
		return NULL;
	}
	snprintf(second, sizeof(second), "libnccl-net-%s.so", asked);
	library = open_nccl_name(second, RTLD_NOW, message_too, &missing_too);
	if (!library && !missing_too)
		memcpy(message, message_too, PL_FACT_VALUE_MAX);
	else if (!library && missing)
		snprintf(message, PL_FACT_VALUE_MAX, PL_NCCL_NOT_FOUND "neither %.*s nor libnccl-net-%.*s.so",
			 NAME_TOLD, asked, NAME_TOLD, asked);
	return library;
}

/* Tells which tables the plugin has, and the name in the newest one. */
static void tell_nccl_tables(FILE *to, const char *key, void *library)
{
	const char *const *newest = NULL;
	unsigned tables = 0;
	char symbol[32];

	for (unsigned version = TABLE_OLDEST; version <= TABLE_NEWEST; version++) {
		const char *const *table;

		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%u", version);
		table = dlsym(library, symbol);
		if (!table)
			continue;
		tables |= 1u << version;
		newest = table;
	}
	fprintf(to, "%s.tables %u\n", key, tables);
	fflush(to);
	/* The pointer may be wrong: this process may crash. */
	if (newest && *newest)
		tell_nccl_fact(to, key, "name", *newest);
}

/* Asks Peerlane's plugin whether it takes its variables. It would refuse to start with a wrong one. */
static void tell_nccl_settings(FILE *to, const char *key, void *library)
{
	bool (*accepts)(char *wrong, size_t size) = (bool (*)(char *, size_t))dlsym(library, "peerlane_nccl_settings");
	char wrong[PL_FACT_VALUE_MAX] = "";

	if (accepts && !accepts(wrong, sizeof(wrong)))
		tell_nccl_fact(to, key, "error", wrong);
}

static void ask_nccl_plugin(FILE *to, const void *argument)
{
	const struct nccl_question *question = argument;
	char message[PL_FACT_VALUE_MAX] = "";
	void *library;

	if (!forbid_sockets()) {
		tell_nccl_fact(to, question->key, "error",
			       "not loaded: this system has no seccomp(2) to deny it sockets");
		return;
	}
	library = open_nccl_plugin(&question->candidate, message);
	if (!library) {
		tell_nccl_fact(to, question->key, "error", message);
		return;
	}
	tell_nccl_file(to, question->key, library);
	tell_nccl_tables(to, question->key, library);
	tell_nccl_settings(to, question->key, library);
}

static void ask_nccl_library(FILE *to, const void *argument)
{
	const struct nccl_question *question = argument;
	char message[PL_FACT_VALUE_MAX] = "";
	int (*get_version)(int *version);
	void *library;
	int version = 0;
	bool missing;

	if (!forbid_sockets())
		return;
	library = open_nccl_name(question->candidate.asked, RTLD_LAZY, message, &missing);
	if (!library)
		return;
	tell_nccl_file(to, question->key, library);
	get_version = (int (*)(int *))dlsym(library, "ncclGetVersion");
	if (get_version && get_version(&version) == 0)
		fprintf(to, "%s.release %d\n", question->key, version);
}

/* Adds a question and its process. */
static void add_nccl_question(const struct pl_check_machine *machine, struct pl_probe *probe,
			      struct nccl_question *question, const struct pl_nccl_candidate *candidate,
			      const char *kind, size_t number, pl_probe_function run)
{
	char key[PL_FACT_KEY_MAX];

	question->candidate = *candidate;
	snprintf(question->key, sizeof(question->key), "nccl.%s.%zu", kind, number);
	snprintf(key, sizeof(key), "%s.asked", question->key);
	pl_facts_set(machine->facts, key, "%s", candidate->asked);
	snprintf(key, sizeof(key), "%s.reason", question->key);
	pl_facts_set(machine->facts, key, "%d", candidate->reason);
	*probe = (struct pl_probe){ .name = question->key, .run = run, .argument = question };
}

void pl_nccl_ask(const struct pl_check_machine *machine, uint64_t timeout)
{
	struct nccl_question questions[PL_PROBES_MAX];
	struct pl_nccl_candidate plugins[PL_NCCL_PLUGINS_MAX], libraries[PL_NCCL_LIBRARIES_MAX];
	struct pl_probe probes[PL_PROBES_MAX];
	struct pl_nccl *nccl = calloc(1, sizeof(*nccl));
	size_t count = 0, plugin_count, library_count;

	_Static_assert(PL_NCCL_PLUGINS_MAX + PL_NCCL_LIBRARIES_MAX <= PL_PROBES_MAX, "all run together");
	if (!nccl)
		return;
	pl_nccl_variables_ask(machine);
	pl_nccl_variables_take(nccl, machine);
	nccl->asked = true;
	plugin_count = pl_nccl_candidates(machine, nccl, plugins);
	library_count = pl_nccl_library_candidates(machine, libraries);
	for (size_t i = 0; i < plugin_count; i++, count++)
		add_nccl_question(machine, &probes[count], &questions[count], &plugins[i], "plugin", i,
				  ask_nccl_plugin);
	for (size_t i = 0; i < library_count; i++, count++)
		add_nccl_question(machine, &probes[count], &questions[count], &libraries[i], "library", i,
				  ask_nccl_library);
	pl_facts_set(machine->facts, "nccl.asked", "1");
	pl_probe_run(machine->facts, probes, count, LOAD_TIMES * timeout);
	free(nccl);
}
