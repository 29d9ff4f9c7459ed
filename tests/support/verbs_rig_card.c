/* SPDX-License-Identifier: BSD-2-Clause */
/* Device of a verbs_rig. */
#ifdef PL_HAVE_VERBS

#include "support/verbs_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

/* Rig of the running test, for calls of the device. */
static struct verbs_rig *current;

/* Several threads move queue pairs. */
static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER;

static unsigned index_of_pair(const struct ibv_qp *pair)
{
	unsigned index = (unsigned)(pair - current->card.pairs);

	if (!current->card.present[index])
		atomic_store(&current->card.misused, true);
	return index;
}

static struct ibv_qp *create_pair(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
	struct verbs_rig_card *card = &current->card;
	struct ibv_qp *pair = &card->pairs[card->made];

	(void)pd;
	assert_int_equal(attributes->qp_type, IBV_QPT_RC);
	card->asked = *attributes;
	attributes->cap.max_inline_data = card->inline_granted;
	if (card->no_pair) {
		errno = card->no_pair;
		return NULL;
	}
	assert_true(card->made < VERBS_RIG_PAIRS);
	card->present[card->made++] = true;
	pair->context = &current->verbs;
	pair->qp_num = 1000 + card->made;
	return pair;
}

static int destroy_pair(struct ibv_qp *pair)
{
	struct verbs_rig_card *card = &current->card;

	for (unsigned i = 0; i < current->endpoint->rail_count; i++)
		if (current->endpoint->rails[i].qp == pair && current->endpoint->rails[i].ready.busy)
			atomic_store(&card->misused, true);
	pthread_mutex_lock(&moving);
	card->present[index_of_pair(pair)] = false;
	pthread_mutex_unlock(&moving);
	card->destroyed++;
	return card->no_destroy;
}

static void wait_held(struct verbs_rig_card *card)
{
	atomic_fetch_add(&card->held, 1);
	while (atomic_load(&card->holds))
		usleep(200);
}

/* The device reports at once that the failed queue pair has returned all receives. */
static void return_receives(const struct ibv_qp *pair)
{
	for (unsigned i = 0; i < VERBS_RAILS; i++)
		if (current->endpoint->rails[i].qp == pair)
			atomic_store(&current->endpoint->rails[i].last_reached, true);
}

static int modify_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
	struct verbs_rig_card *card = &current->card;
	unsigned index;
	int rc = 0;

	if (attributes->qp_state == IBV_QPS_RTR)
		wait_held(card);
	pthread_mutex_lock(&moving);
	index = index_of_pair(pair);
	if (!(mask & IBV_QP_STATE))
		atomic_store(&card->misused, true);
	card->moves++;
	if (attributes->qp_state == IBV_QPS_INIT) {
		card->begin = *attributes;
		rc = card->no_init;
	} else if (attributes->qp_state == IBV_QPS_RTR) {
		card->receive = *attributes;
		rc = card->no_receive;
	} else if (attributes->qp_state == IBV_QPS_RTS) {
		card->send = *attributes;
		rc = card->no_send;
	} else {
		card->failed++;
		return_receives(pair);
	}
	if (rc == 0)
		card->states[index] = attributes->qp_state;
	pthread_mutex_unlock(&moving);
	return rc;
}

static struct ibv_device **get_device_list(int *count)
{
	(void)count;
	current->card.looks++;
	return current->devices;
}

static void free_device_list(struct ibv_device **list)
{
	assert_ptr_equal(list, current->devices);
}

static const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t room, uint32_t flags,
			       size_t size)
{
	(void)context;
	(void)flags;
	assert_int_equal(size, sizeof(*entries));
	assert_true(room >= current->card.table_count);
	memcpy(entries, current->card.table, current->card.table_count * sizeof(*entries));
	return current->card.table_count;
}

static int query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compatible)
{
	struct ibv_port_attr *attributes = (struct ibv_port_attr *)compatible;

	(void)context;
	attributes->state = current->card.port_state;
	attributes->active_mtu = current->card.mtu;
	attributes->lid = 20 + port;
	attributes->link_layer = current->ports[0].link_layer;
	attributes->gid_tbl_len = 256;
	attributes->flags = (uint8_t)current->card.port_flags;
	return 0;
}

static int query_ece(struct ibv_qp *pair, struct ibv_ece *ece)
{
	index_of_pair(pair);
	*ece = current->card.ece;
	return current->card.no_ece;
}

static int set_ece(struct ibv_qp *pair, struct ibv_ece *ece)
{
	assert_int_equal(current->card.states[index_of_pair(pair)], IBV_QPS_INIT);
	current->card.ece_set = *ece;
	return current->card.no_ece_set;
}

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
	struct verbs_rig_card *card = &current->card;

	*bad = request;
	assert_int_equal(card->states[index_of_pair(pair)], IBV_QPS_RTS);
	if (card->no_post)
		return card->no_post;
	card->request = *request;
	card->posted++;
	return 0;
}

static int poll_completions(struct ibv_cq *cq, int count, struct ibv_wc *completions)
{
	struct verbs_rig_card *card = &current->card;
	unsigned taken = PL_MIN((unsigned)count, card->completion_count);

	(void)cq;
	memcpy(completions, card->completions, taken * sizeof(*completions));
	card->completion_count -= taken;
	memmove(card->completions, card->completions + taken, card->completion_count * sizeof(*completions));
	return (int)taken;
}

static const char *status_text(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "other";
}

void verbs_rig_open_card(struct verbs_rig *rig)
{
	current = rig;
	strcpy(rig->listed.name, "card0");
	rig->devices[0] = &rig->listed;
	rig->library.ibv_get_device_list = get_device_list;
	rig->library.ibv_free_device_list = free_device_list;
	rig->library.ibv_get_device_name = get_device_name;
	rig->library._ibv_query_gid_table = query_gid_table;
	rig->library.ibv_create_qp = create_pair;
	rig->library.ibv_destroy_qp = destroy_pair;
	rig->library.ibv_modify_qp = modify_pair;
	rig->library.ibv_query_port = query_port;
	rig->library.ibv_query_ece = query_ece;
	rig->library.ibv_set_ece = set_ece;
	rig->library.ibv_wc_status_str = status_text;
	rig->verbs.ops.post_send = post_send;
	rig->verbs.ops.poll_cq = poll_completions;
	rig->card.port_state = IBV_PORT_ACTIVE;
	rig->card.mtu = IBV_MTU_4096;
	rig->card.inline_granted = VERBS_INLINE;
}

#endif
