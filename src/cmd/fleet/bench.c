/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane fleet bench`: starts `peerlane bench --matrix` on many hosts, and shows what rank 0 prints. */
#include <stdlib.h>
#include <string.h>

#include "cmd/common/units.h"
#include "cmd/fleet/fleet.h"
#include "cmd/fleet/run.h"

#define TIMEOUT_DEFAULT (3600 * CLI_NS_PER_S)
/* Words before those of the command line. */
#define OWN_WORDS 16u
/* Last lines of messages that are shown of a rank that failed, and number of such ranks. */
#define LINES_SHOWN 8u
#define RANKS_SHOWN 8u

enum { OPTION_RENDEZVOUS = 0x340, OPTION_TIMEOUT };

struct fleet_bench {
	struct fleet_options options; /* of hosts and launcher */
	const char *rendezvous, *output;
	char **words; /* of `peerlane bench` */
	size_t word_count;
	struct host_list hosts;
	const char **command; /* of one host */
	char rank[24], ranks[24];
	char *names; /* of all hosts, by rank */
	struct fleet_progress progress;
	char *text;  /* that rank 0 printed; NULL: no memory */
	int status;  /* exit status of rank 0; negative: it has none of Peerlane */
	bool failed; /* another rank did not end well */
	unsigned shown; /* ranks whose last lines were shown */
};

/* -- command line ------------------------------------------------------------------------------------ */

/* Takes the words behind --. Returns the number of those before it. argp would mix both. */
static int take_words(struct fleet_bench *bench, int argc, char **argv)
{
	int before = 1;

	while (before < argc && strcmp(argv[before], "--") != 0)
		before++;
	bench->words = argv + CLI_MIN(before + 1, argc);
	bench->word_count = (size_t)(argc - CLI_MIN(before + 1, argc));
	return before;
}

static error_t parse_fleet_bench_option(int key, char *argument, struct argp_state *state)
{
	struct fleet_bench *bench = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &bench->options;
		return 0;
	case OPTION_RENDEZVOUS:
		bench->rendezvous = argument;
		return 0;
	case OPTION_TIMEOUT:
		if (cli_parse_seconds(argument, &bench->options.timeout) || !bench->options.timeout)
			argp_error(state, "--timeout takes seconds, such as 600, not '%s'", argument);
		return 0;
	case 'o':
		bench->output = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option fleet_bench_options[] = {
	{ "rendezvous", OPTION_RENDEZVOUS, "HOST:PORT", 0,
	  "Address of the first host, at which the others meet (default: its name, port 19876)", 10 },
	{ "timeout", OPTION_TIMEOUT, "SECONDS", 0, "End the run after this time (default: 3600)", 10 },
	{ NULL, 0, NULL, 0, "Results:", 20 },
	{ "output", 'o', "FILE", 0, "Write the JSON document to FILE, beside the table", 20 },
	{ 0 },
};

static const struct argp_child fleet_bench_children[] = { { &fleet_launch_argp, 0, NULL, 0 }, { 0 } };

static const struct cli_command fleet_bench_command = {
	.arguments = "HOSTS... [-- OPTION OF BENCH...]",
	.summary = "Measure between many hosts: starts `peerlane bench --matrix` on each of them.",
	.examples = {
		"peerlane fleet bench 'gpu[001-032]' -o monday.json -- --key /etc/peerlane/key",
		"peerlane fleet bench --hosts hosts.txt -- --insecure --schedule ring",
	},
	.notes = "The first host is rank 0, which all others must reach.  Options after -- are those of `peerlane bench --matrix`, and "
		 "files that they name lie on the hosts.  A host that cannot be reached, or dies, is left out and named.  `peerlane "
		 "report` draws the document, `peerlane bench compare` compares two.\n"
		 "\n"
		 "Exit status: that of rank 0: 0 all was measured, 1 it failed, 3 hosts were left out.\n",
	.options = fleet_bench_options,
	.parse = parse_fleet_bench_option,
	.children = fleet_bench_children,
};

/* -- run --------------------------------------------------------------------------------------------- */

/* Name of a host without the user that ssh takes before it. */
static const char *address_of(const char *host)
{
	const char *at = strrchr(host, '@');

	return at ? at + 1 : host;
}

