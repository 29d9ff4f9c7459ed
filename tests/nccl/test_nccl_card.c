/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports of the stand-in's cards as NCCL's devices: which there are, and that the bytes go through the device that NCCL
 * chooses; GPU memory; cards that go. Both ends are in this process, because all queue pairs of the stand-in are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/card.h"
#include "driver.h"
#include "gpu_end.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

#define LENGTH GPU_END_LENGTH
#define ALL_POINTERS (NET_POINTER_HOST | NET_POINTER_CUDA | NET_POINTER_DMABUF)

/* Orders of a card's writes, as CUDA defines them. */
#define ORDER_NONE 0
#define ORDER_OWNER 100

static void set_variable(const char *name, const char *value)
{
	check_number(setenv(name, value, 1), 0);
}

static struct net_v12_properties properties_of(struct driver *driver, int device)
{
	struct net_v12_properties properties;

	memset(&properties, 0xee, sizeof(properties));
	check_number(driver->v12->getProperties(device, &properties), NET_SUCCESS);
	return properties;
}

/* -- devices -------------------------------------------------------------------------------------- */

/* Characters, a filter of devices, and the expected names. */
struct selection {
	const char *variable, *value, *names;
};

static void case_selection(void *argument)
{
	const struct selection *selection = argument;
	struct driver driver;
	char names[128] = "";

	set_variable("STANDIN_CARDS", "4");
	if (selection->variable)
		set_variable(selection->variable, selection->value);
	driver_open(&driver, 12);
	for (int i = 0; i < driver_devices(&driver); i++) {
		struct net_v12_properties properties = properties_of(&driver, i);

		strcat(strcat(names, i ? " " : ""), properties.name);
		check_number(properties.port, 1);
		check_number(properties.pointers, NET_POINTER_HOST);
		check_number(properties.virtual_device.devices[0], i);
		/* Equal ones would share a bandwidth. */
		for (int before = 0; before < i; before++)
			check(properties_of(&driver, before).guid != properties.guid);
	}
	check_text(names, selection->names);
	/* For interfaces alone. */
	check(!getenv("NCCL_P2P_NET_CHUNKSIZE"));
	driver_close(&driver);
}

static const struct selection selections[] = {
	{ NULL, NULL, "mlx5_0 mlx5_1 mlx5_2 mlx5_3" },
	{ "NCCL_IB_HCA", "mlx5_1,mlx5_3:1,mlx5_0:2", "mlx5_1 mlx5_3" },
	{ "NCCL_IB_HCA", "mlx5", "mlx5_0 mlx5_1 mlx5_2 mlx5_3" },
	{ "NCCL_IB_HCA", "=mlx5,mlx5_2", "mlx5_2" },
	{ "NCCL_IB_HCA", "^mlx5_1,mlx5_2:1", "mlx5_0 mlx5_3" },
	{ "NCCL_IB_HCA", "^=mlx5_0", "mlx5_1 mlx5_2 mlx5_3" },
	{ "PEERLANE_DEVICES", "mlx5_2,mlx5_0:1,mlx5", "mlx5_0 mlx5_2" },
};

/* Without a card that is selected, or that reaches a GPU, interfaces remain unless the program demands cards. */
static void case_none_selected(void *argument)
{
	struct driver driver;

	(void)argument;
	set_variable("PEERLANE_FABRIC", "tcp");
	driver_open(&driver, 12);
	check_text(properties_of(&driver, 0).name, "lo");
	driver_close(&driver);
	set_variable("PEERLANE_FABRIC", "auto");
	driver_open(&driver, 12);
	check_text(properties_of(&driver, 0).name, "lo");
	driver_close(&driver);
}

static void case_none_for_verbs(void *argument)
{
	struct driver driver;

	(void)argument;
	set_variable("NCCL_IB_HCA", "=mlx4_0");
	check_number(driver_load(&driver, 12), NET_SYSTEM_ERROR);
	check(strstr(driver_warning(), "NCCL_IB_HCA"));
}

static void case_speed(void *argument)
{
	struct driver driver;

	(void)argument;
	set_variable("STANDIN_CARD", "cx7-400g");
	driver_open(&driver, 12);
	check_number(properties_of(&driver, 0).speed, 400000);
	driver_close(&driver);
}

/* -- connections ---------------------------------------------------------------------------------- */

static void line_open(struct line *line, struct driver *driver, int from_device, int to_device)
{
	line_connect(line, driver, from_device, to_device);
	line->from = malloc(LENGTH);
	line->to = calloc(1, LENGTH);
	check(line->from && line->to);
	line->from_memory = driver_register(driver, line->sender, line->from, LENGTH);
	line->to_memory = driver_register(driver, line->receiver, line->to, LENGTH);
}

