/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cards near the memory: four stand-in cards, and a topology file with two GPUs. Each transfer goes between the cards
 * near the memory at both ends, whichever end posts it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/mempolicy.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/context.h"
#include "support/cases.h"
#include "support/environment.h"

#define CARDS 4u
#define LENGTH (1u << 20)

/* GPU f0 is below a switch with mlx5_2, GPU f1 with mlx5_3. Cards 0 and 1 belong to node 0, the others to node 1. */
static const char topology[] =
	"<system version=\"1\">\n"
	"  <cpu numaid=\"0\" affinity=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
	"    <pci busid=\"0000:10:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <nic><net name=\"mlx5_0\" speed=\"400000\" port=\"1\"/></nic>\n"
	"    </pci>\n"
	"    <pci busid=\"0000:20:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <nic><net name=\"mlx5_1\" speed=\"400000\" port=\"1\"/></nic>\n"
	"    </pci>\n"
	"  </cpu>\n"
	"  <cpu numaid=\"1\" affinity=\"2\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
	"    <pci busid=\"0000:e0:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <pci busid=\"0000:e1:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"        <nic><net name=\"mlx5_2\" speed=\"400000\" port=\"1\"/></nic>\n"
	"      </pci>\n"
	"      <pci busid=\"0000:f0:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n"
	"    </pci>\n"
	"    <pci busid=\"0000:e8:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <pci busid=\"0000:e9:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"        <nic><net name=\"mlx5_3\" speed=\"400000\" port=\"1\"/></nic>\n"
	"      </pci>\n"
	"      <pci busid=\"0000:f1:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n"
	"    </pci>\n"
	"  </cpu>\n"
	"</system>\n";

/* Each GPU is far from all cards, but beside the Data Direct function of mlx5_0. */
static const char direct_topology[] =
	"<system version=\"1\">\n"
	"  <cpu numaid=\"0\" affinity=\"1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
	"    <pci busid=\"0000:10:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <nic><net name=\"mlx5_0\" speed=\"400000\" port=\"1\"/></nic>\n"
	"    </pci>\n"
	"  </cpu>\n"
	"  <cpu numaid=\"1\" affinity=\"2\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">\n"
	"    <pci busid=\"0000:20:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <nic><net name=\"mlx5_1\" speed=\"400000\" port=\"1\"/></nic>\n"
	"    </pci>\n"
	"    <pci busid=\"0000:30:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <nic><net name=\"mlx5_2\" speed=\"400000\" port=\"1\"/></nic>\n"
	"    </pci>\n"
	"    <pci busid=\"0000:40:00.0\" class=\"0x020000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <nic><net name=\"mlx5_3\" speed=\"400000\" port=\"1\"/></nic>\n"
	"    </pci>\n"
	"    <pci busid=\"0000:e0:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
	"      <pci busid=\"0000:80:00.1\" class=\"0x088000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n"
	"      <pci busid=\"0000:f0:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n"
	"      <pci busid=\"0000:f1:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/>\n"
	"    </pci>\n"
	"  </cpu>\n"
	"</system>\n";

static char file[64], direct_file[64];

/* -- two ends ------------------------------------------------------------------------------------- */

struct options {
	const struct setting *setting;
	const char *topology;
	unsigned rails;
};

struct world {
	struct scenario_environment environment;
};

