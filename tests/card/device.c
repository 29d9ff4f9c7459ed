/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices, their attributes, and asynchronous events. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/card.h"

/* Time that a port is down. */
#define PORT_PAUSE (3 * CARD_MILLISECOND)

struct card_counts card_counts;
/* Behind them, each once more, with the name that it gets later: the library makes a new object for it. */
static struct ibv_device devices[2 * CARD_DEVICES];
static atomic_bool renamed[CARD_DEVICES];
static unsigned device_count;
/* All open contexts; card_lock. */
static struct card_context *contexts;
static atomic_bool port_down[CARD_DEVICES * CARD_PORTS]; /* by the numbers among all ports */
static atomic_bool hidden; /* all devices are gone */
static atomic_uint shown = CARD_DEVICES; /* devices from this one on are not there yet */

unsigned card_number(const struct ibv_context *of)
{
	return (unsigned)(of->device - devices) % CARD_DEVICES;
}

bool card_has_port(unsigned number)
{
	const char *ports = getenv("STANDIN_PORTS");

	return number >= 1 && number <= CARD_PORTS && number <= (ports ? strtoul(ports, NULL, 10) : 1);
}

unsigned card_place_of(unsigned device, unsigned port)
{
	return device + CARD_DEVICES * (port - 1);
}

bool card_has_atomics(const struct ibv_context *of)
{
	const char *without = getenv("STANDIN_NO_ATOMICS");

	return card_character()->atomics && !(without && strtoul(without, NULL, 10) & 1ul << card_number(of));
}

bool card_is_foreign(const struct ibv_context *of)
{
	const char *foreign = getenv("STANDIN_FOREIGN");

	return foreign && strtoul(foreign, NULL, 10) & 1ul << card_number(of);
}

static int query_port_extended(struct ibv_context *of, uint8_t port, struct ibv_port_attr *attributes, size_t length)
{
	const struct card_character *character = card_character();
	const unsigned place = card_has_port(port) ? card_place_of(card_number(of), port) : 0;
	struct ibv_port_attr all = {
		.state = port_down[place] ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = character->mtu,
		.gid_tbl_len = (int)card_gid_count(),
		.max_msg_sz = character->max_message,
		.pkey_tbl_len = (uint16_t)card_pkey_count(),
		.active_width = character->width,
		.active_speed = character->speed,
		.lid = character->link_layer == IBV_LINK_LAYER_INFINIBAND ? (uint16_t)(CARD_LID + place) : 0,
		.link_layer = character->link_layer,
		.flags = character->grh ? IBV_QPF_GRH_REQUIRED : 0,
	};

	card_await_call("ibv_query_port");
	if (!card_has_port(port))
		return EINVAL;
	memcpy(attributes, &all, length < sizeof(all) ? length : sizeof(all));
	return 0;
}

/* The character's name ends with a digit, which counts the devices. */
static void device_fill(void)
{
	const char *name = card_character()->device, *count = getenv("STANDIN_CARDS"), *first = getenv("STANDIN_SHOWN");

	if (first)
		shown = (unsigned)strtoul(first, NULL, 10);
	device_count = count ? (unsigned)strtoul(count, NULL, 10) : 1;
	if (device_count < 1 || device_count > CARD_DEVICES)
		abort();
	for (unsigned i = 0; i < device_count; i++) {
		devices[i].node_type = IBV_NODE_CA;
		devices[i].transport_type = card_character()->transport;
		snprintf(devices[i].name, sizeof(devices[i].name), "%.*s%u", (int)strlen(name) - 1, name, i);
		snprintf(devices[i].dev_name, sizeof(devices[i].dev_name), "uverbs%u", i);
		/* Any entry; the devices are told apart by the names of their files. */
		strcpy(devices[i].dev_path, "/");
		devices[CARD_DEVICES + i] = devices[i];
		snprintf(devices[CARD_DEVICES + i].name, sizeof(devices[i].name), "renamed%u", i);
	}
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct card_context *context_make(struct ibv_device *device)
{
	struct card_context *context = calloc(1, sizeof(*context));
	int ends[2];

	if (!context || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		abort();
	context->events = ends[1];
	context->verbs.sz = sizeof(context->verbs);
	context->verbs.query_port = query_port_extended;
	context->verbs.context = (struct ibv_context){
		.device = device,
		.ops = { .post_send = card_post,
			 .poll_cq = card_poll,
			 .req_notify_cq = card_arm,
			 .post_recv = card_post_receive,
			 .post_srq_recv = card_post_srq,
			 .alloc_mw = card_alloc_window,
			 .dealloc_mw = card_dealloc_window },
		.cmd_fd = -1,
		.async_fd = ends[0],
		.num_comp_vectors = 4,
		.abi_compat = __VERBS_ABI_IS_EXTENDED,
	};
	return context;
}

static const struct ibv_context *context_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_QP_ACCESS_ERR:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq ? event->element.srq->context : NULL;
	default:
		return NULL;
	}
}

