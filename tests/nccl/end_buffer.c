/* SPDX-License-Identifier: BSD-2-Clause */
#include "end_buffer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"
#include "support/system_call.h"

void end_open(struct end *end, bool sends)
{
	driver_open(&end->driver, 11);
	end->comm = sends ? end_send_comm(end) : end_receive_comm(end);
	end->data = calloc(1, LENGTH);
	check(end->data);
	end->memory = driver_register(&end->driver, end->comm, end->data, LENGTH);
}

void end_close(struct end *end, bool sends)
{
	driver_deregister(&end->driver, end->comm, end->memory);
	free(end->data);
	if (sends)
		driver_close_send(&end->driver, end->comm);
	else
		driver_close_receive(&end->driver, end->comm);
	driver_close(&end->driver);
}

void end_exchange(struct end *end, void *send_comm, void *receive_comm, unsigned number, bool first)
{
	static uint8_t from[20000], to[20000];
	struct driver *driver = &end->driver;
	void *from_memory = driver_register(driver, send_comm, from, sizeof(from));
	void *to_memory = driver_register(driver, receive_comm, to, sizeof(to));
	void *send, *receive;

	content_fill(from, sizeof(from), number * 2 + first);
	receive = driver_must_receive(driver, receive_comm, to, sizeof(to), to_memory);
	send = driver_must_send(driver, send_comm, from, sizeof(from), from_memory);
	driver_finish(driver, send);
	check_number(driver_finish(driver, receive), sizeof(to));
	check(content_is(to, sizeof(to), number * 2 + !first));
	driver_deregister(driver, send_comm, from_memory);
	driver_deregister(driver, receive_comm, to_memory);
}

/* Verbs need a device, as in the virtual machines, or the stand-in card with a cable for the processes. */
static bool has_rdma_device(void)
{
	DIR *folder = opendir("/sys/class/infiniband");
	const struct dirent *entry = NULL;

	while (folder && (entry = readdir(folder)) && entry->d_name[0] == '.')
		continue;
	if (folder)
		closedir(folder);
	return entry;
}

/* The key lies in memory, and its descriptor stays open in children. */
void use_key(const char *key)
{
	char path[32];
	int fd = memfd_create("key", 0);

	check(fd >= 0);
	check_number(fchmod(fd, 0600), 0);
	check_number(write(fd, key, strlen(key)), strlen(key));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check_number(setenv("PEERLANE_KEY_FILE", path, 1), 0);
}

void use_fabric(const void *name)
{
	const char *fabric = name;

	if (!strcmp(fabric, "verbs") && !has_rdma_device() && !getenv("STANDIN_CABLE")) {
		fprintf(stderr, "there is no RDMA device\n");
		exit(SKIPPED);
	}
	if (!strcmp(fabric, "denied")) {
#ifdef __SANITIZE_THREAD__
		fprintf(stderr, "ThreadSanitizer does not see that the other process orders accesses\n");
		exit(SKIPPED);
#endif
		refuse_process_vm();
		fabric = "local";
	}
	if (!strcmp(fabric, "encrypted")) {
		use_key("kQ7vX2pL9mR4tY8wB3nZ6cF1");
		check_number(setenv("PEERLANE_ENCRYPT", "1", 1), 0);
		fabric = "tcp";
	}
	check_number(setenv("PEERLANE_FABRIC", fabric, 1), 0);
}

void check_path(const void *fabric)
{
	static const char denied[] = "through a socket, as the kernel does not let this process copy";
	static const char copied[] = "the kernel copies between the processes";

	if (!strcmp(fabric, "denied"))
		check(driver_logged(denied) && !driver_logged(copied));
	if (!strcmp(fabric, "local"))
		check(driver_logged(copied) && !driver_logged(denied));
}
