/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plugin between two network namespaces with two cables of 1 Gbit/s, each a veth pair: both interfaces carry bytes;
 * one is cut or deleted while messages are under way. Needs root and iproute2; exits with 77 without.
 */
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/netns.h"
#include "support/process.h"

#define CABLES 2
#define MESSAGE ((size_t)1 << 20)
/* Messages of each interface. The numbers differ, so that bytes on the wrong cable show. */
static const unsigned messages[CABLES] = { 24, 8 };
/* Seconds after which the plugin counts a silent host as lost. */
#define KEEPALIVE "8"

/* Interface `number` of this end, which is 1 or 2. Both ends give their interfaces the same names, as equal hosts do. */
static void plug_interface(unsigned number, unsigned end)
{
	char words[128];

	snprintf(words, sizeof(words), "ip addr add 10.78.%u.%u/24 dev pl%u", number, end, number);
	check(command_run(words));
	snprintf(words, sizeof(words), "ip link set pl%u up", number);
	check(command_run(words));
	snprintf(words, sizeof(words), "tc qdisc add dev pl%u root tbf rate 1gbit burst 256k latency 50ms", number);
	/* Without tbf in the kernel the cables are as fast as the machine. */
	if (!command_run(words))
		fprintf(stderr, "no tbf here: the cables have no limit\n");
}

static void plug_interfaces(unsigned end)
{
	check(command_run("ip link set lo up"));
	for (unsigned i = 0; i < CABLES; i++)
		plug_interface(i, end);
}

/* True if the kernel knows that a cable is plugged, which takes the kernel a moment. */
static bool interface_runs(unsigned number)
{
	struct ifreq request = { .ifr_flags = 0 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), rc;

	check(fd >= 0);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "pl%u", number);
	rc = ioctl(fd, SIOCGIFFLAGS, &request);
	check(rc == 0 || errno == ENODEV);
	close(fd);
	return rc == 0 && request.ifr_flags & IFF_RUNNING;
}

static void wait_for_lost_interface(void)
{
	struct patience patience;

	patience_begin(&patience, 30);
	while (interface_runs(0))
		patience_wait(&patience);
}

static void wait_for_interfaces(void)
{
	struct patience patience;

	patience_begin(&patience, 30);
	for (unsigned i = 0; i < CABLES; i++)
		while (!interface_runs(i))
			patience_wait(&patience);
}

