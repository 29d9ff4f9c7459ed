/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoint of a verbs_rig, and the other end of its control channel. */
#ifdef PL_HAVE_VERBS

#include "support/verbs_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Rig of the running test. */
static struct verbs_rig *current;

/* -- the rig -------------------------------------------------------------------------------------- */

static void open_device(struct verbs_rig *rig)
{
	struct verbs_device *device = &rig->device;

	strcpy(device->name, "card0");
	device->state = &rig->state;
	device->verbs = &rig->verbs;
	device->attributes.max_sge = 30;
	device->attributes.max_qp_rd_atom = device->attributes.max_qp_init_rd_atom = 16;
	pl_list_append(&rig->state.devices, &device->link);
	rig->cq.context = &rig->verbs;
	verbs_cq_init(&rig->queue, &rig->state, device, rig->context.engines[0]);
	rig->cq.cqe = VERBS_COMPLETIONS;
	rig->queue.cq = &rig->cq;
	rig->queue.srq = &rig->srq;
	rig->queue.room = VERBS_RIG_ROOM;
	rig->queue.receive_count = VERBS_RECEIVES_MAX;
	pl_list_append(&rig->state.queues, &rig->queue.link);
}

/* The last byte tells the ports of both ends apart. */
static union ibv_gid gid_of(bool ethernet, uint8_t last)
{
	union ibv_gid gid = { .raw = { 0xfe, 0x80 } };

	if (ethernet) {
		memset(gid.raw, 0, sizeof(gid.raw));
		gid.raw[10] = gid.raw[11] = 0xff;
		gid.raw[12] = 10;
	}
	gid.raw[15] = last;
	return gid;
}

static void open_ports(struct verbs_rig *rig, bool ethernet, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct verbs_port *port = &rig->ports[i];

		port->device = &rig->device;
		port->number = (uint8_t)(1 + i);
		port->link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
		port->active = true;
		port->gids[0] = (struct verbs_gid){ .gid = gid_of(ethernet, port->number), .index = 3, .prefix = 64 };
		port->gid_count = 1;
		port->place = i;
		pl_list_append(&rig->state.ports, &port->link);
	}
}

static void open_context(struct verbs_rig *rig, unsigned rails)
{
	struct pl_context *context = &rig->context;

	context->allocator = pl_system_allocator;
	context->engine_count = context->fabric_count = 1;
	context->options.rails = rails;
	context->options.connect_timeout = 30 * PL_NS_PER_S;
	context->options.traffic_class = 96;
	context->fabrics[0] = &pl_verbs_fabric;
	context->fabric_states[0] = &rig->state;
	assert_int_equal(pl_engine_open(&pl_system_allocator, false, 0, &context->engines[0], NULL), 0);
	pthread_mutex_init(&context->fabric_lock, NULL);
	pthread_mutex_init(&context->grant_lock, NULL);
	verbs_state_init(&rig->state, context, &rig->library);
}

static void open_peer(struct verbs_rig *rig, bool initiator)
{
	struct pl_peer *peer = &rig->peer;
	struct pl_stream stream;
	int fds[2];

	peer->context = &rig->context;
	peer->home = rig->context.engines[0];
	peer->ops = &pl_verbs_fabric;
	peer->initiator = initiator;
	atomic_init(&peer->state, PL_PEER_UP);
	pl_event_log_init(&peer->events, &pl_system_allocator);
	pl_list_init(&peer->timer.link);
	pl_list_init(&peer->operations);
	pl_list_init(&peer->fenced);
	pl_imports_init(peer);
	pl_list_init(&peer->subscriptions);
	pl_list_init(&peer->subscribers);
	pl_list_init(&peer->listings);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	rig->far = fds[1];
	assert_int_equal(pl_stream_open(&stream, fds[0], NULL, false, NULL), 0);
	assert_int_equal(pl_channel_open(&peer->channel, peer->home, &stream, NULL, 0), 0);
}

