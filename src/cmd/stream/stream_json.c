/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/stream_json.h"

#include <stdio.h>

#include "cmd/common/output.h"
#include "cmd/stream/layout_text.h"

const char *stream_instance_format(char buffer[STREAM_INSTANCE_MAX], const uint8_t instance[16])
{
	for (size_t i = 0; i < 16; i++)
		snprintf(buffer + 2 * i, 3, "%02x", instance[i]);
	return buffer;
}

static struct json_object *shape_json(const struct pl_layout *layout)
{
	struct json_object *array;

	if (!layout->bits)
		return NULL;
	array = json_object_new_array();
	for (unsigned i = 0; i < layout->dimensions; i++)
		cli_json_append(array, json_object_new_uint64(layout->shape[i]));
	return array;
}

struct json_object *stream_json_describe(const struct pl_publisher_info *info, double rate)
{
	static const char *const states[] = { "unknown", "live", "ended", "failed" };
	struct json_object *object = json_object_new_object();
	char dtype[STREAM_DTYPE_MAX], instance[STREAM_INSTANCE_MAX];

	cli_json_add(object, "name", cli_json_text(info->name));
	cli_json_add(object, "instance", cli_json_text(stream_instance_format(instance, info->instance)));
	cli_json_add(object, "content_type", cli_json_text_or_null(info->content_type));
	cli_json_add(object, "dtype",
		     info->layout.bits ? cli_json_text(stream_dtype_format(dtype, &info->layout)) : NULL);
	cli_json_add(object, "shape", shape_json(&info->layout));
	cli_json_add(object, "slots", json_object_new_uint64(info->slots));
	cli_json_add(object, "slot_bytes", json_object_new_uint64(info->slot_bytes));
	cli_json_add(object, "memory", cli_json_text(info->memory));
	cli_json_add(object, "metadata_bytes", json_object_new_uint64(info->metadata_bytes));
	cli_json_add(object, "published", json_object_new_uint64(info->published));
	cli_json_add(object, "subscribers", json_object_new_uint64(info->subscribers));
	cli_json_add(object, "blocking", json_object_new_uint64(info->blocking));
	cli_json_add(object, "allow_block", json_object_new_boolean(info->allow_block));
	cli_json_add(object, "needs_token", json_object_new_boolean(info->needs_token));
	cli_json_add(object, "state",
		     cli_json_text(states[(unsigned)info->state < CLI_ARRAY_SIZE(states) ? info->state : 0]));
	cli_json_add(object, "frames_per_second", rate < 0 ? NULL : json_object_new_double(rate));
	return object;
}

struct json_object *stream_json_accounts(const struct pl_accounts *accounts)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "first", json_object_new_uint64(accounts->first));
	cli_json_add(object, "next", json_object_new_uint64(accounts->next));
	cli_json_add(object, "delivered", json_object_new_uint64(accounts->delivered));
	cli_json_add(object, "lapped", json_object_new_uint64(accounts->lapped));
	cli_json_add(object, "dropped", json_object_new_uint64(accounts->dropped));
	cli_json_add(object, "rejected", json_object_new_uint64(accounts->rejected));
	cli_json_add(object, "aborted", json_object_new_uint64(accounts->aborted));
	cli_json_add(object, "missed", json_object_new_uint64(accounts->missed));
	cli_json_add(object, "unwanted", json_object_new_uint64(accounts->unwanted));
	cli_json_add(object, "pending", json_object_new_uint64(accounts->pending));
	return object;
}
