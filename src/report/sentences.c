/* SPDX-License-Identifier: BSD-2-Clause */
/* Sentences that summarise the results. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "report/fleet.h"
#include "report/goals.h"

#define SENTENCES_MAX 128
#define PHASE_SENTENCES_MAX 4
#define SLOW_PAIRS_MAX 8
#define DIFFERENCE 1.01 /* smaller factors are not worth a sentence */

/* Removes the beginnings of characters that a precision, which counts bytes, has cut. */
static void remove_cut_characters(char *text)
{
	char *to = text;

	for (size_t length; *text; text += length ? length : 1) {
		length = cli_utf8_character(text);
		memmove(to, text, length);
		to += length;
	}
	*to = '\0';
}

int report_add_sentence(struct report *report, bool warning, const char *format, ...)
{
	struct report_sentence *sentence;
	va_list arguments;
	int rc;

	if (report->sentence_count == SENTENCES_MAX)
		return 0;
	sentence = &report->sentences[report->sentence_count];
	va_start(arguments, format);
	rc = vasprintf(&sentence->text, format, arguments);
	va_end(arguments);
	if (rc < 0)
		return -ENOMEM;
	remove_cut_characters(sentence->text);
	sentence->warning = warning;
	report->sentence_count++;
	return 0;
}

bool report_plot_available(const struct report *report, enum report_plot plot)
{
	bool found = false;

	if (plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY) {
		for (size_t i = 0; i < report->document_count; i++)
			found = found || (plot == REPORT_PLOT_MATRIX ? report->documents[i].matrix.rate
								     : report->documents[i].matrix.latency);
	} else if (plot == REPORT_PLOT_GOALS) {
		found = report_has_figures(report);
	} else if (plot == REPORT_PLOT_PHASES) {
		double size;

		found = report_phase_sizes(report, &size, 1) > 0;
	} else {
		struct report_lines lines;

		found = report_lines_make(&lines, report, plot) == 0 && lines.count;
		report_lines_free(&lines);
	}
	return found;
}

struct extreme {
	const struct report_line *line;
	size_t at;
};

static double extreme_value(const struct extreme *extreme)
{
	return extreme->line->y[extreme->at];
}

static struct extreme find_best_point(const struct report_lines *lines, bool high)
{
	struct extreme best = { NULL, 0 };

	for (size_t i = 0; i < lines->count; i++)
		for (size_t j = 0; j < lines->lines[i].count; j++) {
			const struct extreme one = { &lines->lines[i], j };

			if (!best.line || (high ? extreme_value(&one) > extreme_value(&best)
						: extreme_value(&one) < extreme_value(&best)))
				best = one;
		}
	return best;
}

/* Returns the worst point of the other lines at the same size. */
static struct extreme find_worst_other_line(const struct report_lines *lines, const struct extreme *best, bool high)
{
	struct extreme worst = { NULL, 0 };

	for (size_t i = 0; i < lines->count; i++)
		for (size_t j = 0; j < lines->lines[i].count; j++) {
			const struct extreme one = { &lines->lines[i], j };

			if (one.line == best->line || one.line->x[j] != best->line->x[best->at])
				continue;
			if (!worst.line || (high ? extreme_value(&one) < extreme_value(&worst)
						 : extreme_value(&one) > extreme_value(&worst)))
				worst = one;
		}
	return worst;
}

/* Formats a factor: "2.13", "35". */
static const char *format_factor(double ratio, char text[REPORT_TEXT])
{
	snprintf(text, REPORT_TEXT, ratio < 10 ? "%.2f" : "%.0f", ratio);
	return text;
}

static int describe_rate(struct report *report, const struct report_lines *lines)
{
	struct extreme best = find_best_point(lines, true), worst = find_worst_other_line(lines, &best, true);
	char rate[REPORT_TEXT], size[REPORT_TEXT], other[REPORT_TEXT], ratio[REPORT_TEXT], gbits[REPORT_TEXT];
	const struct report_line *line = best.line;
	size_t half = 0;
	int rc;

	report_value(REPORT_UNIT_SIZE, line->x[best.at], size);
	snprintf(gbits, sizeof(gbits), extreme_value(&best) < 1.25e11 ? "%.4g" : "%.0f", extreme_value(&best) / 1.25e8);
	rc = report_add_sentence(report, false, "Highest bandwidth: %s, %s (%s Gbit/s), with messages of %s.",
				 line->series->name, report_value(REPORT_UNIT_RATE, extreme_value(&best), rate), gbits,
				 size);
	if (rc == 0 && worst.line && extreme_value(&worst) > 0 &&
	    extreme_value(&best) > extreme_value(&worst) * DIFFERENCE)
		rc = report_add_sentence(
			report, false, "At the same size, the slowest is %s with %s; the fastest is %s times as fast.",
			worst.line->series->name, report_value(REPORT_UNIT_RATE, extreme_value(&worst), other),
			format_factor(extreme_value(&best) / extreme_value(&worst), ratio));
	while (half < best.at && line->y[half] < extreme_value(&best) / 2)
		half++;
	if (rc == 0 && half && half < best.at)
		rc = report_add_sentence(report, false, "Messages of %s reach half of that bandwidth.",
					 report_value(REPORT_UNIT_SIZE, line->x[half], size));
	return rc;
}

