/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/service.h"

#include <errno.h>

#include "cmd/transfer/service_client.h"

#define MAGIC 0x31535650u /* "PVS1" */
#define HEADER 16
#define ANSWER 0x8000u

/* Fields of messages, in the order of encoding; MODE comes before NAME. */
enum field {
	HANDLE = 1u << 0,
	FLAGS = 1u << 1,
	KIND = 1u << 2,
	MORE = 1u << 3,
	SIZE = 1u << 4,
	MODIFIED = 1u << 5,
	IDENTITY = 1u << 6,
	DONE = 1u << 7,
	OFFSET = 1u << 8,
	LENGTH = 1u << 9,
	HASH = 1u << 10,
	NAME = 1u << 11,
	TOKEN = 1u << 12,
	ENTRIES = 1u << 13,
	ERROR = 1u << 14,
	MODE = 1u << 15,
	FILES = 1u << 16,
	RANGES = 1u << 17,
	CLIENT_LIST = 1u << 18,
	STAGED = 1u << 19,
};

#define SOURCE (SIZE | MODIFIED | IDENTITY)

static const struct {
	unsigned request, answer;
} layouts[SERVICE_TYPES] = {
	[SERVICE_LIST] = { NAME, MORE | ENTRIES },
	[SERVICE_OPEN] = { NAME, HANDLE | FLAGS | KIND | SOURCE | MODE | TOKEN },
	[SERVICE_CREATE] = { FLAGS | SOURCE | LENGTH | MODE | NAME, HANDLE | KIND | DONE | TOKEN },
	[SERVICE_EXTENT] = { HANDLE | DONE | STAGED, 0 },
	[SERVICE_HASH] = { HANDLE | OFFSET | LENGTH, HASH },
	[SERVICE_COMMIT] = { HANDLE | STAGED, 0 },
	[SERVICE_CLOSE] = { HANDLE | FLAGS, SOURCE },
	[SERVICE_COMMIT_UNSYNCED] = { HANDLE | STAGED, 0 },
	[SERVICE_AREA] = { LENGTH, HANDLE | LENGTH | TOKEN },
	[SERVICE_PUT_SMALL] = { HANDLE | FLAGS | FILES, DONE | FILES },
	[SERVICE_GET_SMALL] = { HANDLE | FLAGS | FILES, DONE | FILES },
	[SERVICE_DATA] = { HANDLE | OFFSET, MORE | RANGES },
	[SERVICE_DELETE] = { FLAGS | NAME, SIZE },
	[SERVICE_WATCH] = { OFFSET, MORE | SIZE | DONE | LENGTH | CLIENT_LIST },
};

/* Numbers of errors on the wire, because the values of errno differ between systems. */
static const struct {
	uint32_t status;
	int code;
} statuses[] = {
	{ 1, -EIO },     { 2, -ENOENT },  { 3, -EACCES },  { 4, -EPERM },    { 5, -EINVAL }, { 6, -ENOSPC },
	{ 7, -EBUSY },   { 8, -EPROTO },  { 9, -ENOMEM },  { 10, -ESTALE },  { 11, -EROFS }, { 12, -ENOTSUP },
	{ 13, -EMFILE }, { 14, -EISDIR }, { 15, -ERANGE }, { 16, -ENOTDIR }, { 17, -EFBIG }, { 18, -EDQUOT },
};

static uint32_t service_status_of_code(int code)
{
	if (!code)
		return 0;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].code == code)
			return statuses[i].status;
	return statuses[0].status;
}

/* Returns the code of a status; an unknown status of a later version becomes EIO. */
static int service_code_of_status(uint32_t status)
{
	if (!status)
		return 0;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return statuses[i].code;
	return statuses[0].code;
}

static void code_token(struct cursor *cursor, struct service_message *message)
{
	uint8_t length = (uint8_t)message->token_length;

	code_u8(cursor, &length);
	if (length > sizeof(message->token))
		cursor->bad = true;
	if (cursor->bad)
		return;
	code_bytes(cursor, message->token, length);
	if (!cursor->writing)
		message->token_length = length;
}

