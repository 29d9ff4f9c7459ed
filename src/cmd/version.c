/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/output.h"

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)
#define COMMAND_VERSION STRINGIFY(PL_VERSION_MAJOR) "." STRINGIFY(PL_VERSION_MINOR) "." STRINGIFY(PL_VERSION_PATCH)

static const struct cli_command version_command = {
	.summary = "Print the versions of the command and of the library, and the usable GPUs.",
	.examples = {
		"peerlane version",
		"peerlane version --json | jq -r .library",
	},
};

static void print_usable_gpus(void)
{
	struct pl_gpu_info info = PL_GPU_INFO_INIT;
	struct wrap_line line = { 0 };
	struct pl_error error;
	unsigned number = 0;

	for (; pl_gpu_query(number, &info, &error) == 0; number++)
		printf("cuda:%-3u %s, %s, driver for CUDA %d.%d%s\n", number, info.name, info.pci, info.driver / 1000,
		       info.driver % 1000 / 10, info.dmabuf ? ", dma-buf" : "");
	if (number == 0) {
		wrap_line_add(&line, "cuda     no GPU: %s", error.message);
		wrap_line_print(&line, stdout);
	}
}

static struct json_object *usable_gpus_json(void)
{
	struct json_object *list = json_object_new_array();
	struct pl_gpu_info info = PL_GPU_INFO_INIT;

	for (unsigned number = 0; pl_gpu_query(number, &info, NULL) == 0; number++) {
		struct json_object *gpu = json_object_new_object();

		cli_json_add(gpu, "name", cli_json_text(info.name));
		cli_json_add(gpu, "pci", cli_json_text(info.pci));
		cli_json_add(gpu, "driver", json_object_new_int(info.driver));
		cli_json_add(gpu, "dmabuf", json_object_new_boolean(info.dmabuf));
		json_object_array_add(list, gpu);
	}
	return list;
}

int pl_cli_version(int argc, char **argv)
{
	struct cli_options options = { 0 };
	struct json_object *object;

	cli_parse(&version_command, argc, argv, &options, NULL);
	if (!options.json) {
		printf("peerlane %s\n", COMMAND_VERSION);
		if (!options.quiet)
			printf("library  %s\n", pl_version());
		if (!options.quiet)
			print_usable_gpus();
		return CLI_OK;
	}
	object = json_object_new_object();
	cli_json_add(object, "command", cli_json_text(COMMAND_VERSION));
	cli_json_add(object, "library", cli_json_text(pl_version()));
	cli_json_add(object, "gpus", usable_gpus_json());
	cli_json_print(object, true);
	return CLI_OK;
}
