/* SPDX-License-Identifier: BSD-2-Clause */
/* The cable's sockets, and a thread that waits for them. */
#include "card/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Bits of a number: 7 of the process's place, 3 of the device, 14 of the count. */
#define PLACES 128u
#define PLACE_SHIFT 17
#define DEVICE_SHIFT 14
#define WIRES 256
#define NOWHERE UINT32_MAX

struct parcel {
	struct parcel *next;
	size_t size, sent;
	uint8_t bytes[];
};

struct wire {
	int fd;
	uint32_t place; /* of the process to which this one connected; NOWHERE: the other one did */
	struct parcel *first, **last;
	struct wire_header header;
	uint8_t *bytes;
	size_t got;
};

static struct {
	const char *folder; /* NULL: no cable */
	uint32_t place;
	int listener, wake;
	pthread_t thread;
	pid_t process; /* a child without exec(3) has neither place nor thread */
	bool threaded;
	bool stopping;
	struct wire *wires[WIRES];
} cable = { .listener = -1 };

/* -- numbers --------------------------------------------------------------------------------------- */

uint32_t card_wire_number(unsigned device, uint32_t count)
{
	if (!cable.folder)
		return count;
	return cable.place << PLACE_SHIFT | device << DEVICE_SHIFT | (count & ((1u << DEVICE_SHIFT) - 1));
}

unsigned card_wire_place(uint32_t number)
{
	return number >> PLACE_SHIFT & (PLACES - 1);
}

bool card_wire_is_far(uint32_t number, unsigned *device)
{
	*device = number >> DEVICE_SHIFT & ((1u << (PLACE_SHIFT - DEVICE_SHIFT)) - 1);
	return cable.folder && card_wire_place(number) != cable.place;
}

/* -- sockets --------------------------------------------------------------------------------------- */

static struct sockaddr_un address_of(uint32_t place)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%u", cable.folder, place) >=
	    sizeof(address.sun_path))
		abort();
	return address;
}

