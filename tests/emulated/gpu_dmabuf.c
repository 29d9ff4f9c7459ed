/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions over a dma-buf that the program got from the driver or from another exporter. */
#include <fcntl.h>
#include <unistd.h>

#include "emulated/gpu_ends.h"
#include "support/gpu.h"

#define DMABUF_OFFSET ((size_t)8192 + 100)

static struct pl_region *register_exported(struct pl_context *context, uint8_t *memory, bool mappable, void *address)
{
	int fd = emulated_export(memory, MIB, mappable);
	struct pl_region *region;
	struct pl_error error;

	check_ok(pl_region_register_dmabuf(
			 context,
			 &(struct pl_dmabuf){
				 .fd = fd, .offset = DMABUF_OFFSET, .length = MIB - DMABUF_OFFSET, .address = address },
			 PL_ACCESS_ALL, &region, &error),
		 &error);
	close(fd);
	check_number(pl_region_length(region), MIB - DMABUF_OFFSET);
	return region;
}

/* Lets a peer write, read and modify a dma-buf over any fabric.  The processor copies mappable memory. */
static void use_dmabuf(struct scenario_environment *environment, struct buffer *host, bool mappable, bool address)
{
	static const char word[8] = { 1 };
	uint8_t *memory = gpu_allocate(MIB), bytes[1000];
	struct pl_region *region =
		register_exported(environment->far, memory, mappable, address ? memory + DMABUF_OFFSET : NULL);
	bool reached = mappable || address;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_completion receipt;
	struct pl_error error;
	uint64_t old = 0;

	check_text(pl_region_memory(region), address ? "cuda" : "dma-buf");
	check(!pl_region_address(region) == !reached);
	remote = share(environment, region, environment->near_peer, NULL);
	pattern_fill(host->bytes, MIB, 1, 0);
	check_ok(pl_write(environment->near_peer,
			  &(struct pl_transfer){ remote, 0, host->region, 0, MIB - DMABUF_OFFSET }, NULL, &operation,
			  &error),
		 &error);
	complete(environment, operation, &receipt);
	gpu_check_pattern(memory + DMABUF_OFFSET, MIB - DMABUF_OFFSET, 0);
	gpu_check_untouched(memory, DMABUF_OFFSET);
	check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 1, host->region, MIB, 70000 }, NULL,
			 &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	pattern_check(host->bytes + MIB, 70000, 1, 1);
	check_number(pl_region_copy_out(region, 5, bytes, sizeof(bytes), NULL), reached ? 0 : -EFAULT);
	if (reached) {
		pattern_check(bytes, sizeof(bytes), 1, 5);
		check_ok(pl_region_copy_in(region, 4, word, sizeof(word), &error), &error);
		check_ok(pl_fetch_add(environment->near_peer,
				      &(struct pl_atomic){
					      .remote = remote, .remote_offset = 4, .operand = 41, .old = &old },
				      NULL, &operation, &error),
			 &error);
		complete(environment, operation, &receipt);
		check_number(old, 1);
	}
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	gpu_free(memory);
	emulated_check_registered(0);
}

static void dmabufs_refused(struct gpu_ends *ends)
{
	struct pl_options options = setting_options(&gpu_setting);
	uint8_t *memory = gpu_allocate(MIB);
	int fd = emulated_export(memory, MIB, false), none = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct pl_context *tcp;
	struct pl_region *region;
	struct pl_error error;

	check_status(pl_region_register_dmabuf(
			     ends->environment.far,
			     &(struct pl_dmabuf){ .fd = fd, .offset = MIB - 10, .length = 11, .address = NULL }, 0,
			     &region, &error),
		     -ERANGE, &error);
	check_text(error.id, "DMABUF-RANGE");
	check_status(
		pl_region_register_dmabuf(ends->environment.far,
					  &(struct pl_dmabuf){ .fd = none, .offset = 0, .length = 10, .address = NULL },
					  0, &region, &error),
		-EINVAL, &error);
	check_text(error.id, "DMABUF-FD");
	close(none);
	check_status(
		pl_region_register_dmabuf(ends->environment.far,
					  &(struct pl_dmabuf){ .fd = none, .offset = 0, .length = 10, .address = NULL },
					  0, &region, &error),
		-EBADF, &error);
	/* Without a card no transport reaches this dma-buf. */
	options.fabric = "tcp";
	tcp = context_open_with(&options);
	check_status(pl_region_register_dmabuf(
			     tcp, &(struct pl_dmabuf){ .fd = fd, .offset = 0, .length = MIB, .address = NULL }, 0,
			     &region, &error),
		     -ENOTSUP, &error);
	check_text(error.id, "DMABUF-UNREACHABLE");
	pl_close(tcp);
	close(fd);
	gpu_free(memory);
	emulated_check_registered(0);
}

void gpu_dmabuf_case(struct gpu_ends *ends)
{
	static const struct setting others[] = {
		{ .name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .lanes = 1, .slow = true },
		{ .name = "local", .fabric = "local", .host = "127.0.0.1", .lanes = 1, .slow = true },
	};

	/* A device of the other access path does not import a dma-buf. */
	for (unsigned kind = emulated_chosen_path == PATH_DMABUF ? 0 : 2; kind < 4; kind++)
		use_dmabuf(&ends->environment, &ends->host, kind % 2, kind / 2);
	dmabufs_refused(ends);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct scenario_environment environment;
		struct buffer host;

		environment_open(&environment, &others[i]);
		gpu_kind = NULL;
		buffer_open(&host, environment.near, 2 * MIB, PL_ACCESS_ALL);
		gpu_kind = "alloc";
		use_dmabuf(&environment, &host, true, false);
		use_dmabuf(&environment, &host, false, true);
		buffer_close(&host);
		environment_close(&environment);
	}
}
