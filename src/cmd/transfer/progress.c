/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/progress.h"

#include <langinfo.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/common/units.h"
#include "cmd/transfer/service.h"

#define DRAW_INTERVAL (100 * CLI_NS_PER_MS)
#define RATE_INTERVAL (250 * CLI_NS_PER_MS)
/* Weight of the previous rates in the smoothed rate. */
#define RATE_KEEP 0.7
#define LABEL_MAX 28
#define BAR_MAX 40
/* Columns for percent, bytes, rate and time. */
#define NUMBERS_WIDTH 52

void progress_begin(struct progress *progress, bool wanted, const char *label, uint64_t total, uint64_t done)
{
	uint64_t now = cli_now();

	*progress = (struct progress){
		.shown = wanted && total > 0 && isatty(STDERR_FILENO),
		.unicode = !strcmp(nl_langinfo(CODESET), "UTF-8"),
		.label = label,
		.total = total,
		.done = done,
		.rate_at = now,
		.rate_done = done,
	};
}

static unsigned stderr_width(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return 80;
	return size.ws_col;
}

static void update_progress_rate(struct progress *progress, uint64_t now)
{
	uint64_t span = now - progress->rate_at;
	double rate;

	if (span < RATE_INTERVAL)
		return;
	rate = (double)(progress->done - progress->rate_done) * 1e9 / (double)span;
	progress->rate = progress->rate > 0 ? RATE_KEEP * progress->rate + (1 - RATE_KEEP) * rate : rate;
	progress->rate_at = now;
	progress->rate_done = progress->done;
}

static void draw_progress_bar(const struct progress *progress, unsigned width)
{
	unsigned filled = (unsigned)((double)width * (double)progress->done / (double)progress->total);

	for (unsigned i = 0; i < width; i++) {
		if (progress->unicode)
			fputs(i < filled ? "\u2501" : i == filled ? "\u257a" : "\u2500", stderr);
		else
			fputc(i < filled ? '=' : i == filled ? '>' : '.', stderr);
	}
}

/* Draws the label; shortens a long one at its beginning, as paths differ at their end. */
static void draw_progress_label(const char *label)
{
	char clean[CLI_ESCAPED(SERVICE_NAME_MAX)];
	size_t length = strlen(cli_escape(clean, sizeof(clean), label));

	if (length > LABEL_MAX)
		fprintf(stderr, "...%s ", clean + length - (LABEL_MAX - 3));
	else
		fprintf(stderr, "%s ", clean);
}

static void draw_progress_numbers(const struct progress *progress)
{
	char done[CLI_UNIT_MAX], total[CLI_UNIT_MAX], rate[CLI_UNIT_MAX], remaining[CLI_UNIT_MAX];
	double percent = 100.0 * (double)progress->done / (double)progress->total;

	fprintf(stderr, " %3.0f%%  %s of %s", percent, cli_format_bytes(done, progress->done),
		cli_format_bytes(total, progress->total));
	if (progress->rate >= 1)
		fprintf(stderr, "  %s  %s left", cli_format_rate(rate, (uint64_t)progress->rate, CLI_NS_PER_S),
			cli_format_clock(
				remaining,
				(uint64_t)((double)(progress->total - progress->done) / progress->rate + 0.5)));
}

void progress_update(struct progress *progress, uint64_t done)
{
	uint64_t now;
	unsigned width, fixed;

	if (!progress->shown)
		return;
	now = cli_now();
	progress->done = done;
	update_progress_rate(progress, now);
	if (progress->drawn_at && now - progress->drawn_at < DRAW_INTERVAL)
		return;
	progress->drawn_at = now;
	width = stderr_width();
	fixed = (unsigned)CLI_MIN(strlen(progress->label), LABEL_MAX) + 1 + NUMBERS_WIDTH;
	fputc('\r', stderr);
	draw_progress_label(progress->label);
	if (width > fixed + 8)
		draw_progress_bar(progress, CLI_MIN(width - fixed, BAR_MAX));
	draw_progress_numbers(progress);
	fputs("\033[K", stderr);
	fflush(stderr);
}

void progress_end(struct progress *progress)
{
	if (progress->shown && progress->drawn_at)
		fputs("\r\033[K", stderr);
	progress->shown = false;
}
