/* SPDX-License-Identifier: BSD-2-Clause */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/check.h"
#include "support/process.h"

#define SECONDS 30

static atomic_uint warnings;
static _Thread_local char warning[1024];
/* All lines of this process, as far as there is room. */
static struct {
	pthread_mutex_t lock;
	char text[1 << 16];
	size_t length;
} lines = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep_log(enum net_log_level level, unsigned long flags, const char *file, int line, const char *format, ...)
{
	va_list arguments;

	(void)flags;
	(void)file;
	(void)line;
	pthread_mutex_lock(&lines.lock);
	if (lines.length < sizeof(lines.text) - 1024) {
		va_start(arguments, format);
		lines.length += (size_t)vsnprintf(lines.text + lines.length, 1000, format, arguments) % 1000;
		va_end(arguments);
		lines.text[lines.length++] = '\n';
	}
	pthread_mutex_unlock(&lines.lock);
	if (level == NET_LOG_WARN) {
		va_start(arguments, format);
		vsnprintf(warning, sizeof(warning), format, arguments);
		va_end(arguments);
		atomic_fetch_add(&warnings, 1);
	}
	if (getenv("TEST_NCCL_LOG")) {
		va_start(arguments, format);
		vfprintf(stderr, format, arguments);
		va_end(arguments);
		fputc('\n', stderr);
	}
}

unsigned driver_warnings(void)
{
	return atomic_load(&warnings);
}

const char *driver_warning(void)
{
	return warning;
}

bool driver_logged(const char *text)
{
	bool found;

	pthread_mutex_lock(&lines.lock);
	lines.text[lines.length] = '\0';
	found = strstr(lines.text, text);
	pthread_mutex_unlock(&lines.lock);
	return found;
}

/* -- waiting -------------------------------------------------------------------------------------- */

void patience_begin(struct patience *patience, unsigned seconds)
{
	patience->deadline = clock_now() + hang_seconds(seconds) * SECOND;
}

