/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/report.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH_DEFAULT 80
#define WIDTH_MAX 400
#define SVG_WIDTH 640

enum { OPTION_SVG = 0x100, OPTION_PLOT, OPTION_TERMINAL, OPTION_WIDTH, OPTION_GROUPS, OPTION_CSV };

struct report_options {
	struct cli_options common;
	const char *output, *svg, *groups;
	const char **files;
	size_t count;
	enum report_plot plot;
	unsigned width;
	bool plot_given, terminal, csv;
};

static void add_report_file(struct report_options *options, const char *file, struct argp_state *state)
{
	const char **files = reallocarray(options->files, options->count + 1, sizeof(*files));

	if (!files)
		argp_failure(state, CLI_FAILED, errno, "%s", file);
	options->files = files;
	files[options->count++] = file;
}

static void parse_plot_name(struct report_options *options, const char *name, struct argp_state *state)
{
	for (int plot = 0; plot < REPORT_PLOTS; plot++)
		if (!strcmp(name, report_plot_name((enum report_plot)plot))) {
			options->plot = (enum report_plot)plot;
			options->plot_given = true;
			return;
		}
	argp_error(state,
		   "--plot takes bandwidth, frames, latency, percentiles, phases, samples, matrix, matrix-latency or "
		   "goals, not '%s'",
		   name);
}

/* Returns the number of documents that standard output would have. */
static int count_report_outputs(const struct report_options *options)
{
	bool page = options->output && !strcmp(options->output, "-"), svg = options->svg && !strcmp(options->svg, "-");

	return page + svg + (options->common.json || options->csv || options->terminal);
}

/* True if a path ends as the name of a picture. */
static bool names_picture(const char *path)
{
	static const char *const endings[] = { ".svg", ".png", ".jpg", ".jpeg", ".pdf" };
	const char *ending = strrchr(path, '.');

	for (size_t i = 0; ending && i < CLI_ARRAY_SIZE(endings); i++)
		if (!strcasecmp(ending, endings[i]))
			return true;
	return false;
}

