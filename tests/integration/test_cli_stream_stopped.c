/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands of streams that stood still for a while: the losses that they tell, and the end that they did not see. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/check.h"
#include "support/frames.h"
#include "support/process.h"
#include "support/publishing.h"

#define FRAME 512
#define SLOTS 16
/* A recording has a page for its header, and for the head and the payload of each frame. The last payload is not padded. */
#define PAGE 4096
#define RECORDED (2 * PAGE)

struct rig {
	struct publishing camera;
	char folder[64], file[80];
	FILE *output; /* of the command */
	pid_t command;
};

static void rig_open(struct rig *rig)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;

	strcpy(rig->folder, "/tmp/test_cli_stream_stopped.XXXXXX");
	check(mkdtemp(rig->folder));
	snprintf(rig->file, sizeof(rig->file), "%s/file", rig->folder);
	options.slot_bytes = FRAME;
	options.slots = SLOTS;
	publishing_open(&rig->camera, "cam0", &options);
}

static void rig_close(struct rig *rig)
{
	publishing_close(&rig->camera);
	unlink(rig->file);
	check(rmdir(rig->folder) == 0);
}

/* Starts the command with these arguments, which end with NULL. Its output is rig->output. */
static void start(struct rig *rig, const char *const *arguments)
{
	int output[2];

	check(pipe(output) == 0);
	rig->command = process_fork();
	if (rig->command == 0) {
		dup2(output[1], STDOUT_FILENO);
		close(output[0]);
		close(output[1]);
		unsetenv("PEERLANE_KEY_FILE");
		execv(getenv("PEERLANE"), (char *const *)arguments);
		_exit(127);
	}
	close(output[1]);
	rig->output = fdopen(output[0], "r");
}

/* Starts a command with up to two options, and waits for its subscription. */
static void start_command(struct rig *rig, const char *command, const char *option, const char *other)
{
	const char *const arguments[] = { "peerlane",   command, rig->camera.address, "cam0", "--json",
					  "--queue=16", "--to",  rig->file,           option, other,
					  NULL };
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	start(rig, arguments);
	while (info.subscribers == 0) {
		sleep_ms(1);
		check(pl_publisher_query(rig->camera.publisher, &info) == 0);
	}
}

/* Waits until the file has this size: the command has written its frames. */
static void await_size(const struct rig *rig, off_t size)
{
	struct stat status;

	while (stat(rig->file, &status) < 0 || status.st_size < size)
		sleep_ms(1);
}

static void publish_frames(struct rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		publish_filled(rig->camera.publisher, FRAME);
}

static void skip_frames(struct rig *rig, uint64_t sequence)
{
	struct pl_error error;

	check_ok(pl_publisher_skip(rig->camera.publisher, sequence, AMPLE_TIME, &error), &error);
}

static uint64_t read_member(const char *text, const char *member)
{
	char name[40];
	const char *at;

	snprintf(name, sizeof(name), "\"%s\": ", member);
	at = strstr(text, name);
	check(at);
	return strtoull(at + strlen(name), NULL, 10);
}

/* Compares results with "frames", "lost", and the accounts. */
static void check_results(const char *text, uint64_t frames, uint64_t lost, const struct pl_accounts *accounts)
{
	const struct {
		const char *member;
		uint64_t value;
	} expected[] = {
		{ "frames", frames },
		{ "lost", lost },
		{ "delivered", accounts->delivered },
		{ "lapped", accounts->lapped },
		{ "dropped", accounts->dropped },
		{ "rejected", accounts->rejected },
		{ "aborted", accounts->aborted },
		{ "missed", accounts->missed },
		{ "unwanted", accounts->unwanted },
		{ "pending", accounts->pending },
		{ "first", accounts->first },
		{ "next", accounts->next },
	};

	for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		if (read_member(text, expected[i].member) != expected[i].value)
			check_failed(__FILE__, __LINE__, "%s is not %llu in %s", expected[i].member,
				     (unsigned long long)expected[i].value, text);
}

/* Waits for the end of the command, with its exit status. */
static void finish_command(struct rig *rig, int status, char text[8192])
{
	size_t length = fread(text, 1, 8191, rig->output);

	text[length] = '\0';
	fclose(rig->output);
	check_number(process_wait(rig->command), status << 8);
}

/*
 * The command takes frame 0. While it stands still, 10 frames are published and 10 sequences are aborted, so that frames 1
 * to 4 are overwritten. The sequences behind the last frame that the command wants do not change what it has lost.
 */
