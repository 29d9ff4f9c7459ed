/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of libibverbs for each device: the driver's answer counts more than its version. */
#include "diag/check/probe.h"

#include <stdlib.h>

#ifdef PL_HAVE_VERBS

#include "rdma/data_direct.h"
#include "rdma/driver_call.h"
#include "rdma/library.h"

/* Time for the drivers of all devices, which are asked at once. */
#define ANSWER_TIME (2 * PL_NS_PER_S)
/* Devices that are asked. */
#define DEVICES_MAX 256

typedef void (*ask_function)(const struct verbs_library *library, struct ibv_device *device, FILE *to);

/* Question to the driver of a device. */
struct question {
	struct rdma_call call;
	const struct verbs_library *library;
	struct ibv_device *device;
	ask_function ask;
	char *text; /* the answer */
	size_t length;
};

/* Registers an invalid descriptor: EBADF comes from a driver with support, every other error from one without. */
static int ask_dmabuf(const struct verbs_library *library, struct ibv_pd *pd)
{
	struct ibv_mr *mr;

	if (!library->ibv_reg_dmabuf_mr)
		return ENOSYS;
	mr = library->ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
	if (!mr)
		return errno;
	library->ibv_dereg_mr(mr);
	return 0;
}

/* Registers an ordinary page, which fails if limits or containers forbid it. */
static int ask_registration(const struct verbs_library *library, struct ibv_pd *pd)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct ibv_mr *mr = NULL;
	int rc = verbs_reg_buffers(library, pd, page, sizeof(page), &mr);

	if (mr)
		library->ibv_dereg_mr(mr);
	return -rc;
}

/* The kernel shows the MTU in no file. */
static void tell_ports(const struct verbs_library *library, struct ibv_context *context, const char *name,
		       unsigned count, FILE *to)
{
	struct ibv_port_attr port;

	for (unsigned i = 1; i <= count; i++)
		if (verbs_query_port(library, context, (uint8_t)i, &port) == 0 && port.active_mtu >= IBV_MTU_256 &&
		    port.active_mtu <= IBV_MTU_4096) {
			fprintf(to, "verbs.device.%s.port.%u.mtu %u\n", name, i, 128u << port.active_mtu);
			fprintf(to, "verbs.device.%s.port.%u.max_mtu %u\n", name, i, 128u << port.max_mtu);
		}
}

static void tell_data_direct_function(const struct verbs_library *library, struct ibv_context *context,
				      const char *name, FILE *to)
{
	char path[RDMA_DATA_DIRECT_PATH];

	if (rdma_data_direct_path(library, context, path) == 0)
		fprintf(to, "verbs.device.%s.data-direct %s\n", name, path);
}

static void ask_device(const struct verbs_library *library, struct ibv_device *device, FILE *to)
{
	const char *name = library->ibv_get_device_name(device);
	struct ibv_context *context = library->ibv_open_device(device);
	struct ibv_device_attr attributes;
	struct ibv_pd *pd;

	fprintf(to, "verbs.device.%s.open %d\n", name, context ? 0 : errno);
	if (!context)
		return;
	if (library->ibv_query_device(context, &attributes) == 0)
		tell_ports(library, context, name, attributes.phys_port_cnt, to);
	tell_data_direct_function(library, context, name, to);
	pd = library->ibv_alloc_pd(context);
	if (pd) {
		fprintf(to, "verbs.device.%s.register %d\n", name, ask_registration(library, pd));
		fprintf(to, "verbs.device.%s.dmabuf %d\n", name, ask_dmabuf(library, pd));
		library->ibv_dealloc_pd(pd);
	}
	library->ibv_close_device(context);
}

static void ask_data_direct(const struct verbs_library *library, struct ibv_device *device, FILE *to)
{
	struct ibv_context *context = library->ibv_open_device(device);

	if (!context)
		return;
	tell_data_direct_function(library, context, library->ibv_get_device_name(device), to);
	library->ibv_close_device(context);
}

static void run_question(struct rdma_call *call)
{
	struct question *question = pl_container_of(call, struct question, call);
	FILE *to = open_memstream(&question->text, &question->length);

	if (!to)
		return;
	question->ask(question->library, question->device, to);
	fclose(to);
}

static void drop_question(struct rdma_call *call)
{
	struct question *question = pl_container_of(call, struct question, call);

	free(question->text);
	free(question);
}

/* Returns NULL without memory. */
static struct question *ask_driver(const struct verbs_library *library, struct ibv_device *device, ask_function ask)
{
	struct question *question = calloc(1, sizeof(*question));

	if (!question)
		return NULL;
	question->call.run = run_question;
	question->call.drop = drop_question;
	question->library = library;
	question->device = device;
	question->ask = ask;
	rdma_call_start(&question->call);
	return question;
}

/* Writes the answer, or that there is none. Returns false then: the driver may still use the device. */
static bool tell_answer(struct question *question, FILE *to)
{
	const bool answered = rdma_call_await(&question->call, question->call.since + ANSWER_TIME);

	if (answered && question->text)
		fputs(question->text, to);
	else if (!answered)
		fprintf(to, "verbs.device.%s.open %d\n", question->library->ibv_get_device_name(question->device),
			ETIMEDOUT);
	rdma_call_leave(&question->call);
	return answered;
}

/* Tells the number of devices, and asks each. */
static void ask_devices(const struct verbs_library *library, ask_function ask, FILE *to)
{
	struct question *questions[DEVICES_MAX];
	struct ibv_device **devices;
	bool answered = true;
	int count = 0;

	devices = library->ibv_get_device_list(&count);
	fprintf(to, "verbs.devices %d\n", devices ? count : -errno);
	count = devices ? PL_MIN(count, DEVICES_MAX) : 0;
	for (int i = 0; i < count; i++)
		questions[i] = ask_driver(library, devices[i], ask);
	for (int i = 0; i < count; i++)
		if (questions[i])
			answered &= tell_answer(questions[i], to);
	if (devices && answered)
		library->ibv_free_device_list(devices);
}

void pl_probe_verbs(FILE *to, const void *argument)
{
	struct pl_error error;
	const struct verbs_library *library = verbs_library_get(&error);

	(void)argument;
	if (!library) {
		fprintf(to, "verbs.library %s\n", error.message);
		return;
	}
	fputs("verbs.library ok\n", to);
	ask_devices(library, ask_device, to);
}

void pl_probe_data_direct(FILE *to, const void *argument)
{
	const struct verbs_library *library = verbs_library_get(NULL);

	(void)argument;
	if (library)
		ask_devices(library, ask_data_direct, to);
}

#else

void pl_probe_verbs(FILE *to, const void *argument)
{
	(void)argument;
	fputs("verbs.library this build is without libibverbs\n", to);
}

void pl_probe_data_direct(FILE *to, const void *argument)
{
	(void)to;
	(void)argument;
}

#endif