static void code_entry(struct cursor *cursor, struct service_entry *entry)
{
	code_u8(cursor, &entry->kind);
	code_u64(cursor, &entry->size);
	code_u64(cursor, &entry->modified);
	code_string(cursor, entry->name, sizeof(entry->name));
	if (entry->kind >= SERVICE_KINDS || !entry->name[0])
		cursor->bad = true;
}

static void decode_entries(struct cursor *cursor, struct service_message *message)
{
	struct service_entry entry;

	message->entries = cursor->at;
	while (!cursor->bad && cursor->at < cursor->end)
		code_entry(cursor, &entry);
	message->entries_length = (size_t)(cursor->at - message->entries);
}

static void code_error(struct cursor *cursor, struct pl_error *error)
{
	code_string(cursor, error->id, sizeof(error->id));
	code_string(cursor, error->call, sizeof(error->call));
	code_string(cursor, error->object, sizeof(error->object));
	code_string(cursor, error->message, sizeof(error->message));
	code_string(cursor, error->hint, sizeof(error->hint));
}

static void code_file(struct cursor *cursor, struct service_file *file)
{
	uint32_t status = service_status_of_code(file->status);

	code_u32(cursor, &status);
	code_u64(cursor, &file->size);
	code_u64(cursor, &file->modified);
	code_u64(cursor, &file->identity);
	code_u32(cursor, &file->mode);
	code_u64(cursor, &file->offset);
	code_u64(cursor, &file->hash[0]);
	code_u64(cursor, &file->hash[1]);
	code_string(cursor, file->name, sizeof(file->name));
	if (!cursor->writing)
		file->status = service_code_of_status(status);
	if (file->mode > FILE_MODE_MAX || !file->name[0])
		cursor->bad = true;
	if (status)
		code_error(cursor, &file->error);
	file->error.code = file->status;
}

static void decode_files(struct cursor *cursor, struct service_message *message)
{
	struct service_file file;

	message->files = cursor->at;
	while (!cursor->bad && cursor->at < cursor->end) {
		memset(&file, 0, sizeof(file));
		code_file(cursor, &file);
		if (file.status && !message->answer)
			cursor->bad = true;
	}
	message->files_length = (size_t)(cursor->at - message->files);
}

static void code_range(struct cursor *cursor, struct service_range *range)
{
	code_u64(cursor, &range->offset);
	code_u64(cursor, &range->length);
}

/* Ranges are in order, not empty, and do not overlap. */
static void decode_ranges(struct cursor *cursor, struct service_message *message)
{
	struct service_range range = { 0 };
	uint64_t end = 0;

	message->ranges = cursor->at;
	while (!cursor->bad && cursor->at < cursor->end) {
		code_range(cursor, &range);
		if (cursor->bad || range.length == 0 || range.offset < end || range.length > UINT64_MAX - range.offset)
			cursor->bad = true;
		else
			end = range.offset + range.length;
	}
	message->ranges_length = (size_t)(cursor->at - message->ranges);
}

static void code_numbers(struct cursor *cursor, unsigned fields, struct service_message *message)
{
	const struct {
		enum field field;
		uint64_t *value;
	} wide[] = {
		{ SIZE, &message->size },    { MODIFIED, &message->modified }, { IDENTITY, &message->identity },
		{ DONE, &message->done },    { OFFSET, &message->offset },     { LENGTH, &message->length },
		{ HASH, &message->hash[0] }, { HASH, &message->hash[1] },
	};

	if (fields & HANDLE)
		code_u32(cursor, &message->handle);
	if (fields & FLAGS)
		code_u32(cursor, &message->flags);
	if (fields & KIND)
		code_u8(cursor, &message->kind);
	if (fields & MORE)
		code_u8(cursor, &message->more);
	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++)
		if (fields & wide[i].field)
			code_u64(cursor, wide[i].value);
}