static void line_close(struct line *line)
{
	driver_deregister(line->driver, line->sender, line->from_memory);
	driver_deregister(line->driver, line->receiver, line->to_memory);
	driver_close_send(line->driver, line->sender);
	driver_close_receive(line->driver, line->receiver);
	free(line->from);
	free(line->to);
}

/* The bytes of a connection go through the devices that NCCL chose, and through no others. */
static void case_device_choice(void *argument)
{
	static const int pairs[][2] = { { 2, 1 }, { 0, 3 }, { 1, 1 } };
	struct driver driver;
	struct line line;

	(void)argument;
	set_variable("STANDIN_CARDS", "4");
	driver_open(&driver, 11);
	for (unsigned i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		struct card_counts before, after;
		void *receive, *send;

		line_open(&line, &driver, pairs[i][0], pairs[i][1]);
		content_fill(line.from, LENGTH, i);
		before = card_counts_now();
		receive = driver_must_receive(&driver, line.receiver, line.to, LENGTH, line.to_memory);
		send = driver_must_send(&driver, line.sender, line.from, LENGTH, line.from_memory);
		check_number(driver_finish(&driver, send), LENGTH);
		check_number(driver_finish(&driver, receive), LENGTH);
		check(content_is(line.to, LENGTH, i));
		after = card_counts_now();
		for (int from = 0; from < 4; from++)
			for (int to = 0; to < 4; to++) {
				uint64_t moved = after.moved[from][to] - before.moved[from][to];

				check(from == pairs[i][0] && to == pairs[i][1] ? moved >= LENGTH : moved < LENGTH / 2);
			}
		line_close(&line);
	}
	driver_close(&driver);
}

static void case_wrong_device(void *argument)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct driver driver;
	void *object;

	(void)argument;
	driver_open(&driver, 11);
	driver_listen(&driver, handle, &object);
	driver_close_listen(&driver, object);
	check_number(driver.v11->listen(driver.context, 1, handle, &object), NET_INVALID_ARGUMENT);
	check(!object);
	check_number(driver.v11->listen(driver.context, -1, handle, &object), NET_INVALID_ARGUMENT);
	check_number(driver.v11->connect(driver.context, 1, handle, &object, NULL), NET_INVALID_ARGUMENT);
	check_number(driver.v11->connect(driver.context, -1, handle, &object, NULL), NET_INVALID_ARGUMENT);
	driver_close(&driver);
}

/* The other end has interfaces, and no card. */
static void case_mixed_devices(void *argument)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	struct driver driver;
	void *listener, *comm;
	enum net_result rc;
	int ends[2];
	pid_t child;

	(void)argument;
	check_number(pipe(ends), 0);
	child = process_fork();
	if (child == 0) {
		set_variable("PEERLANE_FABRIC", "tcp");
		check_number(read(ends[0], handle, sizeof(handle)), sizeof(handle));
		driver_open(&driver, 11);
		patience_begin(&patience, 20);
		while ((rc = driver_connect(&driver, handle, &comm)) == NET_SUCCESS) {
			check(!comm);
			patience_wait(&patience);
		}
		check_number(rc, NET_REMOTE_ERROR);
		check(strstr(driver_warning(), "cannot connect"));
		driver_close(&driver);
		_exit(0);
	}
	driver_open(&driver, 11);
	driver_listen(&driver, handle, &listener);
	check_number(write(ends[1], handle, sizeof(handle)), sizeof(handle));
	check_number(process_wait(child), 0);
	driver_close(&driver);
}

/* A card goes, and does not come back: all calls fail in bounded time, and both ends can be closed. */
static void case_card_removed(void *argument)
{
	void *receive, *send;
	struct driver driver;
	struct line line;

	(void)argument;
	/* Also the time of the first connection, on a busy machine too. */
	set_variable("PEERLANE_CONNECT_TIMEOUT", "5");
	driver_open(&driver, 11);
	line_open(&line, &driver, 0, 0);
	receive = driver_must_receive(&driver, line.receiver, line.to, LENGTH, line.to_memory);
	send = driver_must_send(&driver, line.sender, line.from, LENGTH, line.from_memory);
	check_number(driver_finish(&driver, send), LENGTH);
	check_number(driver_finish(&driver, receive), LENGTH);
	receive = driver_must_receive(&driver, line.receiver, line.to, LENGTH, line.to_memory);
	card_hide();
	check_number(driver_wait_failure(&driver, receive), NET_REMOTE_ERROR);
	check_number(driver_wait_refusal(&driver, line.sender, line.from, LENGTH, line.from_memory), NET_REMOTE_ERROR);
	check(strstr(driver_warning(), "lost 127.0.0.1"));
	line_close(&line);
	driver_close(&driver);
}