static void losses_before_count(void *argument)
{
	static const struct pl_accounts expected = { .next = 7, .delivered = 3, .lapped = 4 };
	const char *command = argument;
	struct rig rig = { 0 };
	char text[8192];

	rig_open(&rig);
	start_command(&rig, command, "--count=3", NULL);
	publish_frames(&rig, 1);
	await_size(&rig, strcmp(command, "record") ? FRAME : 2 * PAGE + FRAME);
	process_stop(rig.command);
	publish_frames(&rig, 10);
	skip_frames(&rig, 21);
	kill(rig.command, SIGCONT);
	finish_command(&rig, 3, text);
	check_results(text, 3, 4, &expected);
	rig_close(&rig);
}

/* Frames 1 and 2 are lapped, and the file has no room for frame 9. The recording neither has nor lost that one. */
static void losses_before_full_disk(void *argument)
{
	static const struct pl_accounts expected = { .next = 9, .delivered = 7, .lapped = 2 };
	/* The part of frame 9 does not stay, and leaves room for the index. */
	const rlim_t size = PAGE + 7 * RECORDED + PAGE + FRAME / 2;
	const struct rlimit limit = { size, size };
	struct rig rig = { 0 };
	char text[8192];

	(void)argument;
	rig_open(&rig);
	start_command(&rig, "record", NULL, NULL);
	publish_frames(&rig, 1);
	await_size(&rig, 2 * PAGE + FRAME);
	process_stop(rig.command);
	check(prlimit(rig.command, RLIMIT_FSIZE, &limit, NULL) == 0);
	publish_frames(&rig, 18);
	kill(rig.command, SIGCONT);
	finish_command(&rig, 1, text);
	check(strstr(text, "\"end\": \"full\"") && strstr(text, "\"indexed\": true"));
	check_results(text, 7, 2, &expected);
	rig_close(&rig);
}

/* Starts a replay of the file at a pace, which waits for a subscriber, and returns its address. */
static void start_replay(struct rig *rig, const char *pace, char address[80])
{
	const char *const arguments[] = { "peerlane",        "replay",  "--listen=127.0.0.1:0",
					  "--json",          pace,      "--allow-block",
					  "--subscribers=1", rig->file, NULL };
	char line[512];

	start(rig, arguments);
	check(fgets(line, sizeof(line), rig->output) && strstr(line, "\"address\":\""));
	check_number(sscanf(strstr(line, "\"address\":\"") + 11, "%79[^\"]", address), 1);
}

/* Takes all frames of a replay at a pace, and compares the accounts of the subscriber. */
static void check_replay(struct rig *rig, const char *pace, const struct pl_accounts *expected)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	char address[80], text[8192];
	struct pl_error error;
	struct pl_peer *peer;
	int rc;

	start_replay(rig, pace, address);
	options.overflow = PL_OVERFLOW_BLOCK;
	check_ok(pl_connect(rig->camera.context, address, AMPLE_TIME, &peer, &error), &error);
	check_ok(pl_subscriber_open(peer, "cam0", &options, AMPLE_TIME, &subscriber, &error), &error);
	while ((rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error)) == 1)
		pl_frame_release(frame);
	check_status(rc, -ENODATA, &error);
	accounts = exact_accounts(subscriber);
	check_number(accounts.first, expected->first);
	check_number(accounts.next, expected->next);
	check_number(accounts.delivered, expected->delivered);
	check_number(accounts.missed, expected->missed);
	check_number(accounts.aborted, expected->aborted);
	pl_subscriber_close(subscriber);
	pl_peer_close(peer);
	finish_command(rig, 0, text);
}

/* Frames 0 to 3 are lapped before the recording has a frame, and 20 to 22 are aborted. A replay tells the same. */
static void losses_before_first_frame(void *argument)
{
	static const struct pl_accounts recorded = { .next = 24, .delivered = 17, .lapped = 4, .aborted = 3 };
	static const struct pl_accounts replayed = { .next = 24, .delivered = 17, .missed = 4, .aborted = 3 };
	struct rig rig = { 0 };
	struct pl_error error;
	char text[8192];

	(void)argument;
	rig_open(&rig);
	start_command(&rig, "record", NULL, NULL);
	process_stop(rig.command);
	publish_frames(&rig, 20);
	kill(rig.command, SIGCONT);
	await_size(&rig, PAGE + 15 * RECORDED + PAGE + FRAME);
	skip_frames(&rig, 23);
	publish_frames(&rig, 1);
	check_ok(pl_publisher_end(rig.camera.publisher, AMPLE_TIME, &error), &error);
	finish_command(&rig, 3, text);
	check_results(text, 17, 4, &recorded);
	check_replay(&rig, "--fast", &replayed);
	rig_close(&rig);
}