static int describe_latency(struct report *report, const struct report_lines *lines)
{
	struct extreme best = find_best_point(lines, false), worst = find_worst_other_line(lines, &best, false);
	bool loaded = !best.line->series->latency;
	char time[REPORT_TEXT], size[REPORT_TEXT], other[REPORT_TEXT], tail[REPORT_TEXT], ratio[REPORT_TEXT];
	double high = best.line->high[best.at];
	int rc;

	report_value(REPORT_UNIT_SIZE, best.line->x[best.at], size);
	report_value(REPORT_UNIT_TIME, high, tail);
	rc = report_add_sentence(report, false, "%s: %s, %s for %s (median)%s%s%s%s.",
				 loaded ? "Shortest time of an operation under load" : "Lowest latency",
				 best.line->series->name, report_value(REPORT_UNIT_TIME, extreme_value(&best), time),
				 size, isnan(high) ? "" : "; 99 % of the operations take at most ",
				 isnan(high) ? "" : tail, "", "");
	if (rc == 0 && worst.line && extreme_value(&worst) > extreme_value(&best) * DIFFERENCE)
		rc = report_add_sentence(
			report, false, "At the same size, the slowest is %s with %s, %s times as long.",
			worst.line->series->name, report_value(REPORT_UNIT_TIME, extreme_value(&worst), other),
			format_factor(extreme_value(&worst) / extreme_value(&best), ratio));
	return rc;
}

/* Begins a sentence, with the file's name if several files have ratios. */
static const char *begin_sentence(const struct report *report, const struct report_document *document, char text[160])
{
	size_t count = 0;

	for (size_t i = 0; i < report->document_count; i++)
		count += cli_json_member(report->documents[i].root, "ratios", json_type_array) != NULL;
	snprintf(text, 160, count > 1 ? "%.140s: with" : "With", document->name);
	return text;
}

static int describe_ratios(struct report *report, const struct report_document *document)
{
	struct json_object *ratios = cli_json_member(document->root, "ratios", json_type_array), *best = NULL;
	double most = 0, ratio, size, low, high;
	char text[REPORT_TEXT], with[160];

	/* Selects the highest ratio. */
	for (size_t i = 0; ratios && i < json_object_array_length(ratios); i++) {
		struct json_object *one = json_object_array_get_idx(ratios, i);

		if (cli_json_member_text(one, "arm") && cli_json_member_text(one, "over") &&
		    report_number(one, "ratio", &ratio) == 0 && ratio > most) {
			most = ratio;
			best = one;
		}
	}
	if (!best || report_number(best, "size", &size) < 0)
		return 0;
	report_number(best, "low", &low);
	report_number(best, "high", &high);
	report_value(REPORT_UNIT_SIZE, size, text);
	if (isnan(low) || isnan(high))
		return report_add_sentence(
			report, false,
			"%s frames of %s, method %s processes %.2f times as many per second as method %s.",
			begin_sentence(report, document, with), text, cli_json_member_text(best, "arm"), most,
			cli_json_member_text(best, "over"));
	return report_add_sentence(
		report, false,
		"%s frames of %s, method %s processes %.2f times as many per second as method %s (rounds: %.2f to "
		"%.2f).",
		begin_sentence(report, document, with), text, cli_json_member_text(best, "arm"), most,
		cli_json_member_text(best, "over"), low, high);
}