/* -- locked memory -------------------------------------------------------------------------------- */

/* More than the buffers of the library, which fit the limit. */
#define LARGE ((size_t)16 << 20)

/* Connects two cards, and registers the memory of one end. From now on the cards register no such memory. */
static void locked_open(struct line *line, struct driver *driver, bool receiver)
{
	char limit[32];

	set_variable("STANDIN_CARDS", "2");
	driver_open(driver, 11);
	line_connect(line, driver, 0, 1);
	line->from = malloc(LARGE);
	line->to = calloc(1, LARGE);
	check(line->from && line->to);
	content_fill(line->from, LARGE, 1);
	if (receiver)
		line->to_memory = driver_register(driver, line->receiver, line->to, LARGE);
	else
		line->from_memory = driver_register(driver, line->sender, line->from, LARGE);
	/* Both cards have as much for the library; half of such memory is left. */
	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)card_counts_now().locked / 2);
	set_variable("STANDIN_LOCKED", limit);
	if (receiver)
		line->from_memory = driver_register(driver, line->sender, line->from, LARGE);
	else
		line->to_memory = driver_register(driver, line->receiver, line->to, LARGE);
}

/* The sender may not lock its buffer: the library copies the bytes first, and the log says why. */
static void case_locked_sender(void *argument)
{
	void *receive, *send;
	struct driver driver;
	struct line line;

	(void)argument;
	locked_open(&line, &driver, true);
	receive = driver_must_receive(&driver, line.receiver, line.to, LARGE, line.to_memory);
	send = driver_must_send(&driver, line.sender, line.from, LARGE, line.from_memory);
	check_number(driver_finish(&driver, send), LARGE);
	check_number(driver_finish(&driver, receive), LARGE);
	check(content_is(line.to, LARGE, 1));
	check(driver_logged("copied first: verbs, through registered buffers"));
	check(driver_logged("ulimit -l"));
	line_close(&line);
	driver_close(&driver);
}

/* The receiver may not lock its buffer: both logs name the limit. */
static void case_locked_receiver(void *argument)
{
	struct driver driver;
	struct line line;

	(void)argument;
	locked_open(&line, &driver, false);
	driver_must_receive(&driver, line.receiver, line.to, LARGE, line.to_memory);
	check_number(driver_wait_refusal(&driver, line.sender, line.from, LARGE, line.from_memory), NET_REMOTE_ERROR);
	check(strstr(driver_warning(), "cannot use the receiver's memory"));
	check(strstr(driver_warning(), "ulimit -l"));
	line_close(&line);
	check(driver_logged("the card may lock no more (see ulimit -l)"));
	driver_close(&driver);
}

/* -- GPU memory ----------------------------------------------------------------------------------- */

struct gpu_setting {
	const char *card, *mood;
	int order;
	bool dmabuf; /* registers by the program's dma-buf, not by the address */
};

/* Finds the stand-in's GPU, as a program that uses CUDA does before NCCL. */
static void gpu_begin(const struct gpu_setting *setting)
{
	void (*order)(int ordering, int options);

	set_variable("STANDIN_CARD", setting->card);
	/* Cards are chosen because they reach the GPU. */
	set_variable("PEERLANE_FABRIC", "auto");
	check(gpu_open("alloc"));
	gpu_driver_find(&order, "standin_order");
	check(order);
	order(setting->order, 0);
	if (setting->mood)
		set_variable("STANDIN_MOOD", setting->mood);
}

static void case_gpu(void *argument)
{
	const struct gpu_setting *setting = argument;
	struct driver driver;

	gpu_begin(setting);
	driver_open(&driver, 11);
	check_number(properties_of(&driver, 0).pointers, ALL_POINTERS);
	gpu_move_all(&driver, true, true, setting->dmabuf);
	gpu_move_all(&driver, false, true, setting->dmabuf);
	gpu_move_all(&driver, true, false, setting->dmabuf);
	driver_close(&driver);
}

static const struct gpu_setting gpu_settings[] = {
	{ "cx7-ib", "order", ORDER_NONE, true },
	{ "cx7-roce", "order", ORDER_NONE, false },
	{ "cx7-ib", NULL, ORDER_OWNER, false },
	{ "e810", "order", ORDER_NONE, true },
};