static const char *const *command_of_rank(void *user, size_t host)
{
	struct fleet_bench *bench = user;
	size_t count = 0;

	snprintf(bench->rank, sizeof(bench->rank), "%zu", host);
	snprintf(bench->ranks, sizeof(bench->ranks), "%zu", bench->hosts.count);
	bench->command[count++] = bench->options.program;
	bench->command[count++] = "bench";
	bench->command[count++] = "--matrix";
	bench->command[count++] = "--rank";
	bench->command[count++] = bench->rank;
	bench->command[count++] = "--ranks";
	bench->command[count++] = bench->ranks;
	bench->command[count++] = "--host";
	bench->command[count++] = address_of(bench->hosts.names[host]);
	bench->command[count++] = "--rendezvous";
	bench->command[count++] = bench->rendezvous;
	/* Rank 0 names hosts that never join. */
	bench->command[count++] = "--hosts";
	bench->command[count++] = bench->names;
	if (bench->options.common.json) {
		bench->command[count++] = "--json";
	} else if (bench->output) {
		bench->command[count++] = "--output";
		bench->command[count++] = "-";
	}
	for (size_t i = 0; i < bench->word_count; i++)
		bench->command[count++] = bench->words[i];
	bench->command[count] = NULL;
	return bench->command;
}

/* Last line of what a host wrote on standard error that begins a message; "" if there is none. */
static const char *last_message(char *text)
{
	const char *last = "";
	char *rest = text, *line;

	while ((line = strsep(&rest, "\r\n")))
		if (*line && *line != ' ')
			last = line;
	return last;
}

/* Returns the last lines of a text without its final newlines, which it removes. */
static char *last_lines(char *text, unsigned count)
{
	size_t length = strlen(text), at;

	while (length && (text[length - 1] == '\n' || text[length - 1] == '\r'))
		text[--length] = '\0';
	for (at = length; at > 0; at--)
		if (text[at - 1] == '\n' && --count == 0)
			break;
	return text + at;
}

/* Shows the last lines on standard error of a host, if there is more than one. */
static void show_last_lines(struct fleet_bench *bench, size_t host, const struct run_result *result)
{
	char text[RUN_ERRORS_MAX + 1], *rest, *line;
	size_t length;

	memcpy(text, result->errors, sizeof(text));
	rest = last_lines(text, LINES_SHOWN);
	if (bench->shown == RANKS_SHOWN || !strchr(rest, '\n'))
		return;
	bench->shown++;
	while ((line = strsep(&rest, "\n"))) {
		/* ssh ends its own lines with CR LF; a progress line overwrites itself after CR. */
		length = strlen(line);
		if (length && line[length - 1] == '\r')
			line[length - 1] = '\0';
		line = strrchr(line, '\r') ? strrchr(line, '\r') + 1 : line;
		cli_printable(line, false);
		fprintf(stderr, "  %s: %s\n", bench->hosts.names[host], line);
	}
}

static void name_failure(const struct fleet_bench *bench, size_t host, const struct run_result *result)
{
	char errors[RUN_ERRORS_MAX + 1], how[96];
	const char *message;

	snprintf(errors, sizeof(errors), "%s", result->errors);
	message = last_message(errors);
	if (result->end == RUN_TIMEOUT)
		snprintf(how, sizeof(how), "no end within %.0f s", (double)result->limit / CLI_NS_PER_S);
	else if (result->end == RUN_TOO_LONG)
		snprintf(how, sizeof(how), "more output than %u MiB", CLI_DOCUMENT_MAX >> 20);
	else if (result->end == RUN_NO_START)
		snprintf(how, sizeof(how), "the launcher cannot start: %s", strerror(-result->status));
	else if (result->status < 0)
		snprintf(how, sizeof(how), "ended by signal %d", -result->status);
	else
		snprintf(how, sizeof(how), "exit status %d", result->status);
	cli_warn("rank %zu, %s: %s%s%s", host, bench->hosts.names[host], how, *message ? ": " : "", message);
}

/* Shows what rank 0 told on standard error; a host cannot send sequences to the terminal. */
static void show_messages(const struct run_result *result)
{
	char text[RUN_ERRORS_MAX + 1];

	memcpy(text, result->errors, sizeof(text));
	cli_printable(text, true);
	fputs(text, stderr);
}

static void take_rank(void *user, size_t host, const struct run_result *result)
{
	struct fleet_bench *bench = user;
	/* Launchers have statuses of their own, such as 255. */
	bool exited = result->end == RUN_EXITED && result->status >= 0 && result->status <= CLI_OUTPUT;
	bool well = exited && (result->status == CLI_OK || result->status == CLI_DEGRADED);

	if (!well) {
		bench->progress.failed++;
		fleet_progress_end(&bench->progress);
		name_failure(bench, host, result);
		show_last_lines(bench, host, result);
	}
	if (host) {
		bench->failed |= !well;
		return;
	}
	bench->status = exited ? result->status : -1;
	if (well && !bench->options.common.quiet)
		show_messages(result);
	bench->text = strdup(result->output ? result->output : "");
}

static void show_ranks(void *user, const unsigned char *states)
{
	struct fleet_bench *bench = user;

	fleet_progress_show(&bench->progress, &bench->hosts, states);
}