static int describe_document(struct report *report, size_t index)
{
	const struct report_document *document = &report->documents[index];
	const char *device = cli_json_member_text(document->root, "device");
	struct json_object *check = cli_json_member(document->root, "check", json_type_object);
	const char *message =
		cli_json_member_text(cli_json_member(document->root, "error", json_type_object), "message");
	const char *summary = cli_json_member_text(check, "summary"), *verdict = cli_json_member_text(check, "verdict");
	int rc = 0;

	if (message)
		rc = report_add_sentence(report, true, "%s: the measurement failed: %s.", document->name, message);
	if (rc == 0 && device && (!strcmp(device, "simulated") || !strcmp(device, "emulated")))
		rc = report_add_sentence(report, true, "%s: the GPU is %s; these results say nothing about a real GPU.",
					 document->name, device);
	if (rc == 0)
		rc = describe_ratios(report, document);
	if (rc == 0 && summary && !report_is_repeated(report, index, "check"))
		rc = report_add_sentence(report, verdict && strcmp(verdict, "ready"),
					 "GPUDirect RDMA on this machine: %s", summary);
	return rc;
}

/* Counts the pairs, in both directions, that an interrupted matrix lacks. */
static int describe_missing_pairs(struct report *report, const struct report_document *document)
{
	struct json_object *complete = cli_json_member(document->root, "complete", json_type_boolean);
	const struct report_matrix *matrix = &document->matrix;
	const double *values = matrix->rate ? matrix->rate : matrix->latency;
	size_t pairs = values ? matrix->ranks * (matrix->ranks - 1) : 0, missing = 0;

	if (!pairs || !complete || json_object_get_boolean(complete))
		return 0;
	for (size_t i = 0; i < matrix->ranks * matrix->ranks; i++)
		missing += i / matrix->ranks != i % matrix->ranks && isnan(values[i]);
	return report_add_sentence(report, true, "%s: the measurement was interrupted: %zu of %zu pairs are missing.",
				   document->name, missing, pairs);
}

/* True if report_describe_fleets() judges the pair: it is between two hosts of many. */
static bool is_judged_pair(const struct report_matrix *matrix, double from, double to)
{
	const size_t *hosts = matrix->judgement ? matrix->judgement->ranks.host : NULL;
	double ranks = (double)matrix->ranks;

	return hosts && from < ranks && to < ranks && hosts[(size_t)from] != hosts[(size_t)to];
}

static int describe_slow_pairs(struct report *report, const struct report_document *document)
{
	struct json_object *slow = cli_json_member(document->root, "slow", json_type_array);
	size_t count = slow ? json_object_array_length(slow) : 0, seen = 0;
	double from, to, value, median;
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++) {
		struct json_object *one = json_object_array_get_idx(slow, i);
		const char *what = cli_json_member_text(one, "what"), *reason = cli_json_member_text(one, "reason");
		bool latency = what && !strcmp(what, "latency");
		char text[REPORT_TEXT], usual[REPORT_TEXT];

		if (report_number(one, "from", &from) < 0 || report_number(one, "to", &to) < 0 ||
		    report_number(one, "value", &value) < 0 || report_number(one, "median", &median) < 0 ||
		    isnan(from) || isnan(to) || is_judged_pair(&document->matrix, from, to) || seen++ >= SLOW_PAIRS_MAX)
			continue;
		report_value(latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE, value, text);
		report_value(latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE, median, usual);
		rc = report_add_sentence(report, true, "Slow: rank %.0f to rank %.0f, %s; the median is %s%s%s.", from,
					 to, text, usual, reason ? ": " : "", reason ? reason : "");
	}
	if (rc == 0 && seen > SLOW_PAIRS_MAX)
		rc = report_add_sentence(report, true, "%zu more pairs are slow.", seen - SLOW_PAIRS_MAX);
	return rc;
}

/* Counts the ranks that have a result with another rank: others were left out, or not measured. */
static size_t count_measured_ranks(const struct report_matrix *matrix, bool latency)
{
	const double *values = latency ? matrix->latency : matrix->rate;
	size_t count = 0;

	for (size_t i = 0; i < matrix->ranks; i++) {
		bool measured = false;

		for (size_t j = 0; j < matrix->ranks && !measured; j++)
			measured = i != j &&
				   !(isnan(values[i * matrix->ranks + j]) && isnan(values[j * matrix->ranks + i]));
		count += measured;
	}
	return count;
}

static int describe_matrix(struct report *report, const struct report_document *document, bool latency)
{
	enum report_unit unit = latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE;
	char low[REPORT_TEXT], middle[REPORT_TEXT], high[REPORT_TEXT], all[32] = "";
	struct report_heat heat;
	size_t count;

	if (!(latency ? document->matrix.latency : document->matrix.rate))
		return 0;
	if (report_heat_make(&heat, &document->matrix, latency, 64) < 0)
		return -ENOMEM;
	free(heat.values);
	count = count_measured_ranks(&document->matrix, latency);
	if (count < document->matrix.ranks)
		snprintf(all, sizeof(all), "of %zu ", document->matrix.ranks);
	return report_add_sentence(report, false, "%s between %zu %sranks: median %s, from %s to %s.",
				   latency ? "Latency" : "Bandwidth", count, all,
				   report_value(unit, heat.median, middle), report_value(unit, heat.least, low),
				   report_value(unit, heat.most, high));
}