static void connect_endpoint(struct verbs_rig *rig, bool ethernet, unsigned rails)
{
	uint8_t blob[PL_FABRIC_BLOB_MAX];
	struct pl_writer writer;

	pl_writer_init(&writer, blob, sizeof(blob));
	pl_put_u8(&writer, (uint8_t)rails);
	pl_put_u8(&writer, (uint8_t)rails);
	for (unsigned i = 0; i < rails; i++) {
		const union ibv_gid gid = gid_of(ethernet, (uint8_t)(101 + i));

		pl_put_u8(&writer, rig->ports[0].link_layer);
		pl_put_bytes(&writer, gid.raw, sizeof(gid.raw));
	}
	assert_int_equal(pl_verbs_fabric.connect(&rig->endpoint->base, blob, (size_t)(writer.at - writer.begin), NULL), 0);
	assert_int_equal(rig->endpoint->rail_count, rails);
}

struct verbs_rig *verbs_rig_new(bool initiator, bool ethernet, unsigned rails)
{
	struct verbs_rig *rig = pl_zalloc(&pl_system_allocator, sizeof(*rig));
	struct pl_endpoint *base;

	assert_non_null(rig);
	current = rig;
	verbs_rig_open_card(rig);
	open_context(rig, rails);
	open_device(rig);
	open_ports(rig, ethernet, rails);
	open_peer(rig, initiator);
	pl_engine_lock(rig->peer.home);
	rig->acted = pl_now();
	assert_int_equal(pl_verbs_fabric.create(&rig->peer, &base, NULL), 0);
	rig->endpoint = verbs_endpoint_of(base);
	rig->peer.endpoint = base;
	if (initiator)
		connect_endpoint(rig, ethernet, rails);
	return rig;
}

void verbs_rig_free(struct verbs_rig *rig)
{
	struct pl_engine *home = rig->peer.home;

	atomic_store(&rig->card.holds, false);
	pl_engine_unlock(home);
	/* As for a peer that is closed without its engine's lock. */
	if (rig->endpoint)
		pl_verbs_fabric.close(&rig->endpoint->base);
	pl_engine_lock(home);
	pl_channel_close(&rig->peer.channel);
	pl_timer_clear(home, &rig->peer.timer);
	pl_engine_withdraw(home, &rig->queue.events_task);
	verbs_removal_close(&rig->state);
	assert_false(atomic_load(&rig->card.misused));
	assert_int_equal(rig->card.made, rig->card.destroyed);
	assert_int_equal(rig->queue.posted, 0);
	assert_int_equal(rig->queue.rail_count, 0);
	assert_int_equal(home->wheel.count, 0);
	pl_engine_unlock(home);
	verbs_helpers_close(&rig->state.connectors);
	verbs_registrar_close(&rig->state);
	pl_event_log_destroy(&rig->peer.events);
	close(rig->far);
	pl_engine_stop(home);
	pl_engine_close(home);
	pl_free(&pl_system_allocator, rig);
}

void verbs_rig_settle(struct verbs_rig *rig)
{
	rig->acted = pl_now();
	pl_engine_unlock(rig->peer.home);
	pl_engine_lock(rig->peer.home);
}

void verbs_rig_expire(struct verbs_rig *rig, struct pl_timer *timer)
{
	assert_false(pl_list_empty(&timer->link));
	pl_timer_clear(rig->peer.home, timer);
	rig->acted = pl_now();
	timer->expire(timer);
}

struct verbs_rig_time verbs_rig_until(const struct verbs_rig *rig, const struct pl_timer *timer)
{
	uint64_t now = pl_now();

	assert_false(pl_list_empty(&timer->link));
	return (struct verbs_rig_time){ .least = timer->deadline - PL_MIN(timer->deadline, now),
					.most = timer->deadline - PL_MIN(timer->deadline, rig->acted) };
}

static bool verbs_rig_is_connecting(const struct verbs_rail *rail)
{
	return !rail->given_up.code &&
	       (rail->link == VERBS_ASKING || rail->link == VERBS_READYING || rail->link == VERBS_PROVING);
}

