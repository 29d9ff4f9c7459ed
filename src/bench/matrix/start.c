/* SPDX-License-Identifier: BSD-2-Clause */
/* Start of a rank: its addresses and memory, and those of all others. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "bench/matrix/run.h"

#define LANES_RANKS 8 /* partners at once up to which the library chooses the number of sockets */

/* Writes the address of an interface, if it is of this family.  Addresses of one link need a scope, which others lack. */
static bool format_interface_address(const struct ifaddrs *interface, int family, char text[INET6_ADDRSTRLEN])
{
	const void *socket = interface->ifa_addr, *address;

	if (!socket || interface->ifa_addr->sa_family != family || !(interface->ifa_flags & IFF_UP))
		return false;
	address = &((const struct sockaddr_in *)socket)->sin_addr;
	if (family == AF_INET6)
		address = &((const struct sockaddr_in6 *)socket)->sin6_addr;
	if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)address))
		return false;
	return inet_ntop(family, address, text, INET6_ADDRSTRLEN);
}

/* Finds an address of this family as find_network_address() does. */
static bool find_family_address(const struct ifaddrs *all, int family, const char *network, char text[INET6_ADDRSTRLEN])
{
	for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
		if (!format_interface_address(at, family, text))
			continue;
		if (network ? !strcmp(at->ifa_name, network) || !strncmp(text, network, strlen(network))
			    : !(at->ifa_flags & IFF_LOOPBACK))
			return true;
	}
	return false;
}

/*
 * Finds the address of an interface, or an address with this beginning, IPv4 first; without `network` the first one that is
 * up and not loopback.
 */
static int find_network_address(const char *network, char address[MATRIX_ADDRESS], struct pl_error *error)
{
	char text[INET6_ADDRSTRLEN];
	struct ifaddrs *all;
	bool four, six;

	if (getifaddrs(&all) < 0)
		return cli_fail_errno(error, -errno, "getifaddrs", NULL);
	four = find_family_address(all, AF_INET, network, text);
	six = !four && find_family_address(all, AF_INET6, network, text);
	freeifaddrs(all);
	if (!four && !six)
		return cli_fail(error, -EADDRNOTAVAIL, "MPI-NETWORK", network,
				"use an interface such as ib0, or the beginning of an address such as 10.1.",
				"no address of this host matches");
	snprintf(address, MATRIX_ADDRESS, six ? "[%s]:0" : "%s:0", text);
	return 0;
}

/* Ends the texts of other ranks, and cuts tokens to their room. */
static void check_gathered(struct matrix *matrix)
{
	for (int i = 0; i < matrix->size; i++) {
		struct matrix_rank *rank = &matrix->ranks[i];

		rank->host[sizeof(rank->host) - 1] = rank->memory[sizeof(rank->memory) - 1] = '\0';
		rank->boot_id[sizeof(rank->boot_id) - 1] = rank->gpu[sizeof(rank->gpu) - 1] = '\0';
		cli_printable(rank->host, false);
		cli_printable(rank->memory, false);
		cli_printable(rank->gpu, false);
	}
	for (int i = 0; i < matrix->size * matrix->rails; i++) {
		struct matrix_end *end = &matrix->ends[i];

		end->address[sizeof(end->address) - 1] = '\0';
		end->token_length = CLI_MIN(end->token_length, (uint32_t)sizeof(end->token));
	}
}

/* Reads the number of the kernel's boot, which differs between machines. */
static void read_boot_id(char *boot_id, size_t size)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!file || !fgets(boot_id, (int)size, file))
		*boot_id = '\0';
	if (file)
		fclose(file);
}

