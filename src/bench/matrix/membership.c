/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/membership.h"

#include <stdlib.h>
#include <string.h>

#include "bench/matrix/world.h"
#include "cmd/common/units.h"

#define SLURM_PORTS 10000u /* ports of Slurm's runs, from SLURM_PORT_FIRST on: one for each step */
#define SLURM_PORT_FIRST 20000u
#define SLURM_STEPS 7u

/*
 * Launchers, the innermost first: torchrun and mpirun run below srun and Flux too, where all processes of a node have the
 * variables of the one task that Slurm or Flux started. Slurm and Flux give their own tasks the same numbers as PMI.
 */
static const struct launcher {
	const char *rank, *size;
	const char *mark; /* variable without which the launcher is another one; NULL: none */
} launchers[] = {
	{ "PEERLANE_RANK", "PEERLANE_RANKS", NULL },
	{ "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID" },
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL },
	{ "PMI_RANK", "PMI_SIZE", NULL },
	{ "FLUX_TASK_RANK", "FLUX_JOB_SIZE", NULL },
	{ "SLURM_PROCID", "SLURM_NTASKS", NULL },
	{ "RANK", "WORLD_SIZE", NULL },
	{ "JOB_COMPLETION_INDEX", NULL, NULL },
};

static const char *find_variable(const char *name)
{
	const char *value = name ? getenv(name) : NULL;

	return value && *value ? value : NULL;
}

static int read_variable(const char *name, unsigned least, unsigned most, unsigned *value, struct pl_error *error)
{
	const char *text = find_variable(name);

	if (!text)
		return cli_fail(error, -EINVAL, "MATRIX-ENVIRONMENT", name, "give --rank N and --ranks N",
				"the launcher has not set this variable");
	if (cli_parse_number(text, least, most, value))
		return cli_fail(error, -EINVAL, "MATRIX-ENVIRONMENT", name,
				"correct or unset the variable, or give --rank N and --ranks N",
				"'%.40s' is not a number from %u to %u", text, least, most);
	return 0;
}

static const struct launcher *find_launcher(void)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(launchers); i++) {
		const struct launcher *launcher = &launchers[i];

		if (find_variable(launcher->rank) && (!launcher->size || find_variable(launcher->size)) &&
		    (!launcher->mark || find_variable(launcher->mark)))
			return launcher;
	}
	return NULL;
}

/* Reads rank and number of ranks that a launcher has set. */
static int read_launcher(struct membership *membership, const struct launcher *launcher,
			 const struct membership_options *options, struct pl_error *error)
{
	unsigned rank, size = options->ranks > 0 ? (unsigned)options->ranks : 0;
	int rc = read_variable(launcher->rank, 0, INT32_MAX, &rank, error);

	if (rc == 0 && launcher->size)
		rc = read_variable(launcher->size, 1, INT32_MAX, &size, error);
	if (rc < 0)
		return rc;
	if (!size)
		return cli_fail(error, -EINVAL, "MATRIX-ENVIRONMENT", launcher->rank, "add --ranks N",
				"this launcher does not tell the number of ranks");
	if (options->ranks > 0 && size != (unsigned)options->ranks)
		return cli_fail(error, -EINVAL, "MATRIX-RANKS", launcher->size, "omit --ranks",
				"--ranks is %d, and the launcher has started %u ranks", options->ranks, size);
	membership->rank = (int)rank;
	membership->size = (int)size;
	return 0;
}

/* True if two names are of one host: one may have a domain behind its first point. */
static bool is_same_host_name(const char *left, const char *right)
{
	size_t length = strcspn(left, ".");

	return !strcmp(left, right) ||
	       (length == strcspn(right, ".") && !strncmp(left, right, length) && (!left[length] || !right[length]));
}

/* Deals ranks by the position of this host in --hosts. */
static int find_own_host(struct membership *membership, struct pl_error *error)
{
	membership->size = (int)membership->hosts.count;
	for (size_t i = 0; i < membership->hosts.count; i++)
		if (is_same_host_name(membership->hosts.names[i], membership->host)) {
			membership->rank = (int)i;
			return 0;
		}
	return cli_fail(error, -EINVAL, "MATRIX-RANK", membership->host,
			"give --host NAME as it stands in --hosts, or --rank N", "--hosts has no host of this name");
}

static int find_rank(struct membership *membership, const struct membership_options *options, struct pl_error *error)
{
	const struct launcher *launcher = find_launcher();

	if (options->rank >= 0) {
		membership->rank = options->rank;
		membership->size = options->ranks > 0 ? options->ranks : (int)membership->hosts.count;
		return membership->size ? 0
					: cli_fail(error, -EINVAL, "MATRIX-RANK", NULL, "add --ranks N",
						   "--rank needs the number of ranks");
	}
	if (launcher)
		return read_launcher(membership, launcher, options, error);
	if (membership->hosts.count)
		return find_own_host(membership, error);
	return cli_fail(error, -EINVAL, "MATRIX-RANK", NULL,
			"start it by srun, mpirun or torchrun; or give --rank N and --ranks N, or --hosts LIST",
			"no launcher has given this process a rank");
}

static int check_rank(const struct membership *membership, struct pl_error *error)
{
	if (membership->size < 2 || membership->size > WORLD_RANKS_MAX)
		return cli_fail(error, -EINVAL, "MATRIX-RANKS", NULL, "start one process on each host",
				"there %s %d rank%s; 2 to %d are needed", membership->size == 1 ? "is" : "are",
				membership->size, membership->size == 1 ? "" : "s", WORLD_RANKS_MAX);
	if (membership->rank >= membership->size)
		return cli_fail(error, -EINVAL, "MATRIX-RANK", NULL, "count ranks from 0 on",
				"rank %d is not one of %d ranks", membership->rank, membership->size);
	return 0;
}

