/* SPDX-License-Identifier: BSD-2-Clause */
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "serve", pl_cli_serve, "publish files and memory to other hosts" },
	{ "list", pl_cli_list, "show what a host publishes" },
	{ "get", pl_cli_get, "fetch files from a host" },
	{ "put", pl_cli_put, "send files to a host" },
	{ "topo", pl_cli_topo, "show which GPU is near which RDMA card" },
	{ "bench", pl_cli_bench, "measure rate and latency between two hosts" },
	{ "report", pl_cli_report, "draw what was measured, as a page or in the terminal" },
	{ "demo", pl_cli_demo, "show and verify all of it on this machine, with two processes" },
	{ "check", pl_cli_check, "find out why GPUDirect RDMA does not work, and what to do" },
	{ "routes", pl_cli_routes, "prove and measure the ways between GPUs and RDMA cards" },
	{ "dump", pl_cli_dump, "capture what check and topo read, to study it elsewhere" },
	{ "version", pl_cli_version, "print the version" },
};

static void print_help(FILE *to)
{
	fputs("Usage: peerlane COMMAND [OPTION...] [ARGUMENT...]\n"
	      "Moves data straight between memory and a remote host.\n"
	      "\n"
	      "Commands:\n",
	      to);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(commands); i++)
		fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\n"
	      "Try it on this machine:\n"
	      "  peerlane demo\n"
	      "\n"
	      "Between two hosts:\n"
	      "  (umask 077; openssl rand -hex 32 > key)         make a key, copy it to the other host\n"
	      "  peerlane serve --key key :" CLI_DEFAULT_PORT " /data           on one host\n"
	      "  peerlane list --key key HOST                    on the other\n"
	      "  peerlane get --key key HOST model.safetensors\n"
	      "\n"
	      "`peerlane COMMAND --help` explains a command, `man peerlane` all of it.\n"
	      "Exit status: 0 fine, 1 failed, 2 wrong usage, 3 works but degraded.\n",
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

	/* argp shows it as the program's name. */
	snprintf(name, sizeof(name), "peerlane %s", command->name);
	argv[0] = name;
	return command->run(argc, argv);
}

static int help(const char *topic)
{
	const struct command *command = topic ? find_command(topic) : NULL;
	char option[] = "--help", *arguments[] = { NULL, option, NULL };

	if (command)
		return run_command(command, 2, arguments);
	print_help(stdout);
	return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct command *command = name ? find_command(name) : NULL;
	char version[] = "version", *arguments[] = { version, NULL };

	if (command)
		return run_command(command, argc - 1, argv + 1);
	if (!name) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "-?"))
		return help(argc > 2 ? argv[2] : NULL);
	if (!strcmp(name, "--version") || !strcmp(name, "-V"))
		return pl_cli_version(1, arguments);
	fprintf(stderr, "peerlane: there is no command '%s'\n  hint: `peerlane --help` shows all commands\n", name);
	return CLI_USAGE;
}

int main(int argc, char **argv)
{
	int status;

	/* Characters only: numbers are written the same way everywhere. */
	setlocale(LC_CTYPE, "");
	/* A reader that went away is an error of the write, not the end of a transfer. */
	signal(SIGPIPE, SIG_IGN);
	/* The same goes for a limit of file sizes. */
	signal(SIGXFSZ, SIG_IGN);
	status = dispatch(argc, argv);
	if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
		status = CLI_FAILED;
	return status;
}