/* Returns a connected socket, or -1. */
static int dial(uint32_t place)
{
	const struct sockaddr_un address = address_of(place);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Listens at the first place that no living process has. */
static void take_place(void)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int lock;

	mkdir(cable.folder, 0700);
	snprintf(path, sizeof(path), "%s/lock", cable.folder);
	lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cable.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (lock < 0 || cable.listener < 0 || flock(lock, LOCK_EX) < 0)
		abort();
	for (cable.place = 0; cable.place < PLACES; cable.place++) {
		const struct sockaddr_un address = address_of(cable.place);
		int fd = dial(cable.place);

		if (fd >= 0) {
			close(fd);
			continue;
		}
		unlink(address.sun_path);
		if (bind(cable.listener, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
		    listen(cable.listener, WIRES) == 0)
			break;
	}
	close(lock);
	if (cable.place == PLACES)
		abort();
}

static struct wire *wire_add(int fd, uint32_t place)
{
	for (unsigned i = 0; i < WIRES; i++) {
		struct wire *wire = cable.wires[i];

		if (wire)
			continue;
		wire = calloc(1, sizeof(*wire));
		if (!wire)
			abort();
		wire->fd = fd;
		wire->place = place;
		wire->last = &wire->first;
		cable.wires[i] = wire;
		return wire;
	}
	close(fd);
	return NULL;
}

static void wire_drop(struct wire **at)
{
	struct wire *wire = *at;
	struct parcel *next;

	*at = NULL;
	for (struct parcel *parcel = wire->first; parcel; parcel = next) {
		next = parcel->next;
		free(parcel);
	}
	close(wire->fd);
	if (wire->place != NOWHERE)
		card_far_lost(wire->place);
	free(wire->bytes);
	free(wire);
}

/* -- messages -------------------------------------------------------------------------------------- */

/* Returns false after a failure. */
static bool wire_flush(struct wire *wire)
{
	while (wire->first) {
		struct parcel *parcel = wire->first;
		ssize_t sent = send(wire->fd, parcel->bytes + parcel->sent, parcel->size - parcel->sent, MSG_NOSIGNAL);

		if (sent < 0)
			return errno == EAGAIN;
		parcel->sent += (size_t)sent;
		if (parcel->sent < parcel->size)
			return true;
		wire->first = parcel->next;
		if (!wire->first)
			wire->last = &wire->first;
		free(parcel);
	}
	return true;
}

void card_wire_answer(struct wire *wire, const struct wire_header *header, const void *bytes)
{
	struct parcel *parcel = malloc(sizeof(*parcel) + sizeof(*header) + header->length);
	uint64_t one = 1;

	if (!parcel)
		abort();
	*parcel = (struct parcel){ .size = sizeof(*header) + header->length };
	memcpy(parcel->bytes, header, sizeof(*header));
	if (header->length)
		memcpy(parcel->bytes + sizeof(*header), bytes, header->length);
	*wire->last = parcel;
	wire->last = &parcel->next;
	/* The thread drops broken connections, and sends the rest. */
	if (!wire_flush(wire) || wire->first)
		(void)!write(cable.wake, &one, sizeof(one));
}

bool card_wire_send(uint32_t number, const struct wire_header *header, const void *bytes)
{
	const uint32_t place = card_wire_place(number);
	struct wire *wire = NULL;
	uint64_t one = 1;
	int fd;

	for (unsigned i = 0; i < WIRES && !wire; i++)
		if (cable.wires[i] && cable.wires[i]->place == place)
			wire = cable.wires[i];
	if (!wire) {
		fd = dial(place);
		wire = fd < 0 ? NULL : wire_add(fd, place);
		(void)!write(cable.wake, &one, sizeof(one));
	}
	if (wire)
		card_wire_answer(wire, header, bytes);
	return wire;
}

/* Returns false at the end of the connection. */
static bool wire_receive(struct wire *wire)
{
	for (;;) {
		uint8_t *head = (uint8_t *)&wire->header;
		size_t size = sizeof(wire->header) + (wire->bytes ? wire->header.length : 0);
		uint8_t *to = wire->bytes ? wire->bytes + (wire->got - sizeof(wire->header)) : head + wire->got;
		ssize_t got = wire->got < size ? recv(wire->fd, to, size - wire->got, 0) : 0;

		if (got < 0)
			return errno == EAGAIN;
		if (got == 0 && wire->got < size)
			return false;
		wire->got += (size_t)got;
		if (wire->got < size)
			continue;
		if (!wire->bytes) {
			wire->bytes = malloc(wire->header.length + 1);
			if (!wire->bytes)
				abort();
			if (wire->header.length)
				continue;
		}
		card_far_message(wire, &wire->header, wire->bytes);
		free(wire->bytes);
		wire->bytes = NULL;
		wire->got = 0;
	}
}

/* -- thread ---------------------------------------------------------------------------------------- */

static void accept_all(void)
{
	int fd;

	while ((fd = accept4(cable.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		wire_add(fd, NOWHERE);
}

static void serve_all(void)
{
	accept_all();
	for (unsigned i = 0; i < WIRES; i++) {
		struct wire *wire = cable.wires[i];
		bool open;

		if (!wire)
			continue;
		/* Answers that came before the end count. */
		open = wire_receive(wire);
		if (!wire_flush(wire) || !open)
			wire_drop(&cable.wires[i]);
	}
}

static nfds_t list_sockets(struct pollfd *list)
{
	nfds_t count = 0;

	list[count++] = (struct pollfd){ .fd = cable.listener, .events = POLLIN };
	list[count++] = (struct pollfd){ .fd = cable.wake, .events = POLLIN };
	for (unsigned i = 0; i < WIRES; i++) {
		const struct wire *wire = cable.wires[i];

		if (wire)
			list[count++] = (struct pollfd){ .fd = wire->fd, .events = POLLIN | (wire->first ? POLLOUT : 0) };
	}
	return count;
}

static void *wire_thread(void *argument)
{
	static struct pollfd list[WIRES + 2];
	uint64_t value;

	pthread_mutex_lock(&card_lock);
	while (!cable.stopping) {
		nfds_t count = list_sockets(list);

		pthread_mutex_unlock(&card_lock);
		poll(list, count, -1);
		pthread_mutex_lock(&card_lock);
		(void)!read(cable.wake, &value, sizeof(value));
		serve_all();
	}
	pthread_mutex_unlock(&card_lock);
	return argument;
}

/* Takes a place, if this process has none. */
static void wire_join(void)
{
	cable.folder = getenv("STANDIN_CABLE");
	if (!cable.folder || cable.process == getpid())
		return;
	cable.process = getpid();
	take_place();
}

void card_wire_start(void)
{
	wire_join();
	if (!cable.folder)
		return;
	cable.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (cable.wake < 0 || pthread_create(&cable.thread, NULL, wire_thread, NULL))
		abort();
	cable.threaded = true;
}

/* cable_early.c: opens the files that a sandbox would refuse later. */
void standin_cable_join(void)
{
	pthread_mutex_lock(&card_lock);
	wire_join();
	pthread_mutex_unlock(&card_lock);
}

static void wire_stop(void) __attribute__((destructor(102)));

static void wire_stop(void)
{
	uint64_t one = 1;

	if (cable.process != getpid())
		return;
	if (cable.threaded) {
		pthread_mutex_lock(&card_lock);
		cable.stopping = true;
		pthread_mutex_unlock(&card_lock);
		(void)!write(cable.wake, &one, sizeof(one));
		pthread_join(cable.thread, NULL);
		close(cable.wake);
	}
	/* A sandbox may refuse this: the next process takes a place without a listener. */
	unlink(address_of(cable.place).sun_path);
	for (unsigned i = 0; i < WIRES; i++)
		if (cable.wires[i])
			wire_drop(&cable.wires[i]);
	close(cable.listener);
}