static error_t parse_report_option(int key, char *argument, struct argp_state *state)
{
	struct report_options *options = state->input;

	switch (key) {
	case 'o':
		options->output = argument;
		return 0;
	case OPTION_SVG:
		options->svg = argument;
		return 0;
	case OPTION_PLOT:
		parse_plot_name(options, argument, state);
		return 0;
	case OPTION_GROUPS:
		options->groups = argument;
		return 0;
	case OPTION_CSV:
		options->csv = true;
		return 0;
	case OPTION_TERMINAL:
		options->terminal = true;
		return 0;
	case OPTION_WIDTH: {
		char *end;
		unsigned long width = strtoul(argument, &end, 10);

		if (*end || width < 40 || width > WIDTH_MAX)
			argp_error(state, "--width takes a number from 40 to %d, not '%s'", WIDTH_MAX, argument);
		options->width = (unsigned)width;
		return 0;
	}
	case ARGP_KEY_ARG:
		add_report_file(options, argument, state);
		return 0;
	case ARGP_KEY_END:
		if (!options->count)
			argp_error(state, "FILE is missing: the output of peerlane bench --json");
		if (options->output && names_picture(options->output))
			argp_error(state, "--output writes an HTML page: write a picture with --svg FILE");
		if (options->csv && options->common.json)
			argp_error(state, "--json and --csv exclude each other");
		if (count_report_outputs(options) > 1)
			argp_error(state, "--output -, --svg - and other results would both be written to standard "
					  "output");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option report_argp_options[] = {
	{ NULL, 0, NULL, 0, "Output:", 10 },
	{ "output", 'o', "FILE", 0, "Write a self-contained HTML page to FILE (-: standard output)", 10 },
	{ "svg", OPTION_SVG, "FILE", 0, "Write the plot of --plot to FILE, as SVG", 10 },
	{ "plot", OPTION_PLOT, "NAME", 0,
	  "bandwidth, frames, latency, percentiles, phases, samples, matrix, matrix-latency or goals (default: the "
	  "first "
	  "one with data)",
	  10 },
	{ "terminal", OPTION_TERMINAL, NULL, 0, "Draw in the terminal (default without --output and --svg)", 10 },
	{ "csv", OPTION_CSV, NULL, 0,
	  "Print all results, pairs of matrices, findings of hosts and figures with goals as comma-separated values, "
	  "with names in the first line",
	  10 },
	{ "groups", OPTION_GROUPS, "FILE", 0,
	  "Groups of hosts, as of leaf switches: lines of HOSTS and GROUP, to judge matrices", 10 },
	{ "width", OPTION_WIDTH, "N", 0, "Width in characters (default: that of the terminal)", 10 },
	{ 0 },
};

static const struct cli_command report_command = {
	.arguments = "FILE...",
	.summary = "Draw results of peerlane bench --json and runs of peerlane fleet as an HTML page, as an SVG picture, or in "
		   "the terminal.",
	.examples = {
		"peerlane report tcp.json local.json -o report.html",
		"peerlane bench --latency --size 8 --json | peerlane report -",
	},
	.notes = "Several files are compared, such as methods, machines or tools.  FILE may be - for standard input, or a "
		 "folder of peerlane fleet --save.  Of two matrices or two runs of a fleet, the second one is shown with what "
		 "changed since the first one.\n",
	.options = report_argp_options,
	.parse = parse_report_option,
};

static int find_first_plot(const struct report *report, enum report_plot *plot)
{
	for (int i = 0; i < REPORT_PLOTS; i++)
		if (report_plot_available(report, (enum report_plot)i)) {
			*plot = (enum report_plot)i;
			return 0;
		}
	return -ENOENT;
}

static int fail_no_plot(const struct report_options *options, struct pl_error *error)
{
	return cli_fail(error, -ENOENT, "REPORT-NO-PLOT", options->plot_given ? report_plot_name(options->plot) : NULL,
			"omit --plot to draw all plots with data", "the files contain no data for this plot");
}

static int write_page(FILE *file, const void *report)
{
	return report_write_html(report, file);
}

struct picture {
	const struct report *report;
	enum report_plot plot;
};

static int write_picture(FILE *file, const void *argument)
{
	const struct picture *picture = argument;

	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", file);
	return report_draw(picture->report, picture->plot, SVG_WIDTH, true, file);
}

static struct report_terminal describe_terminal(const struct report_options *options)
{
	const char *columns = getenv("COLUMNS");
	unsigned given = columns ? (unsigned)strtoul(columns, NULL, 10) : 0;
	struct winsize size = { .ws_col = 0 };
	struct report_terminal terminal = {
		.height = 16,
		.unicode = !strcmp(nl_langinfo(CODESET), "UTF-8"),
		.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR"),
	};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	terminal.width = options->width ? options->width : size.ws_col ? size.ws_col : given ? given : WIDTH_DEFAULT;
	terminal.width = CLI_MAX(CLI_MIN(terminal.width, (unsigned)WIDTH_MAX), 40u);
	return terminal;
}

static int draw_in_terminal(const struct report_options *options, const struct report *report)
{
	struct report_terminal terminal = describe_terminal(options);
	int rc = 0;

	for (int plot = 0; plot < REPORT_PLOTS && rc == 0; plot++)
		if (options->plot_given
			    ? plot == (int)options->plot
			    : plot != REPORT_PLOT_PERCENTILES && report_plot_available(report, (enum report_plot)plot))
			rc = report_print(report, (enum report_plot)plot, &terminal);
	for (size_t i = 0; i < report->sentence_count && !options->common.quiet; i++) {
		char *text = report->sentences[i].text;

		if (i == 0)
			putchar('\n');
		cli_printable(text, false);
		if (!terminal.unicode)
			for (char *at = text; *at; at++)
				*at = *at & 0x80 ? '?' : *at;
		puts(text);
	}
	return rc;
}

/* True if there is a run of peerlane fleet, which has no plot. */
static bool has_fleet(const struct report *report)
{
	for (size_t i = 0; i < report->document_count; i++)
		if (report->documents[i].fleet)
			return true;
	return false;
}

/* Names the page.  Matrices and fleets have no results of single sizes. */
static void print_written(const struct report_options *options, const struct report *report)
{
	printf("%s: ", options->output);
	if (report->point_count)
		printf("%zu results ", report->point_count);
	printf("from %zu file%s\n", report->document_count, report->document_count == 1 ? "" : "s");
}

static int output_report(struct report_options *options, struct report *report, struct pl_error *error)
{
	struct picture picture;
	int rc = 0;

	if (options->plot_given ? !report_plot_available(report, options->plot)
				: find_first_plot(report, &options->plot) < 0 && (options->svg || !has_fleet(report)))
		return fail_no_plot(options, error);
	picture = (struct picture){ report, options->plot };
	if (options->output)
		rc = cli_write_file(options->output, write_page, report, error);
	if (rc == 0 && options->svg)
		rc = cli_write_file(options->svg, write_picture, &picture, error);
	if (rc < 0)
		return rc;
	if (options->common.json)
		report_print_json(report);
	else if (options->csv)
		report_print_csv(report);
	else if (options->terminal || (!options->output && !options->svg))
		rc = draw_in_terminal(options, report) < 0 ? report_fail_memory(error) : 0;
	else if (!options->common.quiet && options->output && strcmp(options->output, "-") &&
		 (!options->svg || strcmp(options->svg, "-")))
		print_written(options, report);
	return rc;
}

int pl_cli_report(int argc, char **argv)
{
	struct report_options options = { .files = NULL };
	struct report report = { .documents = NULL };
	struct pl_error error;
	int rc = 0;

	cli_parse(&report_command, argc, argv, &options.common, &options);
	report.groups = options.groups;
	for (size_t i = 0; i < options.count && rc == 0; i++)
		rc = report_load(&report, options.files[i], &error);
	if (rc == 0)
		rc = report_finish(&report, &error);
	if (rc == 0)
		rc = report_make_sentences(&report, &error);
	if (rc == 0)
		rc = output_report(&options, &report, &error);
	report_free(&report);
	free(options.files);
	return rc < 0 ? cli_report_for(&options.common, &error) : CLI_OK;
}