/* Returns the bytes that an interface of this namespace sent: /sys shows those of the namespace that mounted it. */
static unsigned long long interface_sent(unsigned number)
{
	FILE *file = fopen("/proc/net/dev", "re");
	unsigned long long sent = 0;
	char line[512], name[16];

	check(file);
	snprintf(name, sizeof(name), "pl%u:", number);
	while (fgets(line, sizeof(line), file)) {
		const char *at = strstr(line, name);

		if (at)
			check_number(sscanf(at + strlen(name), "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &sent), 1);
	}
	fclose(file);
	return sent;
}

/* -- one communicator: a connection of each device ------------------------------------------------------- */

struct rails {
	struct end *end;
	bool sends;
	void *comms[CABLES], *memory[CABLES];
	uint8_t *data[CABLES];
};

static void rail_connect(struct rails *rails, unsigned device)
{
	struct end *end = rails->end;

	end->driver.device = (int)device;
	rails->comms[device] = rails->sends ? end_send_comm(end) : end_receive_comm(end);
	rails->data[device] = calloc(1, MESSAGE);
	check(rails->data[device]);
	rails->memory[device] = driver_register(&end->driver, rails->comms[device], rails->data[device], MESSAGE);
}

static void rail_close(struct rails *rails, unsigned device)
{
	struct driver *driver = &rails->end->driver;

	driver_deregister(driver, rails->comms[device], rails->memory[device]);
	free(rails->data[device]);
	if (rails->sends)
		driver_close_send(driver, rails->comms[device]);
	else
		driver_close_receive(driver, rails->comms[device]);
}

/* Posts a message on a device. */
static void *rail_post(struct rails *rails, unsigned device, unsigned number)
{
	struct driver *driver = &rails->end->driver;
	uint8_t *data = rails->data[device];

	if (!rails->sends)
		return driver_must_receive(driver, rails->comms[device], data, MESSAGE, rails->memory[device]);
	content_fill(data, MESSAGE, number);
	return driver_must_send(driver, rails->comms[device], data, MESSAGE, rails->memory[device]);
}

static void rail_finish(struct rails *rails, unsigned device, unsigned number, void *request)
{
	check_number(driver_finish(&rails->end->driver, request), MESSAGE);
	check(content_is(rails->data[device], MESSAGE, number));
}

static void rail_exchange(struct rails *rails, unsigned device, unsigned number)
{
	rail_finish(rails, device, number, rail_post(rails, device, number));
}

/* Starts NCCL at this end. */
static void rails_begin(struct rails *rails, struct end *end, bool sends)
{
	*rails = (struct rails){ .end = end, .sends = sends };
	driver_open(&end->driver, 11);
	check_number(driver_devices(&end->driver), CABLES);
}

/* -- both cables ------------------------------------------------------------------------------------------- */

/* All bytes of a device went through its interface, with less than half as many of headers and of repeated packets. */
static void check_cables(void)
{
	for (unsigned device = 0; device < CABLES; device++) {
		unsigned long long sent = interface_sent(device);

		check(sent >= messages[device] * MESSAGE);
		check(sent < (messages[device] + messages[device] / 2) * MESSAGE);
	}
}

static void use_both(struct end *end, bool sends)
{
	void *requests[CABLES];
	struct rails rails;

	rails_begin(&rails, end, sends);
	for (unsigned device = 0; device < CABLES; device++)
		rail_connect(&rails, device);
	for (unsigned i = 0; i < messages[0]; i++) {
		for (unsigned device = 0; device < CABLES; device++)
			if (i < messages[device])
				requests[device] = rail_post(&rails, device, i);
		for (unsigned device = 0; device < CABLES; device++)
			if (i < messages[device])
				rail_finish(&rails, device, i, requests[device]);
	}
	/* The cables end with the other end's namespace. */
	if (sends)
		check_cables();
	end_meet(end);
	for (unsigned device = 0; device < CABLES; device++)
		rail_close(&rails, device);
	driver_close(&end->driver);
}

static void both_receiver(struct end *end)
{
	use_both(end, false);
}

/* -- a lost cable ------------------------------------------------------------------------------------------- */

/* Exchanges messages on device 0 until the connection fails. Both ends see ncclRemoteError. */
static void exchange_until_lost(struct rails *rails, unsigned cut_at, const char *cut)
{
	struct driver *driver = &rails->end->driver;
	enum net_result rc = NET_SUCCESS;
	struct patience patience;

	/* Without a loss, this loop does not end before the patience does. */
	patience_begin(&patience, 60);
	for (unsigned i = 0; rc == NET_SUCCESS; i++) {
		int done = 0, size;
		void *request = NULL;

		while (rc == NET_SUCCESS && !request) {
			rc = rails->sends ? driver_send(driver, rails->comms[0], rails->data[0], MESSAGE,
							rails->memory[0], &request)
					  : driver_receive(driver, rails->comms[0], rails->data[0], MESSAGE,
							   rails->memory[0], &request);
			patience_wait(&patience);
		}
		/* The message is under way. */
		if (cut && i == cut_at && rc == NET_SUCCESS)
			check(command_run(cut));
		while (rc == NET_SUCCESS && !done) {
			rc = driver_test(driver, request, &done, &size);
			patience_wait(&patience);
		}
	}
	check_number(rc, NET_REMOTE_ERROR);
	check(strstr(driver_warning(), "lost 10.78.0."));
}

/* `cut`: command that takes the first cable away; NULL: at the other end. */
static void lose_one(struct end *end, bool sends, const char *cut)
{
	struct rails rails;

	rails_begin(&rails, end, sends);
	for (unsigned device = 0; device < CABLES; device++)
		rail_connect(&rails, device);
	rail_exchange(&rails, 1, 1);
	exchange_until_lost(&rails, 5, cut);
	/* The other device's connection goes on. */
	rail_exchange(&rails, 1, 2);
	for (unsigned device = 0; device < CABLES; device++)
		rail_close(&rails, device);
	driver_close(&end->driver);
	/* A new communicator has the interface that is left, as its only device. */
	wait_for_lost_interface();
	end_meet(end);
	rails = (struct rails){ .end = end, .sends = sends };
	driver_open(&end->driver, 11);
	check_number(driver_devices(&end->driver), 1);
	rail_connect(&rails, 0);
	rail_exchange(&rails, 0, 3);
	end_meet(end);
	rail_close(&rails, 0);
	driver_close(&end->driver);
}

static void lose_receiver(struct end *end)
{
	lose_one(end, false, NULL);
}

/* -- namespaces ---------------------------------------------------------------------------------------------- */

static void other_end(struct end *end, void (*run)(struct end *))
{
	check(!unshare(CLONE_NEWNET));
	end_meet(end);
	end_meet(end);
	plug_interfaces(2);
	end_meet(end);
	wait_for_interfaces();
	run(end);
}

static void both_other_end(struct end *end)
{
	other_end(end, both_receiver);
}

static void lose_other_end(struct end *end)
{
	other_end(end, lose_receiver);
}

/* Starts the other end in a namespace of its own, with the cables to it. */
static void rails_plug(struct end *end, void (*run)(struct end *))
{
	check_number(setenv("NCCL_SOCKET_IFNAME", "pl", 1), 0);
	check_number(setenv("PEERLANE_FABRIC", "tcp", 1), 0);
	check(!unshare(CLONE_NEWNET));
	end_start_child(end, run);
	end_meet(end);
	for (unsigned i = 0; i < CABLES; i++) {
		char words[128];

		snprintf(words, sizeof(words), "ip link add pl%u type veth peer name pl%u netns %d", i, i,
			 (int)end->other);
		check(command_run(words));
	}
	end_meet(end);
	plug_interfaces(1);
	end_meet(end);
	wait_for_interfaces();
}

static void case_both(void *argument)
{
	struct end end;

	(void)argument;
	rails_plug(&end, both_other_end);
	use_both(&end, true);
	check_number(process_wait(end.other), 0);
}

static void case_lost(void *cut)
{
	struct end end;

	check_number(setenv("PEERLANE_KEEPALIVE", KEEPALIVE, 1), 0);
	rails_plug(&end, lose_other_end);
	lose_one(&end, true, cut);
	check_number(process_wait(end.other), 0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "both", case_both, NULL, 60 },
		{ "cut", case_lost, "ip link set pl0 down", 60 },
		{ "deleted", case_lost, "ip link del pl0", 60 },
	};

	if (!netns_possible()) {
		puts("skipped: network namespaces cannot be made here (they need root and iproute2)");
		return SKIPPED;
	}
	return cases_run("nccl_rails", cases, sizeof(cases) / sizeof(cases[0]));
}