static void world_open(struct world *world, const struct options *options)
{
	struct scenario_environment *environment = &world->environment;
	struct pl_options library = setting_options(options->setting);

	library.topology = options->topology;
	library.rails = options->rails;
	*environment = (struct scenario_environment){ .setting = options->setting };
	environment->near = context_open_with(&library);
	environment->far = context_open_with(&library);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(options->setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

static struct pl_region *region_of(struct pl_context *context, const char *kind, char fill)
{
	char *bytes = malloc(LENGTH);
	struct pl_region *region;
	struct pl_error error;

	check(bytes);
	memset(bytes, fill, LENGTH);
	check_ok(pl_region_allocate_in(context, kind, LENGTH, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_region_copy_in(region, 0, bytes, LENGTH, &error), &error);
	free(bytes);
	return region;
}

static bool holds(struct pl_region *region, char fill)
{
	char *bytes = malloc(LENGTH);
	struct pl_error error;
	bool same = true;

	check(bytes);
	check_ok(pl_region_copy_out(region, 0, bytes, LENGTH, &error), &error);
	for (size_t i = 0; i < LENGTH; i++)
		same &= bytes[i] == fill;
	free(bytes);
	return same;
}

/* One end's region of `here`, and the other end's of `there`, which the first end has imported. */
struct link {
	struct pl_peer *peer;
	struct pl_region *here, *there;
	struct pl_remote *remote;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
};

static void link_open(struct world *world, bool far, const char *here, const char *there, struct link *link)
{
	struct scenario_environment *environment = &world->environment;
	struct pl_context *mine = far ? environment->far : environment->near;
	struct pl_context *other = far ? environment->near : environment->far;
	struct pl_grant_options rights = PL_GRANT_OPTIONS_INIT;
	struct pl_error error;

	rights.rights = PL_ACCESS_ALL;
	link->peer = far ? environment->far_peer : environment->near_peer;
	link->here = region_of(mine, here, 'h');
	link->there = region_of(other, there, 't');
	link->token_length = sizeof(link->token);
	check_ok(pl_region_share(link->there, &rights, link->token, &link->token_length, &error), &error);
	link->remote = import_token(environment, link->peer, link->token, link->token_length);
}

static void link_close(struct link *link)
{
	pl_remote_release(link->remote);
	check_ok(pl_region_deregister(link->here), NULL);
	check_ok(pl_region_deregister(link->there), NULL);
}

static struct pl_completion write_all(struct world *world, const struct link *link)
{
	struct pl_transfer transfer = { link->remote, 0, link->here, 0, LENGTH };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	check_ok(pl_write(link->peer, &transfer, NULL, &operation, &error), &error);
	complete(&world->environment, operation, &receipt);
	return receipt;
}

/* -- bytes by cards ------------------------------------------------------------------------------- */

static struct card_counts before;

static void count_from_here(void)
{
	before = card_counts_now();
}

/* Returns the masks of cards that moved at least so many bytes since: requesters', and the other ends'. */
static void moved_more(uint64_t least, unsigned *here, unsigned *there)
{
	struct card_counts now = card_counts_now();

	*here = *there = 0;
	for (unsigned i = 0; i < CARDS; i++) {
		for (unsigned j = 0; j < CARDS; j++) {
			if (now.moved[i][j] - before.moved[i][j] < least)
				continue;
			*here |= 1u << i;
			*there |= 1u << j;
		}
	}
}

static void moved_by(unsigned *here, unsigned *there)
{
	moved_more(LENGTH / 4, here, there);
}

#define check_moved(here, there) \
	do { \
		unsigned here_, there_; \
		moved_by(&here_, &there_); \
		check_number(here_, here); \
		check_number(there_, there); \
	} while (0)

/*
 * Writes until the near cards do it, and counts that write. Another card does it if the connection takes longer than the
 * library waits, as on a busy machine.
 */
static struct pl_completion write_not_from_afar(struct world *world, const struct link *link)
{
	struct pl_completion receipt;

	do {
		count_from_here();
		receipt = write_all(world, link);
	} while (strstr(receipt.reason, "from afar"));
	return receipt;
}

static void write_near(struct world *world, const struct link *link)
{
	check(strstr(write_not_from_afar(world, link).reason, "cards nearest"));
}

/* -- cases ---------------------------------------------------------------------------------------- */

/* From each GPU to each one, posted by either end: also by an acceptor, which must ask for the rail. */
static void gpus(void *argument)
{
	static const char *const kinds[] = { "cuda:0", "cuda:1" };
	const struct options options = { argument, file, 0 };
	struct world world;

	world_open(&world, &options);
	for (unsigned i = 0; i < 8; i++) {
		unsigned here = i & 1, there = i >> 1 & 1;
		struct link link;

		link_open(&world, i >> 2, kinds[here], kinds[there], &link);
		write_near(&world, &link);
		check(holds(link.there, 'h'));
		check_moved(1u << (2 + here), 1u << (2 + there));
		link_close(&link);
	}
	environment_close(&world.environment);
}

/* Opens a link between two GPUs. The driver tells the Data Direct function of one card, by its index; "9": of none. */
static void direct_open(struct world *world, struct link *link, const char *card)
{
	const struct options options = { &card_manual, direct_file, 0 };

	setenv("STANDIN_CARD", "cx8-direct", 1);
	setenv("STANDIN_DATA_DIRECT", card, 1);
	world_open(world, &options);
	link_open(world, false, "cuda:0", "cuda:1", link);
}

/*
 * The place of a card's Data Direct function counts for GPU memory. The receipt names the function, so the bytes tell
 * whether another card carried them because the connection took long.
 */
static void data_direct(void *argument)
{
	unsigned here, there;
	struct world world;
	struct link link;

	(void)argument;
	direct_open(&world, &link, "0");
	do {
		count_from_here();
		write_all(&world, &link);
		moved_by(&here, &there);
	} while (here != 1u || there != 1u);
	check(holds(link.there, 'h'));
	link_close(&link);
	environment_close(&world.environment);
}

/* Without the function, the cards of the GPU's node are near. */
static void data_direct_missing(void *argument)
{
	unsigned here, there;
	struct world world;
	struct link link;

	(void)argument;
	direct_open(&world, &link, "9");
	write_near(&world, &link);
	moved_by(&here, &there);
	check(here && there && !(here & 1u) && !(there & 1u));
	link_close(&link);
	environment_close(&world.environment);
}

/* Only the card near a region registers it, unless the connection takes too long. */
static void registrations(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	struct pl_completion receipt;
	struct card_counts now;
	struct world world;
	struct link link;

	(void)argument;
	do {
		world_open(&world, &options);
		count_from_here();
		link_open(&world, false, "cuda:0", "cuda:0", &link);
		receipt = write_all(&world, &link);
		now = card_counts_now();
		link_close(&link);
		environment_close(&world.environment);
	} while (strstr(receipt.reason, "from afar"));
	check_number(now.device_mrs[0] - before.device_mrs[0], 0);
	check_number(now.device_mrs[1] - before.device_mrs[1], 0);
	check_number(now.device_mrs[3] - before.device_mrs[3], 0);
	check(now.device_mrs[2] > before.device_mrs[2]);
}

/* Host memory of node 0 uses the cards of that node, two by default. */
static void host(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	struct world world;
	struct link link;
	struct pl_completion receipt;
	int node = 1;

	(void)argument;
	world_open(&world, &options);
	link_open(&world, false, "host", "host", &link);
	if (syscall(SYS_get_mempolicy, &node, NULL, 0ul, pl_region_address(link.here),
		    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)) < 0 ||
	    node) {
		printf("get_mempolicy(2) does not work here: skipped\n");
	} else {
		do {
			count_from_here();
			receipt = write_all(&world, &link);
		} while (receipt.lanes < 2);
		check_moved(3, 3);
	}
	link_close(&link);
	environment_close(&world.environment);
}

/* Host memory and a GPU: each end has cards of its own choice. */
static void mixed(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	struct world world;
	unsigned here, there;
	struct link link;

	(void)argument;
	world_open(&world, &options);
	link_open(&world, true, "host", "cuda:1", &link);
	write_near(&world, &link);
	check(holds(link.there, 'h'));
	moved_by(&here, &there);
	check_number(there, 1u << 3);
	link_close(&link);
	environment_close(&world.environment);
}

/* An empty name makes all cards alike: the two rails of the start carry everything. */
static void alike(void *argument)
{
	const struct options options = { &card_manual, "", 0 };
	struct pl_completion receipt;
	struct world world;
	struct link link;

	(void)argument;
	world_open(&world, &options);
	link_open(&world, false, "cuda:0", "cuda:1", &link);
	do {
		count_from_here();
		receipt = write_all(&world, &link);
	} while (receipt.lanes < 2);
	check(!strstr(receipt.reason, "nearest"));
	check_moved(3, 3);
	link_close(&link);
	environment_close(&world.environment);
}

/* Ports that one queue pair does not fill get two rails on demand, too. Both carry the bytes. */
static void wide_ports(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	struct pl_completion receipt;
	struct world world;
	struct link link;

	(void)argument;
	setenv("STANDIN_CARD", "cx8-800g", 1);
	world_open(&world, &options);
	link_open(&world, false, "cuda:0", "cuda:0", &link);
	do {
		count_from_here();
		receipt = write_all(&world, &link);
	} while (receipt.lanes < 2 || strstr(receipt.reason, "from afar"));
	check_number(receipt.lanes, 2);
	check_moved(1u << 2, 1u << 2);
	link_close(&link);
	environment_close(&world.environment);
}

/* A program that sets the number of rails has no others; of these the nearest carry the bytes. */
static void fixed(void *argument)
{
	const struct options options = { &card_manual, file, CARDS };
	struct world world;
	struct link link;

	(void)argument;
	world_open(&world, &options);
	link_open(&world, false, "cuda:0", "cuda:0", &link);
	write_near(&world, &link);
	check_moved(1u << 2, 1u << 2);
	link_close(&link);
	environment_close(&world.environment);
}

/* While the near card's port is down, another card carries the bytes, and the receipt says so. */
static void port_down(void *argument)
{
	const struct options options = { argument, file, 0 };
	struct pl_completion receipt;
	unsigned here, there;
	struct world world;
	struct link link;

	world_open(&world, &options);
	link_open(&world, false, "cuda:0", "cuda:0", &link);
	write_all(&world, &link);
	card_port(2, false);
	count_from_here();
	/* The event of the port and the errors of its queue pairs arrive in time of their own. */
	do {
		receipt = write_all(&world, &link);
		check_number(receipt.status, 0);
	} while (!strstr(receipt.reason, "from afar"));
	check(holds(link.there, 'h'));
	count_from_here();
	receipt = write_all(&world, &link);
	check_number(receipt.status, 0);
	moved_more(1, &here, &there);
	check(!((here | there) & 1u << 2));
	card_port(2, true);
	for (;; usleep(1000)) {
		count_from_here();
		receipt = write_all(&world, &link);
		check_number(receipt.status, 0);
		moved_by(&here, &there);
		if (here == 1u << 2 && there == 1u << 2)
			break;
	}
	link_close(&link);
	environment_close(&world.environment);
}

/* Each card has a network of its own: cards with different numbers do not reach each other. */
static void apart(void *argument)
{
	const struct options options = { argument, file, 0 };
	struct pl_completion receipt;
	struct world world;
	struct link link;

	setenv("STANDIN_NETWORKS", "apart", 1);
	world_open(&world, &options);
	for (unsigned i = 0; i < 2; i++) {
		link_open(&world, i, "cuda:0", "cuda:1", &link);
		receipt = write_all(&world, &link);
		check_number(receipt.status, 0);
		check(strstr(receipt.reason, "from afar"));
		check(holds(link.there, 'h'));
		link_close(&link);
	}
	link_open(&world, true, "cuda:1", "cuda:1", &link);
	write_near(&world, &link);
	check_moved(1u << 3, 1u << 3);
	link_close(&link);
	environment_close(&world.environment);
}

/* The owner revokes the grant before the rail between the near cards exists. */
static void revoked(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	struct pl_transfer transfer;
	struct pl_operation *operation;
	struct pl_error error;
	struct world world;
	struct link link;

	(void)argument;
	world_open(&world, &options);
	link_open(&world, false, "cuda:1", "cuda:0", &link);
	check_ok(pl_region_revoke(link.there, link.token, link.token_length), NULL);
	transfer = (struct pl_transfer){ link.remote, 0, link.here, 0, LENGTH };
	check_ok(pl_write(link.peer, &transfer, NULL, &operation, &error), &error);
	fail_with(&world.environment, operation, -EACCES);
	check(holds(link.there, 't'));
	link_close(&link);
	environment_close(&world.environment);
}

/* -- profile of routes ---------------------------------------------------------------------------- */

/* Rate of a card in a profile, for both directions; direct or not. */
struct measured {
	unsigned card;
	enum pl_gpu_path way;
	uint64_t rate;
};

/* Gives a context a profile of GPU 0, of this machine. */
static void profile_add(struct pl_context *context, const struct measured *measured)
{
	struct pl_gpu_info gpu = PL_GPU_INFO_INIT;
	struct pl_proof *proof = pl_profile_add(&context->routes);

	check(proof);
	check_ok(pl_gpu_query(0, &gpu, NULL), NULL);
	context->routes_known = true;
	snprintf(context->routes.machine, PL_PROFILE_MACHINE, "this machine");
	snprintf(context->routes.here, PL_PROFILE_MACHINE, "this machine");
	proof->way = measured->way;
	snprintf(proof->gpu, sizeof(proof->gpu), "%s", gpu.pci);
	snprintf(proof->model, sizeof(proof->model), "%s", gpu.name);
	snprintf(proof->driver, sizeof(proof->driver), "CUDA %d", gpu.driver);
	snprintf(proof->device, sizeof(proof->device), "mlx5_%u", measured->card);
	snprintf(proof->firmware, sizeof(proof->firmware), "stand-in");
	for (int i = 0; i < PL_DIRECTION_COUNT; i++) {
		proof->legs[i].proven = true;
		proof->legs[i].rate = measured->rate;
	}
}

/* Writes from GPU 0 to GPU 0 go between these cards, with a profile at both ends. */
static void expect_by_profile(const struct measured *measured, unsigned count, unsigned cards)
{
	const struct options options = { &card_manual, file, 0 };
	unsigned here, there;
	struct world world;
	struct link link;

	world_open(&world, &options);
	for (unsigned i = 0; i < count; i++) {
		profile_add(world.environment.near, &measured[i]);
		profile_add(world.environment.far, &measured[i]);
	}
	link_open(&world, false, "cuda:0", "cuda:0", &link);
	/* The receipt names the profile. Ends at the case's limit of time. */
	do {
		count_from_here();
		write_all(&world, &link);
		moved_by(&here, &there);
	} while (here != cards || there != cards);
	link_close(&link);
	environment_close(&world.environment);
}

/* What was measured counts more than the distance; among cards that are as fast, the distance decides. */
static void profile(void *argument)
{
	static const struct measured faster[] = { { 1, PL_GPU_PATH_DMABUF, 40 }, { 2, PL_GPU_PATH_DMABUF, 10 } };
	static const struct measured alone[] = { { 1, PL_GPU_PATH_DMABUF, 10 }, { 2, PL_GPU_PATH_STAGED, 40 } };
	static const struct measured equal[] = { { 1, PL_GPU_PATH_DMABUF, 41 }, { 2, PL_GPU_PATH_DMABUF, 40 } };
	static const struct measured as_fast[] = { { 1, PL_GPU_PATH_DMABUF, 40 }, { 2, PL_GPU_PATH_DMABUF, 32 } };

	(void)argument;
	expect_by_profile(faster, 2, 1u << 1);
	expect_by_profile(alone, 2, 1u << 1);
	expect_by_profile(equal, 2, 1u << 2);
	/* A fifth less is as fast. */
	expect_by_profile(as_fast, 2, 1u << 2);
}

/* -- atomics -------------------------------------------------------------------------------------- */

/* A word of host memory has two near cards. All ends add by the same one. */
static void atomics(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	unsigned here, there, first = 0;
	struct world world;
	struct link link;

	(void)argument;
	world_open(&world, &options);
	link_open(&world, false, "host", "host", &link);
	for (unsigned i = 0; i < 20; i++) {
		struct pl_operation *operation;
		struct pl_error error;
		uint64_t old;
		struct pl_atomic add = { .remote = link.remote, .operand = 1, .old = &old };

		count_from_here();
		check_ok(pl_fetch_add(link.peer, &add, NULL, &operation, &error), &error);
		complete(&world.environment, operation, NULL);
		moved_more(8, &here, &there);
		check(there && !(there & (there - 1)));
		first = first ? first : there;
		check_number(there, first);
		write_all(&world, &link);
	}
	link_close(&link);
	environment_close(&world.environment);
}

/* Connects again, and writes to the region of the other end. Returns true if the cards near both ends did it. */
static bool write_anew(struct world *world, struct link *link)
{
	struct scenario_environment *environment = &world->environment;
	struct pl_peer *peers[2];
	unsigned here, there;

	connect_pair(environment, environment->near, environment->listener, &peers[0], &peers[1]);
	pl_remote_release(link->remote);
	link->peer = peers[0];
	link->remote = import_token(environment, link->peer, link->token, link->token_length);
	/* Without a choice, the receipt names no distance. */
	write_not_from_afar(world, link);
	moved_by(&here, &there);
	pl_remote_release(link->remote);
	link->remote = NULL;
	pl_peer_close(peers[0]);
	pl_peer_close(peers[1]);
	return here == 1u << 2 && there == 1u << 2;
}

/*
 * More cards appear after the first use of a region, which was near to none in particular. If a look at the ports takes longer
 * than the library waits, as on a busy machine, a connection uses the ports that are known. Ends at the case's limit of time.
 */
static void appeared(void *argument)
{
	const struct options options = { &card_manual, file, 0 };
	struct world world;
	struct link link;

	(void)argument;
	setenv("STANDIN_SHOWN", "1", 1);
	world_open(&world, &options);
	link_open(&world, false, "cuda:0", "cuda:0", &link);
	write_all(&world, &link);
	card_show(CARDS);
	/* A look at the ports is valid for a second. */
	settle(&world.environment, 1100);
	while (!write_anew(&world, &link))
		;
	link_close(&link);
	environment_close(&world.environment);
}

/* A file that cannot be used is an error of pl_open(). */
static void bad_file(void *argument)
{
	struct pl_options library = setting_options(&card_manual);
	struct pl_context *context;
	struct pl_error error;

	(void)argument;
	library.topology = "/nonexistent/topology.xml";
	check_status(pl_open(&context, &library, &error), -ENOENT, &error);
	check_text(error.id, "NCCL-FILE-OPEN");
}

static const struct test_case cases[] = {
	{ "GPUs", gpus, (void *)&card_manual, 60 },
	{ "GPUs, threads", gpus, (void *)&card_threads, 60 },
	{ "Data Direct", data_direct, NULL, 60 },
	{ "Data Direct missing", data_direct_missing, NULL, 60 },
	{ "registrations", registrations, NULL, 30 },
	{ "host memory", host, NULL, 30 },
	{ "host memory and a GPU", mixed, NULL, 30 },
	{ "alike", alike, NULL, 30 },
	{ "wide ports", wide_ports, NULL, 30 },
	{ "fixed number of rails", fixed, NULL, 30 },
	{ "port down", port_down, (void *)&card_manual, 60 },
	{ "port down, threads", port_down, (void *)&card_threads, 60 },
	{ "apart", apart, (void *)&card_manual, 60 },
	{ "apart, threads", apart, (void *)&card_threads, 60 },
	{ "revoked", revoked, NULL, 30 },
	{ "profile", profile, NULL, 30 },
	{ "atomics", atomics, NULL, 30 },
	{ "appeared", appeared, NULL, 30 },
	{ "bad file", bad_file, NULL, 30 },
};

static void write_file(const char *path, const char *text)
{
	FILE *stream = fopen(path, "w");

	check(stream && fputs(text, stream) >= 0 && fclose(stream) == 0);
}

int main(void)
{
	int rc;

	snprintf(file, sizeof(file), "/tmp/peerlane-near-%d.xml", (int)getpid());
	snprintf(direct_file, sizeof(direct_file), "/tmp/peerlane-near-direct-%d.xml", (int)getpid());
	setenv("STANDIN_CARDS", "4", 1);
	write_file(file, topology);
	write_file(direct_file, direct_topology);
	rc = cases_run("near cards", cases, sizeof(cases) / sizeof(cases[0]));
	unlink(file);
	unlink(direct_file);
	return rc;
}
