/* SPDX-License-Identifier: BSD-2-Clause */
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "report/report.h"

#define WIDTH_DEFAULT 80
#define WIDTH_MAX 400
#define SVG_WIDTH 640

enum { OPTION_SVG = 0x100, OPTION_PLOT, OPTION_TERMINAL, OPTION_WIDTH };

struct options {
	struct cli_options common;
	const char *output, *svg;
	const char **files;
	size_t count;
	enum report_plot plot;
	unsigned width;
	bool plot_given, terminal;
};

static void add_file(struct options *options, const char *file, struct argp_state *state)
{
	const char **files = reallocarray(options->files, options->count + 1, sizeof(*files));

	if (!files)
		argp_failure(state, CLI_FAILED, errno, "%s", file);
	options->files = files;
	files[options->count++] = file;
}

static void parse_plot(struct options *options, const char *name, struct argp_state *state)
{
	for (int plot = 0; plot < REPORT_PLOTS; plot++)
		if (!strcmp(name, report_plot_name((enum report_plot)plot))) {
			options->plot = (enum report_plot)plot;
			options->plot_given = true;
			return;
		}
	argp_error(state,
		   "--plot is one of bandwidth, frames, latency, percentiles, phases, samples, matrix, matrix-latency, "
		   "not '%s'",
		   name);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->common;
		return 0;
	case 'o':
		options->output = argument;
		return 0;
	case OPTION_SVG:
		options->svg = argument;
		return 0;
	case OPTION_PLOT:
		parse_plot(options, argument, state);
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
		add_file(options, argument, state);
		return 0;
	case ARGP_KEY_END:
		if (!options->count)
			argp_error(state, "name the FILE that peerlane bench --json wrote");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options_known[] = {
	{ NULL, 0, NULL, 0, "What is made:", 10 },
	{ "output", 'o', "FILE", 0, "Write a page, one file that loads nothing, into FILE (-: standard output)", 10 },
	{ "svg", OPTION_SVG, "FILE", 0, "Write one plot, that of --plot, as a picture into FILE", 10 },
	{ "plot", OPTION_PLOT, "NAME", 0,
	  "bandwidth, frames, latency, percentiles, phases, samples, matrix or matrix-latency (default: the first that "
	  "there is something for)",
	  10 },
	{ "terminal", OPTION_TERMINAL, NULL, 0, "Draw in the terminal (default without the options above)", 10 },
	{ "width", OPTION_WIDTH, "N", 0, "Draw N characters wide (default: as the terminal is)", 10 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	options_known,
	parse,
	"FILE...",
	"Draw what peerlane bench --json measured: as a page, as a picture, or in the terminal."
	"\v"
	"Several files are shown side by side: arms, machines, other tools. FILE may be - for standard input.\n"
	"\n"
	"Examples:\n"
	"  peerlane bench --size 8-16M --json > tcp.json\n"
	"  peerlane report tcp.json\n"
	"  peerlane report tcp.json local.json -o report.html\n"
	"  peerlane report tcp.json --svg rate.svg --plot bandwidth\n"
	"  peerlane bench --latency --size 8 --json | peerlane report -\n",
	children,
	cli_help_filter,
	NULL
};

static int first_plot(const struct report *report, enum report_plot *plot)
{
	for (int i = 0; i < REPORT_PLOTS; i++)
		if (report_has(report, (enum report_plot)i)) {
			*plot = (enum report_plot)i;
			return 0;
		}
	return -ENOENT;
}

static int no_plot(const struct options *options, struct pl_error *error)
{
	return cli_fail(error, -ENOENT, "REPORT-NO-PLOT", options->plot_given ? report_plot_name(options->plot) : NULL,
			"without --plot all is shown that there is", "the files have nothing to draw this from");
}

static int write_to(const struct options *options, const struct report *report, bool page, struct pl_error *error)
{
	const char *path = page ? options->output : options->svg;
	FILE *file = cli_file_open(path, error);
	int rc;

	if (!file)
		return error->code;
	if (page) {
		rc = report_write_html(report, file);
	} else {
		fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", file);
		rc = report_draw(report, options->plot, SVG_WIDTH, true, file);
	}
	return cli_file_close(file, path, rc, error);
}

static struct report_terminal find_terminal(const struct options *options)
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

static int draw_terminal(const struct options *options, const struct report *report)
{
	struct report_terminal terminal = find_terminal(options);
	int rc = 0;

	for (int plot = 0; plot < REPORT_PLOTS && rc == 0; plot++)
		if (options->plot_given ? plot == (int)options->plot
					: plot != REPORT_PLOT_PERCENTILES && report_has(report, (enum report_plot)plot))
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

static int show(struct options *options, struct report *report, struct pl_error *error)
{
	int rc = 0;

	if (options->plot_given ? !report_has(report, options->plot) : first_plot(report, &options->plot) < 0)
		return no_plot(options, error);
	if (options->output)
		rc = write_to(options, report, true, error);
	if (rc == 0 && options->svg)
		rc = write_to(options, report, false, error);
	if (rc < 0)
		return rc;
	if (options->common.json)
		report_print_json(report);
	else if (options->terminal || (!options->output && !options->svg))
		rc = draw_terminal(options, report) < 0 ? report_no_memory(error) : 0;
	else if (!options->common.quiet && options->output && strcmp(options->output, "-") &&
		 (!options->svg || strcmp(options->svg, "-")))
		printf("%s: %zu results of %zu file%s\n", options->output, report->point_count, report->document_count,
		       report->document_count == 1 ? "" : "s");
	return rc;
}

int pl_cli_report(int argc, char **argv)
{
	struct options options = { .files = NULL };
	struct report report = { .documents = NULL };
	struct pl_error error;
	int rc = 0;

	cli_parse(&arguments, argc, argv, &options);
	for (size_t i = 0; i < options.count && rc == 0; i++)
		rc = report_load(&report, options.files[i], &error);
	if (rc == 0)
		rc = report_finish(&report, &error);
	if (rc == 0)
		rc = report_say(&report, &error);
	if (rc == 0)
		rc = show(&options, &report, &error);
	report_free(&report);
	free(options.files);
	return rc < 0 ? cli_report_for(&options.common, &error) : CLI_OK;
}