static int gather_hosts(const struct runner *runner, bool *one, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	struct matrix_rank *own = calloc(1, sizeof(*own));
	int rc = own ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	if (rc == 0) {
		snprintf(own->host, sizeof(own->host), "%s", matrix->host);
		read_boot_id(own->boot_id, sizeof(own->boot_id));
		rc = matrix->world->ops->gather(matrix->world, own, sizeof(*own), matrix->ranks, error);
	}
	free(own);
	if (rc < 0)
		return rc;
	check_gathered(matrix);
	matrix_find_hosts(matrix);
	*one = true;
	for (int i = 0; i < matrix->size; i++)
		*one = *one && (matrix->hosts[i] == 0 || !matrix_has_rank(matrix, i));
	return 0;
}

/* Returns the number of earlier ranks on this host. */
static int local_rank(const struct matrix *matrix)
{
	int count = 0;

	for (int i = 0; i < matrix->rank; i++)
		count += matrix->hosts[i] == matrix->hosts[matrix->rank];
	return count;
}

/*
 * Gives each rank of a host a GPU of its own, among those that its process sees: launchers and containers may show each
 * rank one GPU only.
 */
static void choose_gpu(const struct matrix *matrix, struct matrix_rank *own)
{
	unsigned number = (unsigned)local_rank(matrix), count = 0;
	struct pl_gpu_info info = PL_GPU_INFO_INIT;

	while (pl_gpu_query(count, &info, NULL) == 0)
		count++;
	if (count)
		number %= count;
	snprintf(own->memory, sizeof(own->memory), "cuda:%u", number);
	if (pl_gpu_query(number, &info, NULL) == 0)
		snprintf(own->gpu, sizeof(own->gpu), "%s", info.pci);
}

static bool is_same_gpu(const struct matrix_rank *one, const struct matrix_rank *other)
{
	return *one->gpu && !strcmp(one->gpu, other->gpu) && !strcmp(one->boot_id, other->boot_id);
}

/* Returns the first rank with the GPU of a rank. */
static int first_of_gpu(const struct matrix *matrix, int rank)
{
	for (int i = 0; i < rank; i++)
		if (matrix_has_rank(matrix, i) && is_same_gpu(&matrix->ranks[i], &matrix->ranks[rank]))
			return i;
	return rank;
}

/* Rank 0 tells that "cuda" found too few GPUs. */
static void warn_of_shared_gpus(const struct matrix *matrix)
{
	int count = 0, example = 0;

	for (int i = 0; i < matrix->size; i++) {
		if (!matrix_has_rank(matrix, i) || first_of_gpu(matrix, i) == i)
			continue;
		if (!count++)
			example = i;
	}
	if (matrix->rank == 0 && count)
		cli_warn("%d rank%s no GPU of %s own: rank %d (%s) shares %s with rank %d", count,
			 count == 1 ? " has" : "s have", count == 1 ? "its" : "their", example,
			 matrix->ranks[example].host, matrix->ranks[example].gpu, first_of_gpu(matrix, example));
}

static int open_end_memory(struct link_end *end, const char *memory, struct matrix_end *own, struct pl_error *error)
{
	size_t length = CLI_MAX(end->options->size, (uint64_t)MATRIX_LATENCY_SIZE), token_length = sizeof(own->token);
	int rc = pl_region_allocate_in(end->context, memory, length, PL_ACCESS_ALL, &end->region, error);

	if (rc == 0)
		rc = pl_region_share(end->region, NULL, own->token, &token_length, error);
	own->token_length = (uint32_t)token_length;
	return rc;
}

/* Chooses the address of a rail: one that other hosts reach, or loopback if all ranks are on one host. */
static int choose_address(const struct runner *runner, const char *network, bool one, struct matrix_end *own,
			  struct pl_error *error)
{
	struct world *world = runner->matrix->world;

	*own->address = '\0';
	if (one && !network)
		snprintf(own->address, sizeof(own->address), "127.0.0.1:0");
	else if (!network && world->ops->local_address)
		world->ops->local_address(world, own->address, sizeof(own->address));
	return *own->address ? 0 : find_network_address(network, own->address, error);
}