/* Only a server that gave the handle with SERVICE_HANDLE_STAGED takes this field, and clients of earlier versions omit it. */
static void code_staged(struct cursor *cursor, struct service_message *message)
{
	if (!(message->handle & SERVICE_HANDLE_STAGED))
		return;
	if (!cursor->writing)
		message->has_staged = cursor->at < cursor->end;
	if (message->has_staged)
		code_u64(cursor, &message->staged);
}

static void code_fields(struct cursor *cursor, struct service_message *message)
{
	unsigned fields = message->answer ? layouts[message->type].answer : layouts[message->type].request;

	if (message->status)
		fields = ERROR;
	code_numbers(cursor, fields, message);
	if (fields & STAGED)
		code_staged(cursor, message);
	if (fields & CLIENT_LIST && message->more & SERVICE_MORE_SUMS) {
		code_u64(cursor, &message->direct);
		code_u64(cursor, &message->staged);
	}
	if (fields & MODE)
		code_u32(cursor, &message->mode);
	if (fields & NAME)
		code_string(cursor, message->name, sizeof(message->name));
	if (fields & TOKEN)
		code_token(cursor, message);
	if (fields & ERROR)
		code_error(cursor, &message->error);
	if (fields & ENTRIES && cursor->writing)
		code_bytes(cursor, (void *)(uintptr_t)message->entries, message->entries_length);
	else if (fields & ENTRIES)
		decode_entries(cursor, message);
	if (fields & FILES && cursor->writing)
		code_bytes(cursor, (void *)(uintptr_t)message->files, message->files_length);
	else if (fields & FILES)
		decode_files(cursor, message);
	if (fields & RANGES && cursor->writing)
		code_bytes(cursor, (void *)(uintptr_t)message->ranges, message->ranges_length);
	else if (fields & RANGES)
		decode_ranges(cursor, message);
	if (fields & CLIENT_LIST && cursor->writing)
		code_bytes(cursor, (void *)(uintptr_t)message->clients, message->clients_length);
	else if (fields & CLIENT_LIST)
		service_clients_decode(cursor, message);
}

int service_encode(const struct service_message *message, void *buffer, size_t size)
{
	struct cursor cursor = { .at = buffer, .end = (uint8_t *)buffer + size, .writing = true };
	uint32_t magic = MAGIC, request = message->request, status = service_status_of_code(message->status);
	uint16_t version = SERVICE_VERSION, type = (uint16_t)(message->type | (message->answer ? ANSWER : 0));

	if (message->type < SERVICE_LIST || message->type >= SERVICE_TYPES || (message->status && !message->answer) ||
	    message->token_length > sizeof(message->token))
		return -EINVAL;
	code_u32(&cursor, &magic);
	code_u16(&cursor, &version);
	code_u16(&cursor, &type);
	code_u32(&cursor, &request);
	code_u32(&cursor, &status);
	/* Encoding does not change the message. */
	code_fields(&cursor, (struct service_message *)(uintptr_t)message);
	return cursor.bad ? -ENOBUFS : (int)(cursor.at - (uint8_t *)buffer);
}

static bool service_values_valid(const struct service_message *message)
{
	unsigned more = SERVICE_MORE | (message->type == SERVICE_WATCH ? SERVICE_MORE_ROUTES | SERVICE_MORE_SUMS : 0);

	return message->kind < SERVICE_KINDS && message->mode <= FILE_MODE_MAX && !(message->more & ~more) &&
	       !(message->flags & ~SERVICE_FLAGS);
}

int service_decode(const void *buffer, size_t length, struct service_message *message)
{
	/* Decoding does not change the buffer. */
	uint8_t *bytes = (uint8_t *)(uintptr_t)buffer;
	struct cursor cursor = { .at = bytes, .end = bytes + length };
	uint32_t magic = 0, status = 0;
	uint16_t version = 0, type = 0;

	memset(message, 0, sizeof(*message));
	if (length < HEADER)
		return -EPROTO;
	code_u32(&cursor, &magic);
	code_u16(&cursor, &version);
	code_u16(&cursor, &type);
	code_u32(&cursor, &message->request);
	code_u32(&cursor, &status);
	message->answer = type & ANSWER;
	type &= (uint16_t)~ANSWER;
	if (magic != MAGIC || type < SERVICE_LIST || type >= SERVICE_TYPES)
		return -EPROTO;
	message->type = (enum service_type)type;
	if (version != SERVICE_VERSION || (status && !message->answer))
		return -EPROTO;
	message->status = message->error.code = service_code_of_status(status);
	code_fields(&cursor, message);
	return cursor.bad || cursor.at != cursor.end || !service_values_valid(message) ? -EPROTO : 0;
}