void patience_wait(struct patience *patience)
{
	check(clock_now() < patience->deadline);
	nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

/* -- the library ---------------------------------------------------------------------------------- */

static const void *find_table(struct driver *driver, int version)
{
	char name[32];
	const void *table;

	snprintf(name, sizeof(name), "ncclNetPlugin_v%d", version);
	table = dlsym(driver->library, name);
	check(table);
	return table;
}

enum net_result driver_load(struct driver *driver, int version)
{
	memset(driver, 0, sizeof(*driver));
	check(getenv("NCCL_NET_PLUGIN"));
	driver->library = dlopen(getenv("NCCL_NET_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
	if (!driver->library)
		check_failed(__FILE__, __LINE__, "%s", dlerror());
	driver->version = version;
	driver->v8 = find_table(driver, 8);
	driver->v9 = find_table(driver, 9);
	driver->v10 = find_table(driver, 10);
	driver->v11 = find_table(driver, 11);
	driver->v12 = find_table(driver, 12);
	return driver_init(driver, &driver->context);
}

void driver_open(struct driver *driver, int version)
{
	check_number(driver_load(driver, version), NET_SUCCESS);
}

void driver_close(struct driver *driver)
{
	if (driver->version >= 11)
		check_number(driver_finalize(driver, driver->context), NET_SUCCESS);
	dlclose(driver->library);
}

enum net_result driver_init(struct driver *driver, void **context)
{
	struct net_config config = { .traffic_class = -1 };

	*context = NULL;
	switch (driver->version) {
	case 8:
		return driver->v8->init(keep_log);
	case 9:
		return driver->v9->init(keep_log);
	case 10:
		return driver->v10->init(keep_log, NULL);
	case 11:
		return driver->v11->init(context, 1, &config, keep_log, NULL);
	default:
		return driver->v12->init(context, 1, &config, keep_log, NULL);
	}
}

enum net_result driver_finalize(struct driver *driver, void *context)
{
	return driver->version == 11 ? driver->v11->finalize(context) : driver->v12->finalize(context);
}

int driver_devices(struct driver *driver)
{
	int count = -1;

	/* The same function in all tables. */
	check_number(driver->v11->devices(&count), NET_SUCCESS);
	return count;
}

/* -- connections ---------------------------------------------------------------------------------- */

void driver_listen(struct driver *driver, void *handle, void **listener)
{
	enum net_result rc;

	*listener = NULL;
	memset(handle, 0xaa, NET_HANDLE_SIZE);
	if (driver->version < 11)
		rc = driver->v10->listen(driver->device, handle, listener);
	else
		rc = driver->v11->listen(driver->context, driver->device, handle, listener);
	check_number(rc, NET_SUCCESS);
	check(*listener);
}

enum net_result driver_connect(struct driver *driver, void *handle, void **comm)
{
	struct net_device_handle *offload = (void *)1;
	struct net_config config = { .traffic_class = -1 };
	enum net_result rc;

	*comm = (void *)1;
	if (driver->version < 10)
		rc = driver->v9->connect(driver->device, handle, comm, &offload);
	else if (driver->version == 10)
		rc = driver->v10->connect(driver->device, &config, handle, comm, &offload);
	else
		rc = driver->v11->connect(driver->context, driver->device, handle, comm, &offload);
	check(offload == (void *)1);
	return rc;
}

enum net_result driver_accept(struct driver *driver, void *listener, void **comm)
{
	struct net_device_handle *offload = (void *)1;
	enum net_result rc;

	*comm = (void *)1;
	rc = driver->v11->accept(listener, comm, &offload);
	check(offload == (void *)1);
	return rc;
}

void driver_close_listen(struct driver *driver, void *listener)
{
	check_number(driver->v11->closeListen(listener), NET_SUCCESS);
}

void driver_close_send(struct driver *driver, void *comm)
{
	check_number(driver->v11->closeSend(comm), NET_SUCCESS);
}

void driver_close_receive(struct driver *driver, void *comm)
{
	check_number(driver->v11->closeRecv(comm), NET_SUCCESS);
}

/* -- memory and messages -------------------------------------------------------------------------- */

void *driver_register(struct driver *driver, void *comm, void *data, size_t size)
{
	void *memory = NULL;

	check_number(driver->v11->regMr(comm, data, size, NET_POINTER_HOST, &memory), NET_SUCCESS);
	check(memory);
	return memory;
}

void *driver_register_gpu(struct driver *driver, void *comm, void *data, size_t size, uint64_t offset, int fd)
{
	void *memory = NULL;
	enum net_result rc = fd < 0 ? driver->v11->regMr(comm, data, size, NET_POINTER_CUDA, &memory)
				    : driver->v11->regMrDmaBuf(comm, data, size, NET_POINTER_CUDA, offset, fd, &memory);

	check_number(rc, NET_SUCCESS);
	check(memory);
	return memory;
}

void driver_deregister(struct driver *driver, void *comm, void *memory)
{
	check_number(driver->v11->deregMr(comm, memory), NET_SUCCESS);
}

enum net_result driver_send(struct driver *driver, void *comm, void *data, size_t size, void *memory, void **request)
{
	*request = (void *)0x5a5a;
	switch (driver->version) {
	case 8:
		return driver->v8->isend(comm, data, (int)size, 7, memory, request);
	case 9:
		return driver->v9->isend(comm, data, size, 7, memory, request);
	default:
		return driver->v10->isend(comm, data, size, 7, memory, NULL, request);
	}
}

enum net_result driver_receive(struct driver *driver, void *comm, void *data, size_t size, void *memory, void **request)
{
	int small = (int)size, tag = 7;

	/* From version 9 on this value means that the completion is optional. */
	*request = (void *)0x1;
	switch (driver->version) {
	case 8:
		return driver->v8->irecv(comm, 1, &data, &small, &tag, &memory, request);
	case 9:
		return driver->v9->irecv(comm, 1, &data, &size, &tag, &memory, request);
	default:
		return driver->v10->irecv(comm, 1, &data, &size, &tag, &memory, NULL, request);
	}
}

enum net_result driver_test(struct driver *driver, void *request, int *done, int *size)
{
	*done = -1;
	return driver->v11->test(request, done, size);
}

void *driver_must_send(struct driver *driver, void *comm, void *data, size_t size, void *memory)
{
	struct patience patience;
	void *request;

	patience_begin(&patience, SECONDS);
	for (;;) {
		check_number(driver_send(driver, comm, data, size, memory, &request), NET_SUCCESS);
		if (request)
			return request;
		patience_wait(&patience);
	}
}

void *driver_must_receive(struct driver *driver, void *comm, void *data, size_t size, void *memory)
{
	struct patience patience;
	void *request;

	patience_begin(&patience, SECONDS);
	for (;;) {
		check_number(driver_receive(driver, comm, data, size, memory, &request), NET_SUCCESS);
		if (request)
			return request;
		patience_wait(&patience);
	}
}

enum net_result driver_wait_refusal(struct driver *driver, void *comm, void *data, size_t size, void *memory)
{
	struct patience patience;
	void *request;

	patience_begin(&patience, SECONDS);
	for (;;) {
		enum net_result rc = driver_send(driver, comm, data, size, memory, &request);

		if (rc != NET_SUCCESS)
			return rc;
		check(!request);
		patience_wait(&patience);
	}
}

int driver_finish(struct driver *driver, void *request)
{
	struct patience patience;
	int done, size = -1;

	patience_begin(&patience, SECONDS);
	for (;;) {
		enum net_result rc = driver_test(driver, request, &done, &size);

		if (rc != NET_SUCCESS)
			check_failed(__FILE__, __LINE__, "test() returned %d: %s", rc, warning);
		if (done)
			return size;
		patience_wait(&patience);
	}
}

enum net_result driver_wait_failure(struct driver *driver, void *request)
{
	struct patience patience;
	int done;

	patience_begin(&patience, SECONDS);
	for (;;) {
		enum net_result rc = driver_test(driver, request, &done, NULL);

		if (rc != NET_SUCCESS)
			return rc;
		check_number(done, 0);
		patience_wait(&patience);
	}
}

/* -- content -------------------------------------------------------------------------------------- */

static uint8_t content_at(size_t at, unsigned number)
{
	return (uint8_t)((at * 31 + at / 251 + number * 17) & 0xff);
}

void content_fill(uint8_t *data, size_t size, unsigned number)
{
	for (size_t at = 0; at < size; at++)
		data[at] = content_at(at, number);
}

bool content_is(const uint8_t *data, size_t size, unsigned number)
{
	for (size_t at = 0; at < size; at++)
		if (data[at] != content_at(at, number))
			return false;
	return true;
}

/* -- both ends in this process --------------------------------------------------------------------- */

/* Calls both functions in turn in a single thread, as NCCL's service thread may do. */
void line_connect(struct line *line, struct driver *driver, int from_device, int to_device)
{
	uint8_t handle[NET_HANDLE_SIZE];
	struct patience patience;
	void *listener;

	memset(line, 0, sizeof(*line));
	line->driver = driver;
	driver->device = to_device;
	driver_listen(driver, handle, &listener);
	driver->device = from_device;
	patience_begin(&patience, 30);
	while (!line->sender || !line->receiver) {
		if (!line->sender)
			check_number(driver_connect(driver, handle, &line->sender), NET_SUCCESS);
		if (!line->receiver)
			check_number(driver_accept(driver, listener, &line->receiver), NET_SUCCESS);
		patience_wait(&patience);
	}
	driver_close_listen(driver, listener);
}
