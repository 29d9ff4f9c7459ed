/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of a publisher that is wrong or unusual, which `peerlane subscribe` reports and never saves. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "stream/publisher.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/frames.h"
#include "support/publishing.h"

#define FRAME 64
/* As in src/cmd/stream/pattern.h. */
#define TEST_TYPE "application/x-peerlane-test"
#define TEST_STEP 0x9e3779b97f4a7c15u

static void open_odd(struct publishing *odd)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;

	options.slot_bytes = 2 * FRAME;
	options.slots = 8;
	options.content_type = TEST_TYPE;
	options.layout = (struct pl_layout){ PL_ELEMENT_UINT, 8, 1, 2, { 8, 8 } };
	publishing_open(odd, "odd", &options);
}

/* Publishes a frame with the test pattern of a sequence. */
static void publish_pattern(struct publishing *odd, uint64_t pattern, uint64_t length, const struct pl_layout *layout)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frame = loan_frame(odd->publisher, &info);
	struct pl_error error = { 0 };
	uint64_t *words = info.data;

	for (uint64_t i = 0; i < FRAME / 8; i++)
		words[i] = htole64(pattern * TEST_STEP + i);
	options.length = length;
	options.layout = layout;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

/* Starts the command in a new folder, with its errors in its output. */
static FILE *start_subscribe(const struct publishing *odd, const char *arguments, const char *folder)
{
	char command[512];
	FILE *output;

	snprintf(command, sizeof(command),
		 "unset PEERLANE_KEY_FILE; cd '%s' && exec timeout 60 '%s' subscribe %s odd --queue 8 %s 2>&1", folder,
		 getenv("PEERLANE"), odd->address, arguments);
	output = popen(command, "re");
	check(output);
	return output;
}

/* Reads the output to its end, and compares the exit status. */
static void finish_subscribe(FILE *output, int status, const char *text)
{
	char all[8192];
	size_t length = fread(all, 1, sizeof(all) - 1, output);

	all[length] = '\0';
	status = pclose(output) == status << 8 ? 0 : -1;
	if (status < 0 || !strstr(all, text))
		fprintf(stderr, "%s", all);
	check_number(status, 0);
	check(strstr(all, text));
}

static void subscribe(const struct publishing *odd, const char *arguments, int status, const char *text)
{
	char folder[] = "/tmp/test_cli_stream_checks.XXXXXX", command[128];

	check(mkdtemp(folder));
	finish_subscribe(start_subscribe(odd, arguments, folder), status, text);
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	check_number(system(command), 0);
}

static void wrong_content(void *argument)
{
	struct publishing odd;

	(void)argument;
	open_odd(&odd);
	publish_pattern(&odd, 0, FRAME, NULL);
	publish_pattern(&odd, 1, FRAME, NULL);
	publish_pattern(&odd, 1, FRAME, NULL); /* as if frame 2 had the bytes of frame 1 */
	publish_pattern(&odd, 3, FRAME, NULL);
	subscribe(&odd, "--start sequence:2 --verify", 1, "frame 2 differs from the test pattern at byte 0 of 64");
	subscribe(&odd, "--start history:4 --verify --json", 1, "\"id\": \"FRAME-CONTENT\"");
	subscribe(&odd, "--start history:1 --count 1 --verify", 0, "1 of 1 frame,");
	publishing_close(&odd);
}

/* Frames that a file of one layout cannot have. */
static void unusual_layouts(void *argument)
{
	static const struct pl_layout other = { PL_ELEMENT_UINT, 8, 1, 2, { 4, 16 } };
	struct publishing odd;

	(void)argument;
	open_odd(&odd);
	publish_pattern(&odd, 0, FRAME, NULL);
	publish_pattern(&odd, 1, FRAME, &other);
	publish_pattern(&odd, 2, FRAME - 1, NULL);
	publish_pattern(&odd, 3, FRAME + 1, NULL);
	subscribe(&odd, "--start sequence:0 --to a.npy", 1, "frame 1 has another layout or length");
	subscribe(&odd, "--start sequence:2 --to a.npy", 1, "[NPY-LAYOUT]");
	subscribe(&odd, "--start sequence:3 --to a.npy", 1, "[NPY-LAYOUT]");
	subscribe(&odd, "--start sequence:2 --count 1 --snapshot a.png", 1, "[FRAME-SHORT]");
	subscribe(&odd, "--start sequence:2 --count 1 --snapshot a.npy", 1, "[FRAME-SHORT]");
	subscribe(&odd, "--start sequence:0 --count 4 --to raw --json", 0, "\"bytes\": 256,");
	subscribe(&odd, "--start sequence:1 --count 1 --snapshot a.png", 0, "1 of 1 frame,");
	publishing_close(&odd);
}

/* A publisher that closes its stream without an end. */
static void closed_stream(void *argument)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct publishing odd;
	char bytes[FRAME];
	FILE *output;

	(void)argument;
	open_odd(&odd);
	output = start_subscribe(&odd, "--to -", "/");
	while (info.subscribers == 0) {
		usleep(1000);
		check_number(pl_publisher_query(odd.publisher, &info), 0);
	}
	publish_pattern(&odd, 0, FRAME, NULL);
	check_number(fread(bytes, 1, FRAME, output), FRAME);
	pl_publisher_close(odd.publisher);
	odd.publisher = NULL;
	finish_subscribe(output, 1, "the publisher was closed before the stream ended");
	publishing_close(&odd);
}

/* A publisher that claims the slot of a frame which the command writes to a pipe, from the slot itself. */
static void overwritten_in_place(void *argument)
{
	enum { LONG_FRAME = 1 << 20, SLOTS = 4 };
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info frame;
	struct pl_error error = { 0 };
	struct publishing odd;
	FILE *output;

	(void)argument;
	open_odd(&odd);
	pl_publisher_close(odd.publisher);
	options.slot_bytes = frame_options.length = LONG_FRAME;
	options.slots = SLOTS;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	check_ok(pl_publisher_open(odd.context, "odd", &options, &odd.publisher, &error), &error);
	output = start_subscribe(&odd, "--in-place --to -", "/");
	while (info.subscribers == 0) {
		usleep(1000);
		check_number(pl_publisher_query(odd.publisher, &info), 0);
	}
	check_ok(pl_frame_publish(loan_frame(odd.publisher, &frame), &frame_options, &error), &error);
	/* The command is writing: a pipe holds less than the frame. */
	check_number(fgetc(output), 0);
	pl_ring_claim(&odd.publisher->ring, SLOTS);
	for (unsigned i = 1; i < LONG_FRAME; i++)
		check_number(fgetc(output), 0);
	finish_subscribe(output, 1, "[FRAME-OVERWRITTEN]");
	publishing_close(&odd);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "wrong-content", wrong_content, NULL, 120 },
		{ "unusual-layouts", unusual_layouts, NULL, 120 },
		{ "closed-stream", closed_stream, NULL, 120 },
		{ "overwritten-in-place", overwritten_in_place, NULL, 120 },
	};

	if (!getenv("PEERLANE")) {
		puts("skipped: PEERLANE does not name the command");
		return 77;
	}
	return cases_run("subscribe", cases, sizeof(cases) / sizeof(cases[0]));
}
