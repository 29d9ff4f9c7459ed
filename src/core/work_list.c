/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/work_list.h"

void pl_work_list_drop_canceled(struct pl_list *list, pthread_mutex_t *lock, const struct pl_peer *peer)
{
	struct pl_list dropped;

	pl_list_init(&dropped);
	pthread_mutex_lock(lock);
	pl_list_for_each_safe(at, next, list) {
		const struct pl_operation *operation = pl_work_item_operation(at);

		if (operation->peer != peer || !atomic_load(&operation->canceled))
			continue;
		pl_list_remove(at);
		pl_list_append(&dropped, at);
	}
	pthread_mutex_unlock(lock);
	while (!pl_list_empty(&dropped)) {
		struct pl_operation *operation = pl_work_item_operation(dropped.next);

		pl_list_remove(dropped.next);
		pl_operation_pending_done(operation);
	}
}