static int open_end(struct runner *runner, int rail, bool one, const char *memory, struct matrix_end *own,
		    struct pl_error *error)
{
	const struct matrix_options *options = runner->options;
	struct link_end *end = &runner->ends[rail];
	struct cli_options common = options->common;
	const char *network = options->network;
	char device[128], network_name[128];
	int rc;

	end->ends = runner->matrix->ends + (size_t)rail * (size_t)runner->matrix->size;
	/* Many connections with several sockets each would exceed the limit of open files. */
	if (runner->width > LANES_RANKS && !common.lanes)
		common.lanes = 1;
	if (options->rails_apart) {
		common.devices = matrix_copy_rail(common.devices, rail, device, sizeof(device));
		network = matrix_copy_rail(network, rail, network_name, sizeof(network_name));
	}
	rc = choose_address(runner, network, one, own, error);
	if (rc == 0)
		rc = cli_open(&end->context, &common, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = pl_listen(end->context, own->address, &end->listener, error);
	if (rc == 0)
		rc = open_end_memory(end, memory, own, error);
	if (rc == 0)
		pl_listener_address(end->listener, own->address, sizeof(own->address));
	return rc;
}

/* Fails if a rank has failed to start, or goes on without it. */
static int judge_starts(struct matrix *matrix, struct pl_error *error)
{
	int rc = 0;

	for (int i = 0; i < matrix->size; i++) {
		if (!matrix->ranks[i].start_failed || !matrix_has_rank(matrix, i))
			continue;
		if (i > 0 && i != matrix->rank && matrix->world->ops->leave_out) {
			if (matrix->rank == 0)
				matrix->world->ops->leave_out(matrix->world, i, "it failed to start");
			else
				matrix->world->gone[i] = 1;
			continue;
		}
		if (rc == 0)
			rc = cli_fail(error, -ECANCELED, "MPI-RANK", matrix->ranks[i].host,
				      "see the error message of that rank", "rank %d failed to start", i);
		matrix->start_failed = true;
	}
	return rc;
}

int runner_start(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	struct matrix_end *ends = calloc((size_t)matrix->rails, sizeof(*ends));
	struct matrix_rank own = { .host = "" };
	struct pl_error other;
	bool one = false;
	int rc = ends ? gather_hosts(runner, &one, error) : cli_fail_errno(error, -ENOMEM, "malloc", NULL),
	    gathered = rc;

	if (rc == 0) {
		own = matrix->ranks[matrix->rank];
		if (!strcmp(runner->options->memory, "cuda"))
			choose_gpu(matrix, &own);
		else
			snprintf(own.memory, sizeof(own.memory), "%s", runner->options->memory);
		for (int rail = 0; rail < matrix->rails && rc == 0; rail++)
			rc = open_end(runner, rail, one, own.memory, &ends[rail], error);
		own.start_failed = rc < 0;
		gathered = matrix->world->ops->gather(matrix->world, &own, sizeof(own), matrix->ranks,
						      rc < 0 ? &other : error);
	}
	for (int rail = 0; rail < matrix->rails && gathered == 0; rail++)
		gathered = matrix->world->ops->gather(matrix->world, &ends[rail], sizeof(*ends),
						      matrix->ends + (size_t)rail * (size_t)matrix->size,
						      rc < 0 ? &other : error);
	free(ends);
	if (gathered < 0)
		return rc < 0 ? rc : gathered;
	check_gathered(matrix);
	gathered = judge_starts(matrix, rc < 0 ? &other : error);
	if (rc == 0 && gathered == 0)
		warn_of_shared_gpus(matrix);
	return rc < 0 ? rc : gathered;
}

void runner_stop(struct runner *runner)
{
	for (int rail = 0; rail < runner->matrix->rails; rail++) {
		struct link_end *end = &runner->ends[rail];

		pl_listener_close(end->listener);
		if (end->region)
			pl_region_deregister(end->region);
		pl_close(end->context);
	}
}