struct verbs_rig_time verbs_rig_expire_attempt(struct verbs_rig *rig, unsigned index)
{
	struct verbs_rail *rail = &rig->endpoint->rails[index];
	struct verbs_rig_time sum = { 0 };

	assert_true(verbs_rig_is_connecting(rail));
	while (verbs_rig_is_connecting(rail)) {
		const struct verbs_rig_time time = verbs_rig_until(rig, &rail->retry);

		sum.least += time.least;
		sum.most += time.most;
		verbs_rig_expire(rig, &rail->retry);
	}
	return sum;
}

/* -- messages ------------------------------------------------------------------------------------- */

/* Reads the next message that was sent, which must be of this type. */
static struct pl_control next_message(struct verbs_rig *rig, uint16_t expected)
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	struct pl_control control;
	uint32_t length;
	uint16_t type;

	assert_int_equal(read(rig->far, header, sizeof(header)), sizeof(header));
	assert_int_equal(pl_control_header_decode(header, &type, &length), 0);
	assert_int_equal(type, expected);
	assert_int_equal(read(rig->far, body, length), length);
	assert_int_equal(pl_control_decode(type, body, length, &control), 0);
	return control;
}

void verbs_rig_expect_rails(struct verbs_rig *rig, uint16_t acceptor, uint16_t initiator, uint8_t rails)
{
	struct pl_control control = next_message(rig, PL_CONTROL_RAILS);

	assert_int_equal(control.rails.acceptor, acceptor);
	assert_int_equal(control.rails.initiator, initiator);
	assert_int_equal(control.rails.rails, rails);
}

struct pl_rail_message verbs_rig_expect(struct verbs_rig *rig, enum pl_rail_step step, unsigned index,
					uint16_t generation)
{
	struct pl_control control = next_message(rig, PL_CONTROL_RAIL);

	assert_int_equal(control.rail.step, step);
	assert_int_equal(control.rail.index, index);
	assert_int_equal(control.rail.generation, generation);
	return control.rail;
}

void verbs_rig_expect_silence(struct verbs_rig *rig)
{
	uint8_t byte;

	assert_true(read(rig->far, &byte, 1) <= 0);
}

struct pl_rail_message verbs_rig_message(enum pl_rail_step step, unsigned index, uint16_t generation)
{
	struct pl_rail_message message = { .step = step, .index = (uint8_t)index, .generation = generation };

	if (step == PL_RAIL_DOWN)
		return message;
	if (step == PL_RAIL_CONNECT) {
		message.count = (uint8_t)current->context.options.rails;
		for (unsigned i = 0; i < message.count; i++)
			message.ports[i] = (uint8_t)i;
	}
	message.qp_number = 0x4321;
	message.psn = 0x654321;
	message.lid = 77;
	message.mtu = IBV_MTU_1024;
	message.reads = 4;
	memcpy(message.gid, gid_of(current->ports[0].link_layer == IBV_LINK_LAYER_ETHERNET, 101).raw, sizeof(message.gid));
	return message;
}

int verbs_rig_deliver(struct verbs_rig *rig, const struct pl_rail_message *message)
{
	const struct pl_control control = { .type = PL_CONTROL_RAIL, .rail = *message };
	uint8_t bytes[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];

	/* A decoder refuses other messages. */
	assert_true(pl_control_encode(&control, bytes, sizeof(bytes)) > 0);
	rig->acted = pl_now();
	return pl_verbs_fabric.rail(&rig->endpoint->base, message);
}

void verbs_rig_send(struct verbs_rig *rig, enum pl_rail_step step, unsigned index, uint16_t generation)
{
	const struct pl_rail_message message = verbs_rig_message(step, index, generation);

	assert_int_equal(verbs_rig_deliver(rig, &message), 0);
}

/* -- completions ---------------------------------------------------------------------------------- */

static void complete_later(struct verbs_rig *rig, const struct ibv_wc *completion)
{
	assert_true(rig->card.completion_count < PL_ARRAY_SIZE(rig->card.completions));
	rig->card.completions[rig->card.completion_count++] = *completion;
}

