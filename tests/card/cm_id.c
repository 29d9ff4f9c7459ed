/* SPDX-License-Identifier: BSD-2-Clause */
/* Event channels and ids of the connection manager. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "card/cm.h"

static struct cm_id *all;
static uint64_t next_number = 1;

struct cm_id *cm_find(uint64_t number)
{
	struct cm_id *id = all;

	while (id && id->number != number)
		id = id->next;
	return number ? id : NULL;
}

bool cm_asked(uint64_t number)
{
	for (const struct cm_id *id = all; id; id = id->next)
		if (id->peer == number)
			return true;
	return false;
}

struct cm_id *cm_listener(const struct sockaddr_storage *address)
{
	uint16_t port = ((const struct sockaddr_in *)address)->sin_port;

	for (struct cm_id *id = all; id; id = id->next)
		if (id->state == CM_LISTENING && htons(id->port) == port &&
		    id->base.route.addr.src_addr.sa_family == address->ss_family)
			return id;
	return NULL;
}

/* The id belongs to the device from now on. */
void cm_attach(struct cm_id *id)
{
	id->base.verbs = card_context();
	id->base.port_num = CARD_PORT;
}

/* -- events ---------------------------------------------------------------------------------------- */

static void channel_signal(struct cm_channel *channel)
{
	const uint64_t one = 1;

	if (write(channel->base.fd, &one, sizeof(one)) < 0)
		abort();
}

static void channel_unsignal(struct cm_channel *channel)
{
	uint64_t value;

	if (read(channel->base.fd, &value, sizeof(value)) < 0)
		abort();
}

static void channel_append(struct cm_channel *channel, struct cm_event *event)
{
	event->next = NULL;
	*channel->last = event;
	channel->last = &event->next;
	channel_signal(channel);
}

void cm_report(struct cm_id *id, enum rdma_cm_event_type type, int status, const struct cm_message *message,
	       struct cm_id *listener)
{
	struct cm_event *event = calloc(1, sizeof(*event));
	struct rdma_conn_param *parameters;

	if (!event)
		abort();
	event->base = (struct rdma_cm_event){
		.id = &id->base, .listen_id = listener ? &listener->base : NULL, .event = type, .status = status
	};
	if (message) {
		parameters = &event->base.param.conn;
		memcpy(event->data, message->data, sizeof(event->data));
		parameters->private_data = event->data;
		parameters->private_data_len = listener ? CM_REQUEST_DATA : CM_REPLY_DATA;
		parameters->initiator_depth = parameters->responder_resources = message->depth;
		event->qp_num = message->qp_num;
	}
	channel_append((struct cm_channel *)id->base.channel, event);
}

/* Takes the events of an id out of its channel; NULL: drops them. */
static void channel_move(struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *from = (struct cm_channel *)id->base.channel;
	struct cm_event **at = &from->first;

	while (*at) {
		struct cm_event *event = *at;

		if (event->base.id != &id->base) {
			at = &event->next;
			continue;
		}
		*at = event->next;
		channel_unsignal(from);
		if (to)
			channel_append(to, event);
		else
			free(event);
	}
	from->last = &from->first;
	while (*from->last)
		from->last = &(*from->last)->next;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	card_start();
	channel->base.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
	channel->last = &channel->first;
	pthread_mutex_lock(&card_lock);
	card_counts.cm_channels++;
	pthread_mutex_unlock(&card_lock);
	return &channel->base;
}

/* An unread request is an id that the program does not know yet; the kernel drops it. */
void rdma_destroy_event_channel(struct rdma_event_channel *base)
{
	struct cm_channel *channel = (struct cm_channel *)base;

	pthread_mutex_lock(&card_lock);
	while (channel->first) {
		struct cm_event *event = channel->first;
		struct cm_id *id = (struct cm_id *)event->base.id, **at = &all;

		channel->first = event->next;
		if (event->base.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			while (*at != id)
				at = &(*at)->next;
			*at = id->next;
			free(id);
			card_counts.ids--;
		}
		free(event);
	}
	card_counts.cm_channels--;
	pthread_mutex_unlock(&card_lock);
	close(base->fd);
	free(channel);
}