void card_event(struct ibv_async_event event)
{
	const struct ibv_context *one = context_of(&event);

	/* A full pipe drops the event, as the kernel does. */
	for (struct card_context *at = contexts; at; at = at->next)
		if ((!one || one == &at->verbs.context) && write(at->events, &event, sizeof(event)) < 0)
			continue;
}

/* Events of a port go to the contexts of its device. */
static void port_event(unsigned number, enum ibv_event_type type)
{
	const struct ibv_async_event event = { .element.port_num = 1 + (int)(number / CARD_DEVICES),
					       .event_type = type };

	for (struct card_context *at = contexts; at; at = at->next)
		if (card_number(&at->verbs.context) == number % CARD_DEVICES &&
		    write(at->events, &event, sizeof(event)) < 0)
			continue;
}

static void port_return(void *argument)
{
	unsigned number = (unsigned)((atomic_bool *)argument - port_down);

	port_down[number] = false;
	port_event(number, IBV_EVENT_PORT_ACTIVE);
}

/*
 * Not IBV_EVENT_QP_LAST_WQE_REACHED: a card raises it only for a queue pair in the error state, and one that comes before says that
 * receives have returned which have not.
 */
void card_event_by_chance(struct card_qp *qp)
{
	static const enum ibv_event_type kinds[] = {
		IBV_EVENT_PORT_ERR,          IBV_EVENT_GID_CHANGE,        IBV_EVENT_LID_CHANGE,
		IBV_EVENT_SM_CHANGE,         IBV_EVENT_COMM_EST,          IBV_EVENT_SQ_DRAINED,
		IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_QP_ACCESS_ERR,
	};
	unsigned number = card_number(qp->base.context);
	struct ibv_async_event event;

	if (!card_happens(CARD_EVENTS))
		return;
	event.event_type = kinds[card_random(sizeof(kinds) / sizeof(kinds[0]))];
	switch (event.event_type) {
	case IBV_EVENT_PORT_ERR:
		if (!atomic_exchange(&port_down[number], true))
			card_after(PORT_PAUSE, port_return, &port_down[number]);
		port_event(number, IBV_EVENT_PORT_ERR);
		return;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event.element.srq = qp->base.srq;
		break;
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_ACCESS_ERR:
		event.element.qp = &qp->base;
		break;
	default:
		event.element.port_num = 1;
		break;
	}
	card_event(event);
}

static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

/* Returns the queue pair of an event, or NULL. */
static struct card_qp *qp_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_QP_ACCESS_ERR:
		return (struct card_qp *)event->element.qp;
	default:
		return NULL;
	}
}

int ibv_get_async_event(struct ibv_context *of, struct ibv_async_event *event)
{
	struct card_qp *qp;
	bool any;

	pthread_mutex_lock(&card_lock);
	any = read(of->async_fd, event, sizeof(*event)) == sizeof(*event);
	qp = any ? qp_of(event) : NULL;
	if (qp)
		qp->unacknowledged++;
	pthread_mutex_unlock(&card_lock);
	return any ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct card_qp *qp = qp_of(event);

	if (!qp)
		return;
	pthread_mutex_lock(&card_lock);
	qp->unacknowledged--;
	pthread_cond_broadcast(&acknowledged);
	pthread_mutex_unlock(&card_lock);
}