bool service_entry_put(const struct service_entry *entry, uint8_t *buffer, size_t size, size_t *length)
{
	struct cursor cursor = { .at = buffer + *length, .end = buffer + size, .writing = true };

	/* Encoding does not change the entry. */
	code_entry(&cursor, (struct service_entry *)(uintptr_t)entry);
	if (!cursor.bad)
		*length = (size_t)(cursor.at - buffer);
	return !cursor.bad;
}

bool service_entry_next(const struct service_message *message, size_t *offset, struct service_entry *entry)
{
	uint8_t *entries = (uint8_t *)(uintptr_t)message->entries;
	struct cursor cursor = { 0 };

	/* `entries` may be NULL if there are none. */
	if (*offset >= message->entries_length)
		return false;
	cursor.at = entries + *offset;
	cursor.end = entries + message->entries_length;
	code_entry(&cursor, entry);
	*offset = (size_t)(cursor.at - entries);
	return !cursor.bad;
}

bool service_file_put(const struct service_file *file, uint8_t *buffer, size_t size, size_t *length)
{
	struct cursor cursor = { .at = buffer + *length, .end = buffer + size, .writing = true };
	struct service_file copy = *file;

	code_file(&cursor, &copy);
	if (!cursor.bad)
		*length = (size_t)(cursor.at - buffer);
	return !cursor.bad;
}

bool service_file_next(const struct service_message *message, size_t *offset, struct service_file *file)
{
	uint8_t *files = (uint8_t *)(uintptr_t)message->files;
	struct cursor cursor = { 0 };

	if (*offset >= message->files_length)
		return false;
	memset(file, 0, sizeof(*file));
	cursor.at = files + *offset;
	cursor.end = files + message->files_length;
	code_file(&cursor, file);
	*offset = (size_t)(cursor.at - files);
	return !cursor.bad;
}

bool service_range_put(const struct service_range *range, uint8_t *buffer, size_t size, size_t *length)
{
	struct cursor cursor = { .at = buffer + *length, .end = buffer + size, .writing = true };
	struct service_range copy = *range;

	if (size - *length < SERVICE_RANGE)
		return false;
	code_range(&cursor, &copy);
	*length += SERVICE_RANGE;
	return true;
}

bool service_range_next(const struct service_message *message, size_t *offset, struct service_range *range)
{
	struct cursor cursor = { 0 };

	if (*offset >= message->ranges_length)
		return false;
	cursor.at = (uint8_t *)(uintptr_t)message->ranges + *offset;
	cursor.end = cursor.at + SERVICE_RANGE;
	code_range(&cursor, range);
	*offset += SERVICE_RANGE;
	return !cursor.bad;
}

bool service_name_valid(const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length > SERVICE_NAME_MAX)
		return false;
	for (const char *component = name;; component++) {
		size_t component_length = strcspn(component, "/");

		if (component_length == 0 || (component_length == 1 && component[0] == '.') ||
		    (component_length == 2 && component[0] == '.' && component[1] == '.'))
			return false;
		component += component_length;
		if (!*component)
			return true;
	}
}

const char *service_unknown_name_hint(const char *name)
{
	/* The text of a list escapes bytes, and the name may be a copy of it. */
	return strstr(name, "\\x")
		       ? "lists show a byte that is not printable as \\xNN, and a backslash before x as \\x5c: "
			 "in bash, give such a name within $'...'"
		       : "`peerlane list` lists the published names";
}