/* A card that takes no dma-buf, on a host without a peer memory module, reaches no GPU. */
static void case_gpu_not_reached(void *argument)
{
	const struct gpu_setting setting = { "mlx4", NULL, ORDER_NONE, true };
	struct driver driver;
	struct line line;
	void *memory, *bytes;

	gpu_begin(&setting);
	set_variable("PEERLANE_FABRIC", argument);
	driver_open(&driver, 11);
	check_text(properties_of(&driver, 0).name, strcmp(argument, "verbs") ? "lo" : "mlx4_0");
	check_number(properties_of(&driver, 0).pointers, NET_POINTER_HOST);
	line_connect(&line, &driver, 0, 0);
	bytes = gpu_allocate(LENGTH);
	check_number(driver.v11->regMr(line.receiver, bytes, LENGTH, NET_POINTER_CUDA, &memory), NET_INVALID_ARGUMENT);
	check(!memory);
	check_number(driver.v11->regMrDmaBuf(line.receiver, bytes, LENGTH, NET_POINTER_CUDA, 0, 0, &memory),
		     NET_INVALID_ARGUMENT);
	gpu_free(bytes);
	driver_close_send(&driver, line.sender);
	driver_close_receive(&driver, line.receiver);
	driver_close(&driver);
}

/*
 * NCCL aborts with messages under way: after deregMr() nothing writes to the memory. Each abort breaks the connection,
 * and received frames must not be lost then, whose completions come late.
 */
static void case_gpu_abort(void *argument)
{
	const struct gpu_setting setting = { argument, "late,order", ORDER_NONE, true };
	struct driver driver;

	gpu_begin(&setting);
	driver_open(&driver, 11);
	for (int round = 0; round < 6; round++) {
		struct gpu_end from, to;
		struct line line;

		line_connect(&line, &driver, 0, 0);
		gpu_end_open(&from, &driver, line.sender, true, round % 2);
		gpu_end_open(&to, &driver, line.receiver, true, round % 2);
		for (size_t i = 0; i < 4; i++) {
			size_t at = i * LENGTH / 4;

			driver_must_receive(&driver, line.receiver, to.bytes + at, LENGTH / 4, to.memory);
			driver_must_send(&driver, line.sender, from.bytes + at, LENGTH / 4, from.memory);
		}
		if (round < 3) {
			driver_deregister(&driver, line.receiver, to.memory);
			memset(to.copy, 0xcc, LENGTH);
			gpu_copy_in(to.bytes, to.copy, LENGTH);
			memset(to.copy, 0, LENGTH);
			gpu_copy_out(to.bytes, to.copy, LENGTH);
			for (size_t at = 0; at < LENGTH; at++)
				check(to.copy[at] == 0xcc);
			to.memory = NULL;
		}
		gpu_end_close(&from, &driver, line.sender);
		gpu_end_close(&to, &driver, line.receiver);
		driver_close_send(&driver, line.sender);
		driver_close_receive(&driver, line.receiver);
	}
	driver_close(&driver);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "all_cards", case_selection, (void *)&selections[0], 20 },
		{ "hca_names", case_selection, (void *)&selections[1], 20 },
		{ "hca_prefix", case_selection, (void *)&selections[2], 20 },
		{ "hca_whole", case_selection, (void *)&selections[3], 20 },
		{ "hca_without", case_selection, (void *)&selections[4], 20 },
		{ "hca_without_whole", case_selection, (void *)&selections[5], 20 },
		{ "peerlane_devices", case_selection, (void *)&selections[6], 20 },
		{ "none_selected", case_none_selected, NULL, 20 },
		{ "none_for_verbs", case_none_for_verbs, NULL, 20 },
		{ "speed", case_speed, NULL, 20 },
		{ "device_choice", case_device_choice, NULL, 30 },
		{ "wrong_device", case_wrong_device, NULL, 20 },
		{ "mixed_devices", case_mixed_devices, NULL, 30 },
		{ "card_removed", case_card_removed, NULL, 40 },
		{ "locked_sender", case_locked_sender, NULL, 30 },
		{ "locked_receiver", case_locked_receiver, NULL, 30 },
		{ "gpu_dmabuf", case_gpu, (void *)&gpu_settings[0], 30 },
		{ "gpu_address", case_gpu, (void *)&gpu_settings[1], 30 },
		{ "gpu_ordered", case_gpu, (void *)&gpu_settings[2], 30 },
		{ "gpu_without_windows", case_gpu, (void *)&gpu_settings[3], 30 },
		{ "gpu_not_reached", case_gpu_not_reached, "verbs", 20 },
		{ "gpu_not_reached_auto", case_gpu_not_reached, "auto", 20 },
		{ "gpu_abort", case_gpu_abort, "cx7-ib", 30 },
		{ "gpu_abort_own_receives", case_gpu_abort, "e810", 30 },
	};

	return cases_run("nccl_card", cases, sizeof(cases) / sizeof(cases[0]));
}