void card_forget_events(struct card_qp *qp)
{
	/* As many as the pipe holds. */
	static struct ibv_async_event events[4096];
	struct card_context *context = contexts;
	ssize_t length;

	while (&context->verbs.context != qp->base.context)
		context = context->next;
	length = read(qp->base.context->async_fd, events, sizeof(events));
	for (ssize_t i = 0; i < length / (ssize_t)sizeof(events[0]); i++)
		if (qp_of(&events[i]) != qp && write(context->events, &events[i], sizeof(events[0])) < 0)
			abort();
	while (qp->unacknowledged)
		pthread_cond_wait(&acknowledged, &card_lock);
}

/* -- devices -------------------------------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(CARD_DEVICES + 1, sizeof(struct ibv_device *));
	unsigned listed = 0;

	if (!list)
		return NULL;
	card_await_look();
	pthread_once(&once, device_fill);
	for (; listed < device_count && listed < shown && !hidden; listed++)
		list[listed] = &devices[listed + (renamed[listed] ? CARD_DEVICES : 0)];
	if (count)
		*count = (int)listed;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *of)
{
	return of->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *of)
{
	struct card_context *context;

	card_await_open((unsigned)(of - devices) % CARD_DEVICES);
	context = context_make(of);
	card_start();
	pthread_mutex_lock(&card_lock);
	context->next = contexts;
	contexts = context;
	card_counts.contexts++;
	pthread_mutex_unlock(&card_lock);
	return &context->verbs.context;
}

int ibv_close_device(struct ibv_context *of)
{
	struct card_context **at = &contexts, *context;

	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	while (&(*at)->verbs.context != of)
		at = &(*at)->next;
	context = *at;
	*at = context->next;
	card_counts.contexts--;
	pthread_mutex_unlock(&card_lock);
	close(context->events);
	close(of->async_fd);
	free(context);
	return 0;
}

static uint32_t vendor_of(const struct ibv_context *of)
{
	static const struct {
		const char *begin;
		uint32_t vendor;
	} vendors[] = { { "mlx", 0x2c9 },    { "hns", 0x19e5 },   { "qedr", 0x1077 },  { "bnxt_re", 0x14e4 },
			{ "irdma", 0x8086 }, { "erdma", 0x1ded }, { "ionic", 0x1dd8 }, { "mana", 0x1414 },
			{ "siw", 0x626d74 }, { "efa", 0x1d0f } };

	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]) && !card_is_foreign(of); i++)
		if (!strncmp(card_character()->device, vendors[i].begin, strlen(vendors[i].begin)))
			return vendors[i].vendor;
	return 0;
}

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *attributes)
{
	const struct card_character *character = card_character();

	card_await_call(__func__);
	if (card_call_fails(__func__))
		return EIO;
	*attributes = (struct ibv_device_attr){
		.fw_ver = "stand-in",
		.vendor_id = vendor_of(of),
		.vendor_part_id = strncmp(character->device, "mlx4", 4) ? 0x1021 : 0x1003,
		.max_qp = 131072,
		.max_qp_wr = character->max_qp_wr,
		.device_cap_flags = character->windows ? IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0,
		.max_sge = character->max_recv_sge ? character->max_recv_sge : character->max_sge,
		.max_cq = 16777216,
		.max_cqe = card_cqe_most(),
		.max_mr = 16777216,
		.max_mr_size = UINT64_MAX,
		.max_pd = 8388608,
		.max_qp_rd_atom = character->max_reads,
		.max_qp_init_rd_atom = character->max_reads,
		.atomic_cap = card_has_atomics(of) ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
		.max_mw = character->windows ? 16777216 : 0,
		.max_srq = character->srq ? 8388608 : 0,
		.max_srq_wr = character->max_srq_wr,
		.max_srq_sge = character->srq ? character->max_sge : 0,
		.phys_port_cnt = card_has_port(2) ? 2 : 1,
	};
	return 0;
}

/* The old function: it does not set the port's flags. */
int ibv_query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	return query_port_extended(of, port, (struct ibv_port_attr *)attributes,
				   offsetof(struct ibv_port_attr, flags));
}