static int run_ranks(struct fleet_bench *bench, struct pl_error *error)
{
	struct launch launch;
	int rc = launch_parse(&launch, bench->options.launch, error);
	struct run_options run = {
		.launch = &launch,
		.hosts = bench->hosts.names,
		.count = bench->hosts.count,
		.command_of = command_of_rank,
		/* All ranks run at the same time. */
		.parallel = (unsigned)bench->hosts.count,
		.timeout = bench->options.timeout,
		.output_max = CLI_DOCUMENT_MAX,
		/* Rank 0 prints the results; 256 ranks with as much output would fill the memory. */
		.first_only = true,
		.last_errors = true,
		.ended = take_rank,
		.progress = show_ranks,
		.user = bench,
	};

	if (rc < 0)
		return rc;
	fleet_progress_begin(&bench->progress, !bench->options.common.quiet);
	rc = run_on_hosts(&run, error);
	fleet_progress_end(&bench->progress);
	launch_free(&launch);
	return rc;
}

/* Returns the names of all hosts by rank, to be freed; NULL without memory. */
static char *join_host_names(const struct host_list *hosts)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	for (size_t i = 0; file && i < hosts->count; i++)
		fprintf(file, "%s%s", i ? "," : "", address_of(hosts->names[i]));
	if (file && fclose(file)) {
		free(text);
		text = NULL;
	}
	return text;
}

static int choose_ranks(struct fleet_bench *bench, struct pl_error *error)
{
	int rc = fleet_choose_hosts(&bench->options, &bench->hosts, error);

	if (rc < 0)
		return rc;
	bench->command = calloc(OWN_WORDS + bench->word_count + 1, sizeof(*bench->command));
	bench->names = join_host_names(&bench->hosts);
	if (!bench->command || !bench->names)
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	if (bench->hosts.count < 2 || bench->hosts.count > RUN_PARALLEL_MAX)
		return cli_fail(
			error, -EINVAL, "FLEET-HOSTS", NULL,
			"name 2 to 256 hosts; for more, start `peerlane bench --matrix` by srun or another launcher",
			"%zu host%s cannot be measured", bench->hosts.count, bench->hosts.count == 1 ? "" : "s");
	if (!bench->rendezvous)
		bench->rendezvous = address_of(bench->hosts.names[0]);
	return 0;
}

/* Returns the JSON document in the output of rank 0; NULL: none. No line of the table before it begins with a brace. */
static char *find_document(char *text)
{
	char *line = *text == '{' ? text : strstr(text, "\n{");

	return line && line != text ? line + 1 : line;
}

/* Prints what rank 0 printed, and writes the document into the file of --output. */
static int write_results(struct fleet_bench *bench, struct pl_error *error)
{
	bool measured = bench->status == CLI_OK || bench->status == CLI_DEGRADED, json = bench->options.common.json;
	char *document;
	int rc = 0;

	if (!bench->text)
		return cli_fail_errno(error, -ENOMEM, "malloc", bench->hosts.names[0]);
	document = bench->output ? find_document(bench->text) : NULL;
	/* Without results an earlier file stays.  A document of --json may be that of an error. */
	if (document && (measured || !json))
		rc = cli_replace_file(bench->output, document, 0644, error);
	if (document && !json)
		*document = '\0';
	fputs(bench->text, stdout);
	if (rc < 0)
		return rc;
	if (bench->output && measured && !document)
		return cli_fail(error, -EPROTO, "FLEET-NO-DOCUMENT", bench->hosts.names[0],
				"see what it printed; try --program PATH", "rank 0 printed no document");
	return 0;
}

int fleet_bench(int argc, char **argv)
{
	struct fleet_bench *bench = calloc(1, sizeof(*bench));
	struct pl_error error;
	int rc, status;

	if (!bench)
		return CLI_FAILED;
	fleet_options_init(&bench->options);
	bench->options.timeout = TIMEOUT_DEFAULT;
	argc = take_words(bench, argc, argv);
	cli_parse(&fleet_bench_command, argc, argv, &bench->options.common, bench);
	rc = choose_ranks(bench, &error);
	status = rc < 0 && rc != -ENOMEM ? CLI_USAGE : CLI_FAILED;
	if (rc == 0)
		rc = run_ranks(bench, &error);
	if (rc == 0)
		rc = write_results(bench, &error);
	if (rc < 0)
		cli_report_for(&bench->options.common, &error);
	else if (bench->status >= 0)
		status = bench->status == CLI_OK && bench->failed ? CLI_DEGRADED : bench->status;
	host_list_free(&bench->hosts);
	fleet_free_options(&bench->options);
	free(bench->command);
	free(bench->names);
	free(bench->text);
	free(bench);
	return status;
}