/* librdmacm connects the queue pair when the program takes the reply. */
static void take_reply(struct cm_id *id, const struct cm_event *event)
{
	struct card_qp *qp = (struct card_qp *)id->base.qp;

	if (id->state != CM_ANSWERED)
		return;
	id->state = CM_UP;
	if (qp) {
		qp->peer = event->qp_num;
		qp->base.state = IBV_QPS_RTS;
		card_pump(qp);
	}
	cm_tell(id, CM_READY, 0);
}

int rdma_get_cm_event(struct rdma_event_channel *base, struct rdma_cm_event **result)
{
	struct cm_channel *channel = (struct cm_channel *)base;
	struct cm_event *event;

	pthread_mutex_lock(&card_lock);
	event = channel->first;
	if (event) {
		struct cm_id *id = (struct cm_id *)event->base.id;

		channel->first = event->next;
		if (!channel->first)
			channel->last = &channel->first;
		channel_unsignal(channel);
		id->unacknowledged++;
		if (event->base.event == RDMA_CM_EVENT_ESTABLISHED && event->base.param.conn.private_data)
			take_reply(id, event);
	}
	pthread_mutex_unlock(&card_lock);
	if (!event) {
		errno = EAGAIN;
		return -1;
	}
	*result = &event->base;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *base)
{
	pthread_mutex_lock(&card_lock);
	((struct cm_id *)base->id)->unacknowledged--;
	pthread_mutex_unlock(&card_lock);
	free(base);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const words[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR",    "RDMA_CM_EVENT_ROUTE_RESOLVED",
		"RDMA_CM_EVENT_ROUTE_ERROR",   "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
		"RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",   "RDMA_CM_EVENT_REJECTED",
		"RDMA_CM_EVENT_ESTABLISHED",   "RDMA_CM_EVENT_DISCONNECTED",  "RDMA_CM_EVENT_DEVICE_REMOVAL",
	};

	return (unsigned)event < sizeof(words) / sizeof(words[0]) ? words[event] : "UNKNOWN EVENT";
}

/* -- ids ------------------------------------------------------------------------------------------- */

struct cm_id *cm_new(struct rdma_event_channel *channel, void *context)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		abort();
	id->base = (struct rdma_cm_id){ .channel = channel, .context = context, .ps = RDMA_PS_TCP };
	id->number = next_number++;
	id->next = all;
	all = id;
	card_counts.ids++;
	return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **result, void *context, enum rdma_port_space ps)
{
	(void)ps;
	pthread_mutex_lock(&card_lock);
	*result = &cm_new(channel, context)->base;
	pthread_mutex_unlock(&card_lock);
	return 0;
}

/* The other end learns that this id is gone. */
static void cm_leave(struct cm_id *id)
{
	if (id->state == CM_UP && !id->disconnected)
		cm_tell(id, CM_DISCONNECT, 0);
	else if (id->state == CM_ASKED || id->state == CM_ACCEPTED || id->state == CM_ANSWERED)
		cm_tell(id, CM_REJECT, id->state == CM_ASKED ? CM_CONSUMER : CM_STALE);
}

int rdma_destroy_id(struct rdma_cm_id *base)
{
	struct cm_id *id = (struct cm_id *)base, **at = &all;

	pthread_mutex_lock(&card_lock);
	/* The kernel waits for the acknowledgement without end; librdmacm frees the queue pair's id under it. */
	if (id->unacknowledged || base->qp)
		abort();
	cm_leave(id);
	channel_move(id, NULL);
	while (*at != id)
		at = &(*at)->next;
	*at = id->next;
	card_forget(id);
	card_counts.ids--;
	pthread_mutex_unlock(&card_lock);
	free(id);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *base, struct rdma_event_channel *channel)
{
	pthread_mutex_lock(&card_lock);
	channel_move((struct cm_id *)base, (struct cm_channel *)channel);
	base->channel = channel;
	pthread_mutex_unlock(&card_lock);
	return 0;
}
