/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams as JSON. */
#ifndef PL_CMD_STREAM_STREAM_JSON_H
#define PL_CMD_STREAM_STREAM_JSON_H

#include <json-c/json.h>

#include <peerlane/stream.h>

/* Bytes of an instance as text, with its NUL. */
#define STREAM_INSTANCE_MAX 33

/* Formats the bytes of an instance as hexadecimal digits, and returns buffer. */
const char *stream_instance_format(char buffer[STREAM_INSTANCE_MAX], const uint8_t instance[16]);
/*
 * Returns { "name", "instance", "content_type", "dtype", "shape", "slots", "slot_bytes", "memory", "metadata_bytes",
 * "published", "subscribers", "blocking", "allow_block", "needs_token", "state", "frames_per_second" }.  dtype and shape
 * are null without a layout, the rate if it is negative: not measured.
 */
struct json_object *stream_json_describe(const struct pl_publisher_info *info, double rate);
/* Returns the members of struct pl_accounts. */
struct json_object *stream_json_accounts(const struct pl_accounts *accounts);

#endif