void verbs_rig_complete(struct verbs_rig *rig, unsigned rail, enum ibv_wc_status status)
{
	const struct ibv_wc completion = {
		.wr_id = VERBS_PROOF,
		.status = status,
		.qp_num = rig->endpoint->rails[rail].qp->qp_num,
	};

	complete_later(rig, &completion);
}

void verbs_rig_arrive(struct verbs_rig *rig, unsigned rail)
{
	struct verbs_buffer *buffer = &rig->buffers[rig->arrived++];
	const struct ibv_wc completion = {
		.wr_id = verbs_receive_id(buffer),
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.qp_num = rig->endpoint->rails[rail].qp->qp_num,
	};

	assert_true(rig->arrived <= PL_ARRAY_SIZE(rig->buffers));
	pl_list_init(&buffer->link);
	buffer->posted = true;
	complete_later(rig, &completion);
}

void verbs_rig_poll(struct verbs_rig *rig)
{
	while (verbs_cq_poll(&rig->queue))
		;
	verbs_rig_settle(rig);
}

/* -- states of rails ------------------------------------------------------------------------------ */

void verbs_rig_expect_link(const struct verbs_rig *rig, unsigned rail, enum verbs_link link, unsigned pairs)
{
	assert_int_equal(rig->endpoint->rails[rail].link, link);
	assert_int_equal(rig->card.made - rig->card.destroyed, pairs);
}

void verbs_rig_wait_held(struct verbs_rig *rig)
{
	while (!atomic_load(&rig->card.held))
		usleep(200);
}

static bool any_busy(const struct verbs_endpoint *endpoint)
{
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].ready.busy)
			return true;
	return false;
}

void verbs_rig_release(struct verbs_rig *rig)
{
	atomic_store(&rig->card.holds, false);
	while (any_busy(rig->endpoint)) {
		pl_engine_unlock(rig->peer.home);
		usleep(200);
		pl_engine_lock(rig->peer.home);
	}
	atomic_store(&rig->card.held, 0);
}

void verbs_rig_bring_up(struct verbs_rig *rig, unsigned rail, uint16_t generation)
{
	bool initiator = rig->peer.initiator;

	if (initiator)
		verbs_rig_expect(rig, PL_RAIL_CONNECT, rail, generation);
	verbs_rig_send(rig, initiator ? PL_RAIL_ACCEPT : PL_RAIL_CONNECT, rail, generation);
	verbs_rig_release(rig);
	if (initiator) {
		verbs_rig_complete(rig, rail, IBV_WC_SUCCESS);
	} else {
		verbs_rig_expect(rig, PL_RAIL_ACCEPT, rail, generation);
		verbs_rig_arrive(rig, rail);
	}
	verbs_rig_poll(rig);
	assert_int_equal(rig->endpoint->rails[rail].link, VERBS_UP);
}

void verbs_rig_bring_to(struct verbs_rig *rig, enum verbs_link link)
{
	bool initiator = rig->peer.initiator;

	if (link == VERBS_UP || link == VERBS_DRAINING) {
		verbs_rig_bring_up(rig, 0, 1);
		if (link == VERBS_DRAINING) {
			verbs_fail(&rig->endpoint->rails[0], "test");
			verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
		}
	} else if (link != VERBS_DOWN && link != VERBS_ASKING) {
		atomic_store(&rig->card.holds, link == VERBS_READYING);
		verbs_rig_send(rig, initiator ? PL_RAIL_ACCEPT : PL_RAIL_CONNECT, 0, 1);
		if (link == VERBS_READYING)
			verbs_rig_wait_held(rig);
		else
			verbs_rig_release(rig);
	}
	if (initiator && link != VERBS_UP && link != VERBS_DRAINING)
		verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
	else if (link == VERBS_PROVING)
		verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 1);
	assert_int_equal(rig->endpoint->rails[0].link, link);
}

#endif