int ibv_query_gid(struct ibv_context *of, uint8_t port, int index, union ibv_gid *gid)
{
	if (!card_has_port(port) || index < 0 ||
	    card_gid(card_place_of(card_number(of), port), (unsigned)index, gid, NULL, NULL) == -EINVAL) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *of, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
		      size_t size)
{
	enum ibv_gid_type type;
	int rc;

	(void)flags;
	if (size != sizeof(*entry))
		return EINVAL;
	rc = card_gid(card_place_of(card_number(of), port), index, &entry->gid, &type, NULL);
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = type;
	return -rc;
}

/* The entries in use, of all ports. */
ssize_t _ibv_query_gid_table(struct ibv_context *of, struct ibv_gid_entry *entries, size_t room, uint32_t flags,
			     size_t size)
{
	size_t count = 0;

	for (unsigned port = 1; card_has_port(port); port++) {
		for (unsigned i = 0; i < card_gid_count(); i++) {
			struct ibv_gid_entry entry;
			int rc = _ibv_query_gid_ex(of, port, i, &entry, flags, size);

			if (rc == ENODATA)
				continue;
			if (rc || count == room)
				return -EINVAL;
			entries[count++] = entry;
		}
	}
	return (ssize_t)count;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->context = of;
	pthread_mutex_lock(&card_lock);
	card_counts.pds++;
	pthread_mutex_unlock(&card_lock);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	card_counts.pds--;
	pthread_mutex_unlock(&card_lock);
	free(pd);
	return 0;
}

/* -- what tests do -------------------------------------------------------------------------------- */

/* The next looks find so many devices. */
void standin_card_show(unsigned count)
{
	shown = count;
}

/* Without `returns` no later look finds a device. */
void standin_card_remove(bool returns)
{
	pthread_mutex_lock(&card_lock);
	hidden = !returns;
	card_event((struct ibv_async_event){ .event_type = IBV_EVENT_DEVICE_FATAL });
	pthread_mutex_unlock(&card_lock);
}

/* -- the end -------------------------------------------------------------------------------------- */

struct card_counts standin_card_counts(void)
{
	struct card_counts result;

	pthread_mutex_lock(&card_lock);
	result = card_counts;
	pthread_mutex_unlock(&card_lock);
	return result;
}

/* For tests: takes a port down, or up again. */
void standin_card_port(unsigned number, bool up)
{
	pthread_mutex_lock(&card_lock);
	port_down[number] = !up;
	port_event(number, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	pthread_mutex_unlock(&card_lock);
}

/* The next looks find the device as "renamed" and its number, as after `rdma dev set`, which the library does not announce. */
void standin_card_rename(unsigned number)
{
	renamed[number] = true;
}

/* For tests: moves an entry of all P_Key tables. */
void standin_card_move_pkey(void)
{
	pthread_mutex_lock(&card_lock);
	card_pkeys_turn();
	card_event((struct ibv_async_event){ .element.port_num = 1, .event_type = IBV_EVENT_PKEY_CHANGE });
	pthread_mutex_unlock(&card_lock);
}

/* An object that is left when the process ends fails the process. */
static void report_leaks(void) __attribute__((destructor));

static void report_leaks(void)
{
	const struct card_counts left = standin_card_counts();

	if (!(left.contexts | left.pds | left.mrs | left.mws | left.cqs | left.channels | left.srqs | left.qps))
		return;
	fprintf(stderr,
		"stand-in card: left at the end: %u contexts, %u domains, %u regions, %u windows, %u completion queues, "
		"%u channels, %u receive queues, %u queue pairs\n",
		left.contexts, left.pds, left.mrs, left.mws, left.cqs, left.channels, left.srqs, left.qps);
	_exit(3);
}
