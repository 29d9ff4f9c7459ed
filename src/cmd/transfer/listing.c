/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/listing.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"

static int fail_listing(const struct session *session, const char *fact, struct pl_error *error)
{
	return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address, NULL, "%s", fact);
}

static int append_listing_entry(const struct session *session, struct listing *listing,
				const struct service_entry *entry, struct pl_error *error)
{
	struct listing_entry *added;

	/* A server that repeats entries, or goes on for ever, does not end here otherwise. */
	if (listing->count && strcmp(entry->name, listing->entries[listing->count - 1].name) <= 0)
		return fail_listing(session, "the server listed entries that are not in order", error);
	listing->names += strlen(entry->name) + 1;
	if (listing->count == LISTING_MAX || listing->names > LISTING_NAMES_MAX)
		return fail_listing(session, "the server lists more entries than this client takes", error);
	if (listing->count == listing->room) {
		size_t room = listing->room ? listing->room * 2 : 64;
		struct listing_entry *entries = realloc(listing->entries, room * sizeof(*entries));

		if (!entries)
			return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		listing->entries = entries;
		listing->room = room;
	}
	added = &listing->entries[listing->count];
	*added = (struct listing_entry){ entry->kind, entry->size, entry->modified, strdup(entry->name) };
	if (!added->name)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	listing->count++;
	return 0;
}

/* Fetches the listing in pieces: the server answers with as many entries as fit behind the name in the request. */
int listing_fetch(struct session *session, struct listing *listing, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_LIST }, answer;
	struct service_entry entry;
	int rc;

	do {
		size_t offset = 0, before = listing->count;

		rc = session_call(session, &request, &answer, error);
		while (rc == 0 && service_entry_next(&answer, &offset, &entry))
			rc = append_listing_entry(session, listing, &entry, error);
		if (rc < 0)
			return rc;
		if (answer.more && listing->count == before)
			return fail_listing(session, "the server announced more entries and sent none", error);
		if (answer.more)
			strcpy(request.name, listing->entries[listing->count - 1].name);
	} while (answer.more);
	return 0;
}

void listing_free(struct listing *listing)
{
	for (size_t i = 0; i < listing->count; i++)
		free(listing->entries[i].name);
	free(listing->entries);
	*listing = (struct listing){ 0 };
}

enum { COLUMN_NAME, COLUMN_SIZE, COLUMN_MODIFIED };

static const struct cli_column columns[] = {
	[COLUMN_NAME] = { "NAME", 0 },
	[COLUMN_SIZE] = { "SIZE", SCOLS_FL_RIGHT },
	[COLUMN_MODIFIED] = { "MODIFIED", 0 },
};

static const char *entry_kind_name(uint8_t kind)
{
	return kind == SERVICE_MEMORY ? "memory" : "file";
}

static const char *format_entry_date(char *buffer, size_t size, uint64_t modified, const char *format, bool utc)
{
	time_t seconds = (time_t)(modified / CLI_NS_PER_S);
	struct tm broken;

	if (!(utc ? gmtime_r(&seconds, &broken) : localtime_r(&seconds, &broken)) ||
	    !strftime(buffer, size, format, &broken))
		buffer[0] = '\0';
	return buffer;
}

void listing_print_table(const struct listing *listing, bool quiet)
{
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));
	char size[CLI_UNIT_MAX], date[32];
	uint64_t total = 0;

	for (size_t i = 0; i < listing->count; i++) {
		const struct listing_entry *entry = &listing->entries[i];
		struct libscols_line *line = cli_table_line(table);
		bool memory = entry->kind == SERVICE_MEMORY;

		cli_table_set(line, COLUMN_NAME, entry->name);
		cli_table_set(line, COLUMN_SIZE, cli_format_bytes(size, entry->size));
		cli_table_set(line, COLUMN_MODIFIED,
			      memory ? "in memory"
				     : format_entry_date(date, sizeof(date), entry->modified, "%Y-%m-%d %H:%M", false));
		total += entry->size;
	}
	if (listing->count)
		cli_table_print(table);
	else
		scols_unref_table(table);
	if (!quiet)
		printf("%zu %s, %s\n", listing->count, listing->count == 1 ? "entry" : "entries",
		       cli_format_bytes(size, total));
}

int listing_print_json(const struct listing *listing, const struct session *session)
{
	struct json_object *object = cli_json_begin(), *entries = json_object_new_array();
	uint64_t total = 0;
	char date[32];

	for (size_t i = 0; i < listing->count; i++) {
		const struct listing_entry *entry = &listing->entries[i];
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "name", cli_json_text(entry->name));
		cli_json_add(one, "kind", cli_json_text(entry_kind_name(entry->kind)));
		cli_json_add(one, "size", json_object_new_uint64(entry->size));
		cli_json_add(one, "modified",
			     entry->kind == SERVICE_MEMORY
				     ? NULL
				     : cli_json_text(format_entry_date(date, sizeof(date), entry->modified,
								       "%Y-%m-%dT%H:%M:%SZ", true)));
		cli_json_append(entries, one);
		total += entry->size;
	}
	cli_json_add(object, "address", cli_json_text(session->info.address));
	cli_json_add(object, "authenticated", json_object_new_boolean(session->info.authenticated));
	cli_json_add(object, "entries", entries);
	cli_json_add(object, "bytes", json_object_new_uint64(total));
	return cli_json_results(object);
}
