/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/fleet/fleet.h"

#define TERMINAL_INTERVAL (200 * CLI_NS_PER_MS)
#define LINE_INTERVAL (10 * CLI_NS_PER_S)
#define NAMES_SHOWN 4

void fleet_progress_begin(struct fleet_progress *progress, bool wanted)
{
	*progress = (struct fleet_progress){
		.wanted = wanted,
		.terminal = isatty(STDERR_FILENO),
		.begun = cli_now(),
	};
	/* The first line without a terminal comes after the interval: most runs are shorter. */
	if (!progress->terminal)
		progress->shown = progress->begun;
}

static size_t progress_width(void)
{
	struct winsize size;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col ? 80 : size.ws_col;
}

void fleet_progress_show(struct fleet_progress *progress, const struct host_list *hosts, const unsigned char *states)
{
	size_t ended = 0, running = 0, length;
	uint64_t now = cli_now();
	char names[128] = "", line[256];

	if (!progress->wanted ||
	    (progress->shown && now - progress->shown < (progress->terminal ? TERMINAL_INTERVAL : LINE_INTERVAL)))
		return;
	progress->shown = now;
	for (size_t i = 0; i < hosts->count; i++) {
		ended += states[i] == RUN_ENDED;
		if (states[i] != RUN_RUNNING || running++ >= NAMES_SHOWN)
			continue;
		length = strlen(names);
		snprintf(names + length, sizeof(names) - length, "%s%.30s", length ? ", " : "", hosts->names[i]);
	}
	length = (size_t)snprintf(line, sizeof(line), "%zu/%zu ended, %zu failed, %zu running%s%s%s%s %.0f s", ended,
				  hosts->count, progress->failed, running, running ? " (" : "", names,
				  running > NAMES_SHOWN ? ", ..." : "", running ? ")" : "",
				  (double)(now - progress->begun) / CLI_NS_PER_S);
	if (!progress->terminal) {
		fprintf(stderr, "%s\n", line);
		return;
	}
	/* A longer line would wrap, and stay. */
	fprintf(stderr, "\r%.*s\033[K", (int)CLI_MIN(length, progress_width() - 1), line);
	fflush(stderr);
}

void fleet_progress_end(struct fleet_progress *progress)
{
	if (progress->wanted && progress->terminal && progress->shown)
		fputs("\r\033[K", stderr);
	progress->wanted = false;
}
