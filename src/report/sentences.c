/* SPDX-License-Identifier: BSD-2-Clause */
/* What the figures mean, in a few sentences. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

#define SENTENCES_MAX 64
#define PHASES_SAID 4
#define DIFFERENCE 1.01 /* less than that is none worth a sentence */

static int __attribute__((format(printf, 3, 4))) say(struct report *report, bool warning, const char *format, ...)
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
	sentence->warning = warning;
	report->sentence_count++;
	return 0;
}

bool report_has(const struct report *report, enum report_plot plot)
{
	bool found = false;

	if (plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY) {
		for (size_t i = 0; i < report->document_count; i++)
			found = found || (plot == REPORT_PLOT_MATRIX ? report->documents[i].matrix.rate
								     : report->documents[i].matrix.latency);
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

/* -- lines --------------------------------------------------------------------------------------- */

struct extreme {
	const struct report_line *line;
	size_t at;
};

static double value_of(const struct extreme *extreme)
{
	return extreme->line->y[extreme->at];
}

static struct extreme best_of(const struct report_lines *lines, bool high)
{
	struct extreme best = { NULL, 0 };

	for (size_t i = 0; i < lines->count; i++)
		for (size_t j = 0; j < lines->lines[i].count; j++) {
			const struct extreme one = { &lines->lines[i], j };

			if (!best.line || (high ? value_of(&one) > value_of(&best) : value_of(&one) < value_of(&best)))
				best = one;
		}
	return best;
}

/* The worst other line at the same size. */
static struct extreme worst_beside(const struct report_lines *lines, const struct extreme *best, bool high)
{
	struct extreme worst = { NULL, 0 };

	for (size_t i = 0; i < lines->count; i++)
		for (size_t j = 0; j < lines->lines[i].count; j++) {
			const struct extreme one = { &lines->lines[i], j };

			if (one.line == best->line || one.line->x[j] != best->line->x[best->at])
				continue;
			if (!worst.line ||
			    (high ? value_of(&one) < value_of(&worst) : value_of(&one) > value_of(&worst)))
				worst = one;
		}
	return worst;
}

/* "2.13", "35" */
static const char *times(double ratio, char text[REPORT_TEXT])
{
	snprintf(text, REPORT_TEXT, ratio < 10 ? "%.2f" : "%.0f", ratio);
	return text;
}

static int say_rate(struct report *report, const struct report_lines *lines)
{
	struct extreme best = best_of(lines, true), worst = worst_beside(lines, &best, true);
	char rate[REPORT_TEXT], size[REPORT_TEXT], other[REPORT_TEXT], ratio[REPORT_TEXT], gbits[REPORT_TEXT];
	const struct report_line *line = best.line;
	size_t half = 0;
	int rc;

	report_value(REPORT_UNIT_SIZE, line->x[best.at], size);
	snprintf(gbits, sizeof(gbits), value_of(&best) < 1.25e11 ? "%.4g" : "%.0f", value_of(&best) / 1.25e8);
	rc = say(report, false, "Highest bandwidth: %s, %s (%s Gbit/s), with messages of %s.", line->series->name,
		 report_value(REPORT_UNIT_RATE, value_of(&best), rate), gbits, size);
	if (rc == 0 && worst.line && value_of(&worst) > 0 && value_of(&best) > value_of(&worst) * DIFFERENCE)
		rc = say(report, false,
			 "At the same size the slowest is %s with %s: the fastest moves %s times as much.",
			 worst.line->series->name, report_value(REPORT_UNIT_RATE, value_of(&worst), other),
			 times(value_of(&best) / value_of(&worst), ratio));
	while (half < best.at && line->y[half] < value_of(&best) / 2)
		half++;
	if (rc == 0 && half && half < best.at)
		rc = say(report, false, "Half of that bandwidth is reached with messages of %s.",
			 report_value(REPORT_UNIT_SIZE, line->x[half], size));
	return rc;
}

static int say_latency(struct report *report, const struct report_lines *lines)
{
	struct extreme best = best_of(lines, false), worst = worst_beside(lines, &best, false);
	bool loaded = !best.line->series->latency;
	char time[REPORT_TEXT], size[REPORT_TEXT], other[REPORT_TEXT], tail[REPORT_TEXT], ratio[REPORT_TEXT];
	double high = best.line->high[best.at];
	int rc;

	report_value(REPORT_UNIT_SIZE, best.line->x[best.at], size);
	report_value(REPORT_UNIT_TIME, high, tail);
	rc = say(report, false, "%s: %s, %s for %s (half of the operations)%s%s%s%s.",
		 loaded ? "Shortest time of an operation, with others under way" : "Lowest latency",
		 best.line->series->name, report_value(REPORT_UNIT_TIME, value_of(&best), time), size,
		 isnan(high) ? "" : ", and 99 of 100 take at most ", isnan(high) ? "" : tail, "", "");
	if (rc == 0 && worst.line && value_of(&worst) > value_of(&best) * DIFFERENCE)
		rc = say(report, false, "At the same size the slowest is %s with %s, %s times as long.",
			 worst.line->series->name, report_value(REPORT_UNIT_TIME, value_of(&worst), other),
			 times(value_of(&worst) / value_of(&best), ratio));
	return rc;
}

/* -- documents ----------------------------------------------------------------------------------- */

/* "FILE: with", where there are ratios of other files, too. */
static const char *with_file(const struct report *report, const struct report_document *document, char text[160])
{
	size_t count = 0;

	for (size_t i = 0; i < report->document_count; i++)
		count += report_member(report->documents[i].root, "ratios", json_type_array) != NULL;
	snprintf(text, 160, count > 1 ? "%.140s: with" : "With", document->name);
	return text;
}

static int say_ratios(struct report *report, const struct report_document *document)
{
	struct json_object *ratios = report_member(document->root, "ratios", json_type_array), *best = NULL;
	double most = 0, ratio, size, low, high;
	char text[REPORT_TEXT], with[160];

	/* The one that the figures support best: the highest. */
	for (size_t i = 0; ratios && i < json_object_array_length(ratios); i++) {
		struct json_object *one = json_object_array_get_idx(ratios, i);

		if (report_text(one, "arm") && report_text(one, "over") && report_number(one, "ratio", &ratio) == 0 &&
		    ratio > most) {
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
		return say(report, false, "%s frames of %s, arm %s does %.2f times as many per second as arm %s.",
			   with_file(report, document, with), text, report_text(best, "arm"), most,
			   report_text(best, "over"));
	return say(report, false,
		   "%s frames of %s, arm %s does %.2f times as many per second as arm %s (95%% interval: %.2f to "
		   "%.2f).",
		   with_file(report, document, with), text, report_text(best, "arm"), most, report_text(best, "over"),
		   low, high);
}

static int say_document(struct report *report, size_t index)
{
	const struct report_document *document = &report->documents[index];
	const char *device = report_text(document->root, "device");
	struct json_object *check = report_member(document->root, "check", json_type_object);
	const char *message = report_text(report_member(document->root, "error", json_type_object), "message");
	const char *summary = report_text(check, "summary"), *verdict = report_text(check, "verdict");
	int rc = 0;

	if (message)
		rc = say(report, true, "%s: the measurement broke off: %s.", document->name, message);
	if (rc == 0 && device && (!strcmp(device, "simulated") || !strcmp(device, "emulated")))
		rc = say(report, true, "%s: the GPU is %s, so these figures say nothing of a real one.", document->name,
			 device);
	if (rc == 0)
		rc = say_ratios(report, document);
	if (rc == 0 && summary && !report_repeated(report, index, "check"))
		rc = say(report, verdict && strcmp(verdict, "ready"), "GPUDirect RDMA on this machine: %s", summary);
	return rc;
}

static int say_slow(struct report *report, const struct report_document *document)
{
	struct json_object *slow = report_member(document->root, "slow", json_type_array);
	size_t count = slow ? json_object_array_length(slow) : 0;
	double from, to, value, median;
	int rc = 0;

	for (size_t i = 0; i < CLI_MIN(count, 8u) && rc == 0; i++) {
		struct json_object *one = json_object_array_get_idx(slow, i);
		const char *what = report_text(one, "what"), *reason = report_text(one, "reason");
		bool latency = what && !strcmp(what, "latency");
		char text[REPORT_TEXT], usual[REPORT_TEXT];

		if (report_number(one, "from", &from) < 0 || report_number(one, "to", &to) < 0 ||
		    report_number(one, "value", &value) < 0 || report_number(one, "median", &median) < 0 ||
		    isnan(from) || isnan(to))
			continue;
		report_value(latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE, value, text);
		report_value(latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE, median, usual);
		rc = say(report, true, "Slow: rank %.0f to rank %.0f, %s, where %s is usual%s%s.", from, to, text,
			 usual, reason ? ": " : "", reason ? reason : "");
	}
	if (rc == 0 && count > 8)
		rc = say(report, true, "Slow too: %zu more pairs.", count - 8);
	return rc;
}

static int say_matrix(struct report *report, const struct report_document *document, bool latency)
{
	enum report_unit unit = latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE;
	char low[REPORT_TEXT], middle[REPORT_TEXT], high[REPORT_TEXT];
	struct report_heat heat;

	if (!(latency ? document->matrix.latency : document->matrix.rate))
		return 0;
	if (report_heat_make(&heat, &document->matrix, latency, 64) < 0)
		return -ENOMEM;
	free(heat.values);
	return say(report, false, "%s between %zu ranks: %s in the middle, from %s to %s.",
		   latency ? "Latency" : "Bandwidth", document->matrix.ranks, report_value(unit, heat.median, middle),
		   report_value(unit, heat.least, low), report_value(unit, heat.most, high));
}

/* -- series -------------------------------------------------------------------------------------- */

static int say_phase(struct report *report, const struct report_series *series)
{
	const struct report_point *point = series->count ? &series->points[series->count - 1] : NULL;
	double total = point ? report_phase_total(report, point) : 0;
	size_t longest = 0;
	char size[REPORT_TEXT];

	for (size_t i = 1; i < report->phase_count; i++)
		if (point->phases[i] > 0 && !(point->phases[longest] >= point->phases[i]))
			longest = i;
	return say(report, false, "%s: with frames of %s, %.0f%% of the time is \"%s\".", series->name,
		   report_value(REPORT_UNIT_SIZE, point->size, size), 100 * point->phases[longest] / total,
		   report->phases[longest]);
}

static bool has_phases(const struct report *report, const struct report_series *series)
{
	return series->count && report_phase_total(report, &series->points[series->count - 1]) > 0;
}

/* Of many arms, those that the others are measured by. */
static bool worth_a_phase(const struct report *report, const struct report_series *series)
{
	const char *arm = series->parts[REPORT_ARM];
	size_t count = 0;

	for (size_t i = 0; i < report->series_count; i++)
		count += has_phases(report, &report->series[i]);
	return has_phases(report, series) && (count <= PHASES_SAID || !strncmp(arm, "A:", 2) || !strncmp(arm, "B:", 2));
}

/* The figures have the route of each. */
static bool is_said(const struct report *report, const char *reason)
{
	for (size_t i = 0; i < report->sentence_count; i++)
		if (strstr(report->sentences[i].text, reason))
			return true;
	return false;
}

static int say_series(struct report *report, const struct report_series *series)
{
	const char *staged = NULL;
	size_t wrong = 0;
	int rc = 0;

	for (size_t i = 0; i < series->count; i++) {
		wrong += series->points[i].verified == 0;
		if (series->points[i].route && !strcmp(series->points[i].route, "staged") && !staged)
			staged = series->points[i].reason ? series->points[i].reason : "it is not said why";
	}
	if (wrong)
		rc = say(report, true, "%s: the content was WRONG in %zu of %zu results.", series->name, wrong,
			 series->count);
	if (rc == 0 && staged && !is_said(report, staged))
		rc = say(report, false, "%s: the bytes were staged in host memory (%s).", series->name, staged);
	return rc < 0 || !worth_a_phase(report, series) ? rc : say_phase(report, series);
}

int report_say(struct report *report, struct pl_error *error)
{
	struct report_lines rates = { .lines = NULL }, latencies = { .lines = NULL };
	int rc;

	report->sentences = calloc(SENTENCES_MAX, sizeof(*report->sentences));
	rc = report->sentences ? report_lines_make(&rates, report, REPORT_PLOT_BANDWIDTH) : -ENOMEM;
	if (rc == 0)
		rc = report_lines_make(&latencies, report, REPORT_PLOT_LATENCY);
	if (rc == 0 && rates.count)
		rc = say_rate(report, &rates);
	if (rc == 0 && latencies.count)
		rc = say_latency(report, &latencies);
	report_lines_free(&rates);
	report_lines_free(&latencies);
	for (size_t i = 0; i < report->document_count && rc == 0; i++) {
		rc = say_matrix(report, &report->documents[i], false);
		if (rc == 0)
			rc = say_matrix(report, &report->documents[i], true);
		if (rc == 0)
			rc = say_slow(report, &report->documents[i]);
		if (rc == 0)
			rc = say_document(report, i);
	}
	for (size_t i = 0; i < report->series_count && rc == 0; i++)
		rc = say_series(report, &report->series[i]);
	return rc < 0 ? report_no_memory(error) : 0;
}