#define HOUR (3600 * 1000000000ull)

/* Times of capture of three frames, and the pace of their replay. */
struct capture {
	uint64_t times[3];
	const char *pace;
};

/* The clock of the camera was set back. The later frames are due at once. */
static const struct capture set_back = { { HOUR, 1, 2 }, "--speed=1" };
/* Hours lie between the frames, which are published without pauses. */
static const struct capture hours = { { HOUR, 2 * HOUR, 3 * HOUR }, "--fast" };

static void frames_without_waits(void *argument)
{
	static const struct pl_accounts replayed = { .next = 3, .delivered = 3 };
	const struct capture *capture = argument;
	struct rig rig = { 0 };
	struct pl_error error;
	char text[8192];

	rig_open(&rig);
	start_command(&rig, "record", NULL, NULL);
	for (unsigned i = 0; i < 3; i++) {
		struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
		struct pl_frame_info info;
		struct pl_stream_frame *frame = loan_frame(rig.camera.publisher, &info);

		options.captured = capture->times[i];
		check_ok(pl_frame_publish(frame, &options, &error), &error);
	}
	check_ok(pl_publisher_end(rig.camera.publisher, AMPLE_TIME, &error), &error);
	finish_command(&rig, 0, text);
	check_replay(&rig, capture->pace, &replayed);
	rig_close(&rig);
}

/* The connection is lost before the command learns that the stream has ended. One attempt to connect tells the end. */
static void end_while_cut(void *argument)
{
	struct rig rig = { 0 };
	struct pl_error error;
	struct pl_peer *peer;
	char text[8192];

	(void)argument;
	rig_open(&rig);
	start_command(&rig, "subscribe", "--reconnect=10", NULL);
	publish_frames(&rig, 1);
	await_size(&rig, FRAME);
	process_stop(rig.command);
	check_ok(pl_accept(rig.camera.listener, AMPLE_TIME, &peer, &error), &error);
	pl_peer_close(peer);
	check_one_of(pl_publisher_end(rig.camera.publisher, 0, &error), 0, -ETIMEDOUT);
	kill(rig.command, SIGCONT);
	finish_command(&rig, 0, text);
	check(strstr(text, "\"end\": \"ended\""));
	check_number(read_member(text, "frames"), 1);
	check_ok(pl_accept(rig.camera.listener, AMPLE_TIME, &peer, &error), &error);
	check_one_of(pl_accept(rig.camera.listener, 0, &peer, &error), -EAGAIN, -ETIMEDOUT);
	rig_close(&rig);
}

/* A program accepts the command, and then runs no engine: nothing answers the subscription. --reconnect limits the wait. */
static void mute_publisher(void *argument)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	struct rig rig = { 0 };
	char address[80], limit[32], text[8192];
	const char *const arguments[] = { "peerlane", "subscribe", address,          "cam0",
					  "--json",   limit,       "--timeout=3600", NULL };

	(void)argument;
	/* The connection itself must stand before the limit, also on a busy machine. */
	snprintf(limit, sizeof(limit), "--reconnect=%u", 4 * slowness());
	options.progress = PL_PROGRESS_MANUAL;
	check_ok(pl_open(&context, &options, &error), &error);
	check_ok(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	start(&rig, arguments);
	check_ok(pl_accept(listener, AMPLE_TIME, &peer, &error), &error);
	finish_command(&rig, 1, text);
	check(strstr(text, "\"WAIT-TIMEOUT\""));
	pl_close(context);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "subscribe-count", losses_before_count, "subscribe", 60 },
		{ "record-count", losses_before_count, "record", 60 },
		{ "replay", losses_before_first_frame, NULL, 60 },
		{ "replay-clock", frames_without_waits, (void *)&set_back, 60 },
		{ "replay-fast", frames_without_waits, (void *)&hours, 60 },
		{ "end", end_while_cut, NULL, 60 },
		{ "mute", mute_publisher, NULL, 60 },
		{ "record-full", losses_before_full_disk, NULL, 60 },
	};

	if (!getenv("PEERLANE")) {
		puts("skipped: PEERLANE does not name the command");
		return 77;
	}
	return cases_run("stopped", cases, sizeof(cases) / sizeof(cases[0]));
}
