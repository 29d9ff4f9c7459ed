/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Network plugins of NCCL for tests of `peerlane check`, one for each value of PLUGIN_KIND. Loading a plugin runs its
 * constructor. Their functions must not be called.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GOOD 0
#define HANGS 1
#define CRASHES 2
#define EXITS 3
#define BAD_NAME 4
#define NO_TABLE 5
#define CONNECTS 6
#define OLD 7
#define LONG_NAME 8

struct table {
	const char *name;
	int (*init)(void);
};

static __attribute__((unused)) int must_not_be_called(void)
{
	abort();
}

#if PLUGIN_KIND == GOOD
struct table ncclNetPlugin_v9 = { "Older", must_not_be_called };
struct table ncclNetPlugin_v11 = { "Good", must_not_be_called };
#elif PLUGIN_KIND == OLD
struct table ncclNetPlugin_v5 = { "Old", must_not_be_called };
#elif PLUGIN_KIND == BAD_NAME
/* An address that no mapping has. */
struct table ncclNetPlugin_v11 = { (const char *)8, must_not_be_called };
#elif PLUGIN_KIND == LONG_NAME
static char name[1000001];
struct table ncclNetPlugin_v11 = { name, must_not_be_called };

static __attribute__((constructor)) void fill_name(void)
{
	memset(name, 'n', sizeof(name) - 1);
	memcpy(name, "\033[31m\n", 6);
}
#elif PLUGIN_KIND == CONNECTS
static char name[32] = "no socket";
struct table ncclNetPlugin_v11 = { name, must_not_be_called };

static __attribute__((constructor)) void connect_somewhere(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0)
		strcpy(name, "made a socket");
	else if (errno != EACCES)
		strcpy(name, "other errno");
}
#elif PLUGIN_KIND != NO_TABLE
struct table ncclNetPlugin_v11 = { "Hostile", must_not_be_called };

static __attribute__((constructor)) void begin(void)
{
	if (PLUGIN_KIND == HANGS)
		for (;;)
			pause();
	if (PLUGIN_KIND == EXITS)
		_exit(0);
	signal(SIGABRT, SIG_DFL);
	abort();
}
#else
int nothing;
#endif
