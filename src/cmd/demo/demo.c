/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/demo/demo.h"

#include <string.h>

#include "cmd/common/units.h"

#define SIZE_DEFAULT (256ull << 20)
#define FRAMES_DEFAULT 64

enum { OPTION_NO_GPU = 0x100, OPTION_INJECT };

static void parse_injected_step(struct demo *demo, const char *text, struct argp_state *state)
{
	static const char *const steps[] = { "gpu-push", "gpu-host", "gpu-write", "gpu-host-write" };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(steps); i++)
		if (!strcmp(text, steps[i]))
			demo->gpu.inject = steps[i];
	if (!demo->gpu.inject)
		argp_error(state, "--inject takes gpu-push, gpu-host, gpu-write or gpu-host-write, not '%s'", text);
}

static error_t parse_demo_option(int key, char *argument, struct argp_state *state)
{
	struct demo *demo = state->input;

	switch (key) {
	case 's':
		if (cli_parse_size(argument, &demo->size) || !demo->size)
			argp_error(state, "--size takes a size, such as 256M, not '%s'", argument);
		return 0;
	case 'n':
		if (cli_parse_number(argument, 1, 1000000, &demo->frames))
			argp_error(state, "--frames takes a number, not '%s'", argument);
		return 0;
	case OPTION_NO_GPU:
		demo->gpu.wanted = false;
		return 0;
	case OPTION_INJECT:
		parse_injected_step(demo, argument, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option demo_options[] = {
	{ "size", 's', "SIZE", 0, "Pull files of at least SIZE bytes in total (default: 256M)", 1 },
	{ "frames", 'n', "N", 0, "Push N frames of 8 MiB (default: 64)", 1 },
	{ "no-gpu", OPTION_NO_GPU, NULL, 0, "Leave GPUs out", 1 },
	{ "inject", OPTION_INJECT, "STEP", 0,
	  "Make one fault in GPU memory, to test its detection: gpu-push, gpu-host, gpu-write or gpu-host-write", 1 },
	{ 0 },
};

static const struct cli_command demo_command = {
	.summary = "Show and verify transfers between two processes of this machine.",
	.examples = {
		"peerlane demo",
		"peerlane demo --encrypt --fabric tcp",
	},
	.notes = "A child process serves compilers, libraries and programs of this machine, as a remote host would.  The "
		 "demo pulls these files with one-sided reads and compares every byte with the file system.  It pushes "
		 "frames of 8 MiB with one-sided writes and compares their hashes with those that the child computes.  "
		 "Then it measures the latency of writes of 8 bytes.  With a GPU, frames and words also move between GPU "
		 "memory of both processes, directly and through host memory, and a kernel checks them.  The demo makes "
		 "its own key and leaves no file behind.\n",
	.options = demo_options,
	.parse = parse_demo_option,
	.connection = true,
};

static void print_demo_start(const struct demo *demo)
{
	char bytes[CLI_UNIT_MAX];

	if (demo->common.quiet || demo->common.json)
		return;
	printf("A second process serves %zu %s of this machine, %s, at %s.\n\n", demo->files.count,
	       demo->files.count == 1 ? "file" : "files", cli_format_bytes(bytes, demo->files.bytes),
	       demo->server.address);
	fflush(stdout);
}

static int run_demo(struct demo *demo, struct pl_error *error)
{
	uint64_t begin = cli_now();
	char gpu_memory[64];
	int rc = demo_files_gather(&demo->files, demo->size, error);

	demo_gpu_query(&demo->gpu);
	if (demo->gpu.count)
		snprintf(gpu_memory, sizeof(gpu_memory), DEMO_GPU_MEMORY "=%llu@cuda:%u",
			 demo_gpu_slots(demo) * DEMO_FRAME, demo->gpu.count - 1);
	if (rc == 0) {
		demo->rounds = (unsigned)((demo->size + demo->files.bytes - 1) / demo->files.bytes);
		rc = demo_server_start(&demo->server, &demo->common, &demo->files, demo->gpu.count ? gpu_memory : NULL,
				       error);
	}
	if (rc == 0)
		rc = session_open(&demo->session, &demo->common, demo->server.address, error);
	if (rc < 0)
		return rc;
	print_demo_start(demo);
	rc = demo_pull(demo, error);
	if (rc == 0)
		rc = demo_push(demo, error);
	if (rc == 0)
		rc = demo_write(demo, error);
	if (rc == 0)
		rc = demo_gpu_run(demo, error);
	demo->nanoseconds = cli_now() - begin;
	session_close(&demo->session);
	return rc;
}

struct demo_total demo_total(const struct demo *demo)
{
	const struct demo_gpu *gpu = &demo->gpu;
	const struct demo_step *steps[] = { &demo->pull, &demo->push, &demo->write, &gpu->push,
					    &gpu->pull,  &gpu->write, &gpu->host,   &gpu->host_write };
	struct demo_total total = { 0 };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(steps); i++) {
		total.bytes += steps[i]->result.bytes;
		total.staged += steps[i]->result.staged;
	}
	return total;
}

int pl_cli_demo(int argc, char **argv)
{
	struct demo demo = { .size = SIZE_DEFAULT,
			     .frames = FRAMES_DEFAULT,
			     .gpu.wanted = true,
			     .server = { .key = -1, .output = -1 } };
	struct pl_error error, stop_error;
	int rc, stopped;

	cli_parse(&demo_command, argc, argv, &demo.common, &demo);
	rc = run_demo(&demo, &error);
	stopped = demo_server_stop(&demo.server, &stop_error);
	if (rc == 0 && stopped < 0) {
		rc = stopped;
		error = stop_error;
	}
	if (demo.common.json)
		demo_print_json(&demo, rc < 0 ? &error : NULL);
	else if (rc == 0)
		demo_print_table(&demo);
	demo_files_free(&demo.files);
	if (rc < 0)
		return cli_report(&error);
	return demo_total(&demo).staged ? CLI_DEGRADED : CLI_OK;
}
