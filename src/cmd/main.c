/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/cli.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "serve", pl_cli_serve, "publish files and memory to other hosts" },
	{ "list", pl_cli_list, "list what a server publishes" },
	{ "get", pl_cli_get, "fetch files from a server" },
	{ "put", pl_cli_put, "send files to a server" },
	{ "delete", pl_cli_delete, "delete own uploads at a server" },
	{ "top", pl_cli_top, "watch the clients of a server and their rates" },
	{ "publish", pl_cli_publish, "publish a stream of frames to other hosts" },
	{ "streams", pl_cli_streams, "list the streams of a publisher" },
	{ "subscribe", pl_cli_subscribe, "take, verify and save the frames of a stream" },
	{ "relay", pl_cli_relay, "publish a stream of another host again" },
	{ "record", pl_cli_record, "record a stream into a file" },
	{ "replay", pl_cli_replay, "publish or check a recorded stream" },
	{ "key", pl_cli_key, "make and show identities and group keys" },
	{ "demo", pl_cli_demo, "show and verify all transfers on this machine" },
	{ "check", pl_cli_check, "find out why GPUDirect RDMA does not work, and how to fix it" },
	{ "routes", pl_cli_routes, "test and measure each route between a GPU and an RDMA card" },
	{ "topo", pl_cli_topo, "show which RDMA card is near which GPU" },
	{ "fleet", pl_cli_fleet, "check many hosts, and show which ones fail or differ" },
	{ "dump", pl_cli_dump, "save the input of check and topo for analysis elsewhere" },
	{ "bench", pl_cli_bench, "measure rate and latency between two hosts" },
	{ "report", pl_cli_report, "draw results of bench as a page or in the terminal" },
	{ "version", pl_cli_version, "print the versions and the usable GPUs" },
};

static void print_overview(FILE *to)
{
	fputs("Usage: peerlane COMMAND [OPTION...] [ARGUMENT...]\n"
	      "Moves data directly between the memory of two hosts, by RDMA where possible.\n"
	      "\n"
	      "Commands:\n",
	      to);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(commands); i++)
		fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\n"
	      "Start here, on this machine:\n"
	      "  peerlane demo\n"
	      "  peerlane check\n"
	      "\n"
	      "Between two hosts:\n"
	      "  peerlane key group key                             # then copy key to HOST2\n"
	      "  peerlane serve --key key :" CLI_DEFAULT_PORT " /data              # on HOST1\n"
	      "  peerlane list --key key HOST1                      # on HOST2\n"
	      "  peerlane get --key key HOST1 model.safetensors     # on HOST2\n"
	      "\n"
	      "More help:\n"
	      "  peerlane COMMAND --help    one command, with examples\n"
	      "  peerlane help options      options that most commands share\n"
	      "  man peerlane               the manual\n"
	      "\n"
	      "Exit status: 0 success, 1 failure, 2 wrong usage, 3 success but degraded,\n"
	      "4 the output could not be written.\n",
	      to);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int run_command(const struct command *command, int argc, char **argv)
{
	char name[32];

	/* argp prints argv[0] as the name of the program. */
	snprintf(name, sizeof(name), "peerlane %s", command->name);
	argv[0] = name;
	return command->run(argc, argv);
}

static void print_options_page(void)
{
	puts("Options that the commands share, in addition to their own:\n");
	cli_print_shared_options();
	puts("\n"
	     "An ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n"
	     "See peerlane(1) for details.");
}

static int fail_unknown_command(const char *name)
{
	fprintf(stderr, "peerlane: unknown command '%s'\n  hint: `peerlane --help` lists all commands\n", name);
	return CLI_USAGE;
}

/* Prints help on a command, or with `word` on one of its subcommands, such as "bench kv". */
static int print_help(const char *topic, char *word)
{
	const struct command *command = topic ? find_command(topic) : NULL;
	char option[] = "--help", *arguments[] = { NULL, word ? word : option, word ? option : NULL, NULL };

	if (command)
		return run_command(command, word ? 3 : 2, arguments);
	if (topic && strcmp(topic, "options"))
		return fail_unknown_command(topic);
	if (topic)
		print_options_page();
	else
		print_overview(stdout);
	return CLI_OK;
}

static int run_arguments(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct command *command = name ? find_command(name) : NULL;
	char version[] = "version", *arguments[] = { version, NULL };

	if (command)
		return run_command(command, argc - 1, argv + 1);
	if (!name) {
		print_overview(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "-?"))
		return print_help(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
	if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		return pl_cli_version(1, arguments);
	return fail_unknown_command(name);
}

/*
 * A command that a signal has interrupted ends by that signal, so that loops of a shell end too.  Commands block SIGINT
 * and SIGTERM, and return when one is pending.
 */
static void end_by_pending_signal(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/*
 * Fills the numbers of closed standard descriptors.  Otherwise a file or pipe of the command would get such a number,
 * and with it the output of the command or of its children.  Each descriptor fails as a closed one does.
 */
static void fill_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			return;
}

int main(int argc, char **argv)
{
	int status;

	fill_standard_descriptors();
	/* Only LC_CTYPE: the format of numbers does not depend on the locale. */
	setlocale(LC_CTYPE, "");
	/* A closed pipe and a file size limit are errors of write(2); they must not end a transfer. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	status = cli_finish_output(run_arguments(argc, argv));
	if (status != CLI_OK)
		end_by_pending_signal();
	return status;
}