static int describe_longest_phase(struct report *report, const struct report_series *series)
{
	const struct report_point *point = series->count ? &series->points[series->count - 1] : NULL;
	double total = point ? report_phase_total(report, point) : 0;
	size_t longest = 0;
	char size[REPORT_TEXT];

	for (size_t i = 1; i < report->phase_count; i++)
		if (point->phases[i] > 0 && !(point->phases[longest] >= point->phases[i]))
			longest = i;
	return report_add_sentence(report, false, "%s: with frames of %s, phase \"%s\" takes %.0f%% of the time.",
				   series->name, report_value(REPORT_UNIT_SIZE, point->size, size),
				   report->phases[longest], 100 * point->phases[longest] / total);
}

static bool series_has_phases(const struct report *report, const struct report_series *series)
{
	return series->count && report_phase_total(report, &series->points[series->count - 1]) > 0;
}

/* True if a series gets a sentence about its phases.  Of many methods only the baselines do. */
static bool is_phase_worth_sentence(const struct report *report, const struct report_series *series)
{
	const char *arm = series->properties[REPORT_METHOD];
	size_t count = 0;

	for (size_t i = 0; i < report->series_count; i++)
		count += series_has_phases(report, &report->series[i]);
	return series_has_phases(report, series) &&
	       (count <= PHASE_SENTENCES_MAX || !strncmp(arm, "A:", 2) || !strncmp(arm, "B:", 2));
}

/* True if a sentence contains the reason; the tables have the route of each result. */
static bool is_reason_mentioned(const struct report *report, const char *reason)
{
	for (size_t i = 0; i < report->sentence_count; i++)
		if (strstr(report->sentences[i].text, reason))
			return true;
	return false;
}

static int describe_series(struct report *report, const struct report_series *series)
{
	const char *staged = NULL;
	size_t wrong = 0;
	int rc = 0;

	for (size_t i = 0; i < series->count; i++) {
		wrong += series->points[i].verified == 0;
		if (series->points[i].route && !strcmp(series->points[i].route, "staged") && !staged)
			staged = series->points[i].reason ? series->points[i].reason : "no reason given";
	}
	if (wrong)
		rc = report_add_sentence(report, true, "%s: the content was WRONG in %zu of %zu results.", series->name,
					 wrong, series->count);
	if (rc == 0 && staged && !is_reason_mentioned(report, staged))
		rc = report_add_sentence(report, false, "%s: the bytes were staged in host memory (%s).", series->name,
					 staged);
	return rc < 0 || !is_phase_worth_sentence(report, series) ? rc : describe_longest_phase(report, series);
}

int report_make_sentences(struct report *report, struct pl_error *error)
{
	struct report_lines rates = { .lines = NULL }, latencies = { .lines = NULL };
	int rc;

	report->sentences = calloc(SENTENCES_MAX, sizeof(*report->sentences));
	rc = report->sentences ? report_lines_make(&rates, report, REPORT_PLOT_BANDWIDTH) : -ENOMEM;
	if (rc == 0)
		rc = report_lines_make(&latencies, report, REPORT_PLOT_LATENCY);
	if (rc == 0 && rates.count)
		rc = describe_rate(report, &rates);
	if (rc == 0 && latencies.count)
		rc = describe_latency(report, &latencies);
	report_lines_free(&rates);
	report_lines_free(&latencies);
	if (rc == 0)
		rc = report_describe_fleets(report);
	for (size_t i = 0; i < report->document_count && rc == 0; i++) {
		rc = report_describe_goals(report, &report->documents[i]);
		if (rc == 0)
			rc = describe_matrix(report, &report->documents[i], false);
		if (rc == 0)
			rc = describe_matrix(report, &report->documents[i], true);
		if (rc == 0)
			rc = describe_missing_pairs(report, &report->documents[i]);
		if (rc == 0)
			rc = describe_slow_pairs(report, &report->documents[i]);
		if (rc == 0)
			rc = describe_document(report, i);
	}
	for (size_t i = 0; i < report->series_count && rc == 0; i++)
		rc = describe_series(report, &report->series[i]);
	return rc < 0 ? report_fail_memory(error) : 0;
}