/* Returns the number of a variable of Slurm, 0 if it is none. */
static unsigned slurm_number(const char *name)
{
	const char *text = find_variable(name);
	unsigned value = 0;

	/* Steps that srun did not start have huge numbers. */
	return text && cli_parse_number(text, 0, UINT32_MAX, &value) == 0 ? value : 0;
}

static unsigned slurm_port(void)
{
	return SLURM_PORT_FIRST +
	       (slurm_number("SLURM_JOB_ID") * SLURM_STEPS + slurm_number("SLURM_STEP_ID")) % SLURM_PORTS;
}

/* True if all ranks are on this host, as mpirun tells. */
static bool has_one_host(const struct membership *membership)
{
	static const char *const counts[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE" };
	unsigned count;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(counts); i++) {
		const char *text = find_variable(counts[i]);

		if (text && cli_parse_number(text, 1, INT32_MAX, &count) == 0 && count == (unsigned)membership->size)
			return true;
	}
	return false;
}

/* Writes HOST:PORT, with brackets around an IPv6 address.  A host with a port keeps it. */
static int set_address(struct membership *membership, const char *host, unsigned port, struct pl_error *error)
{
	const char *colon = strchr(host, ':');
	bool bare = colon && strchr(colon + 1, ':') && host[0] != '[', has_port = colon && !bare;
	int length;

	if (host[0] == '[')
		has_port = strstr(host, "]:");
	if (has_port)
		length = snprintf(membership->address, sizeof(membership->address), "%s", host);
	else
		length = snprintf(membership->address, sizeof(membership->address), bare ? "[%s]:%u" : "%s:%u", host,
				  port);
	colon = strrchr(membership->address, ':');
	if ((size_t)length >= sizeof(membership->address) || colon == membership->address ||
	    cli_parse_number(colon + 1, 1, UINT16_MAX, &port))
		return cli_fail(error, -EINVAL, "MATRIX-ADDRESS", host, "give --rendezvous HOST:PORT",
				"the address of rank 0 needs a host and a port from 1 to 65535");
	return 0;
}

/* Reads MASTER_PORT.  The port after it is free where torchrun's agent listens itself. */
static int read_master_port(unsigned *port, struct pl_error *error)
{
	const char *agent = find_variable("TORCHELASTIC_USE_AGENT_STORE");
	int rc = 0;

	*port = MEMBERSHIP_PORT;
	if (find_variable("MASTER_PORT"))
		rc = read_variable("MASTER_PORT", 1, UINT16_MAX - 1, port, error);
	*port += rc == 0 && agent && !strcmp(agent, "True");
	return rc;
}

static int find_address(struct membership *membership, const struct membership_options *options, struct pl_error *error)
{
	const char *given = options->rendezvous ? options->rendezvous : find_variable("PEERLANE_RENDEZVOUS");
	const char *master = find_variable("MASTER_ADDR");
	unsigned port;
	int rc;

	if (given)
		return set_address(membership, given, MEMBERSHIP_PORT, error);
	if (master) {
		rc = read_master_port(&port, error);
		return rc < 0 ? rc : set_address(membership, master, port, error);
	}
	if (find_variable("SLURM_JOB_ID") && membership->hosts.count)
		return set_address(membership, membership->hosts.names[0], slurm_port(), error);
	if (has_one_host(membership))
		return set_address(membership, "127.0.0.1", MEMBERSHIP_PORT, error);
	if (membership->hosts.count)
		return set_address(membership, membership->hosts.names[0], MEMBERSHIP_PORT, error);
	return cli_fail(error, -EINVAL, "MATRIX-ADDRESS", NULL,
			"give --rendezvous HOST:PORT, with the host of rank 0, or set PEERLANE_RENDEZVOUS",
			"the address of rank 0 is not known");
}

/* Reads the hosts of --hosts, or of Slurm's step. */
static int find_hosts(struct membership *membership, const struct membership_options *options, struct pl_error *error)
{
	static const char *const lists[] = { "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST" };
	const char *list = NULL;

	if (options->hosts)
		return host_list_add(&membership->hosts, options->hosts, error);
	for (size_t i = 0; !list && find_variable("SLURM_PROCID") && i < CLI_ARRAY_SIZE(lists); i++)
		list = find_variable(lists[i]);
	return list ? host_list_add(&membership->hosts, list, error) : 0;
}

/* Names the run, so that ranks of two runs do not mix. */
static void find_run(struct membership *membership, const struct membership_options *options)
{
	const char *elastic = find_variable("TORCHELASTIC_RUN_ID"), *job = find_variable("SLURM_JOB_ID");
	const char *own = options->run ? options->run : find_variable("PEERLANE_RUN");

	if (own || elastic)
		snprintf(membership->run, sizeof(membership->run), "%s", own ? own : elastic);
	else if (job)
		snprintf(membership->run, sizeof(membership->run), "%.24s.%u", job, slurm_number("SLURM_STEP_ID"));
	cli_printable(membership->run, false);
}

int membership_find(struct membership *membership, const struct membership_options *options, struct pl_error *error)
{
	int rc;

	if (options->host)
		snprintf(membership->host, sizeof(membership->host), "%s", options->host);
	else
		cli_host_name(membership->host, sizeof(membership->host));
	cli_printable(membership->host, false);
	rc = find_hosts(membership, options, error);
	if (rc == 0)
		rc = find_rank(membership, options, error);
	if (rc == 0)
		rc = check_rank(membership, error);
	if (rc == 0)
		rc = find_address(membership, options, error);
	find_run(membership, options);
	return rc;
}

void membership_free(struct membership *membership)
{
	host_list_free(&membership->hosts);
}
