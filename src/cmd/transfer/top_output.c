/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/transfer/top.h"

/* Lines of a terminal that the table does not get: two of sums, the heading, what is left out, and the cursor. */
#define OTHER_LINES 5
/* Columns of a terminal below which it shows rates, but no bytes since the client connected. */
#define WIDE_TERMINAL 110
/* Columns of a terminal below which it shows the beginning of fingerprints: SHA256: and 8 characters. */
#define WIDE_FOR_IDENTITIES 170
#define SHORT_FINGERPRINT 15

enum {
	COLUMN_CLIENT,
	COLUMN_FABRIC,
	COLUMN_READING,
	COLUMN_WRITING,
	COLUMN_STAGING,
	COLUMN_READ,
	COLUMN_WRITTEN,
	COLUMN_DIRECT,
	COLUMN_STAGED,
	COLUMN_REQUESTS,
	COLUMN_NAME
};

static const struct cli_column columns[] = {
	[COLUMN_CLIENT] = { "CLIENT", 0 },
	[COLUMN_FABRIC] = { "FABRIC", 0 },
	[COLUMN_READING] = { "READING", SCOLS_FL_RIGHT },
	[COLUMN_WRITING] = { "WRITING", SCOLS_FL_RIGHT },
	[COLUMN_STAGING] = { "STAGING", SCOLS_FL_RIGHT },
	[COLUMN_READ] = { "READ", SCOLS_FL_RIGHT },
	[COLUMN_WRITTEN] = { "WRITTEN", SCOLS_FL_RIGHT },
	[COLUMN_DIRECT] = { "DIRECT", SCOLS_FL_RIGHT },
	[COLUMN_STAGED] = { "STAGED", SCOLS_FL_RIGHT },
	[COLUMN_REQUESTS] = { "REQUESTS", SCOLS_FL_RIGHT },
	[COLUMN_NAME] = { "NAME", SCOLS_FL_TRUNC },
};

static const char *format_rate(char text[CLI_UNIT_MAX], double rate)
{
	return cli_format_rate(text, (uint64_t)(rate + 0.5), CLI_NS_PER_S);
}

static void add_row(struct libscols_table *table, const struct service_client *row, const struct top_rates *rates,
		    const struct winsize *size)
{
	struct libscols_line *line = cli_table_line(table);
	char text[CLI_UNIT_MAX], name[SERVICE_NAME_MAX + 32], client[sizeof(row->identity) + sizeof(row->address) + 4];

	if (!strncmp(row->identity, "SHA256:", 7) && size->ws_col && size->ws_col < WIDE_FOR_IDENTITIES)
		snprintf(client, sizeof(client), "%s %.*s...", row->address, SHORT_FINGERPRINT, row->identity);
	else if (row->identity[0])
		snprintf(client, sizeof(client), "%s %s", row->address, row->identity);
	else
		snprintf(client, sizeof(client), "%s", row->address);
	cli_table_set(line, COLUMN_CLIENT, client);
	cli_table_set(line, COLUMN_FABRIC, row->fabric);
	cli_table_set(line, COLUMN_READING, format_rate(text, rates->read));
	cli_table_set(line, COLUMN_WRITING, format_rate(text, rates->write));
	cli_table_set(line, COLUMN_STAGING, row->routes ? format_rate(text, rates->staged) : "-");
	cli_table_set(line, COLUMN_READ, cli_format_bytes(text, row->read));
	cli_table_set(line, COLUMN_WRITTEN, cli_format_bytes(text, row->written));
	cli_table_set(line, COLUMN_DIRECT, row->routes ? cli_format_bytes(text, row->direct) : "-");
	cli_table_set(line, COLUMN_STAGED, row->routes ? cli_format_bytes(text, row->staged) : "-");
	snprintf(text, sizeof(text), "%.0f/s", rates->requests);
	cli_table_set(line, COLUMN_REQUESTS, text);
	if (row->open > 1)
		snprintf(name, sizeof(name), "%s and %u more", row->name, row->open - 1);
	else
		snprintf(name, sizeof(name), "%s", row->name);
	cli_table_set(line, COLUMN_NAME, name);
}

/* Number of rows that fit on the terminal. */
static size_t rows_shown(size_t count, const struct winsize *size)
{
	return size->ws_row <= OTHER_LINES ? count : CLI_MIN(count, (size_t)(size->ws_row - OTHER_LINES));
}

/* Prints the rows of the clients in the columns that the terminal has room for. */
static void print_clients(const struct top_row *rows, size_t count, const struct winsize *size)
{
	struct cli_column shown[CLI_ARRAY_SIZE(columns)];
	struct libscols_table *table;

	memcpy(shown, columns, sizeof(shown));
	for (size_t i = COLUMN_READ; i <= COLUMN_STAGED; i++)
		if (size->ws_col && size->ws_col < WIDE_TERMINAL)
			shown[i].flags |= SCOLS_FL_HIDDEN;
	/* Rows that are wrapped would take more lines than are counted. */
	if (size->ws_col)
		shown[COLUMN_CLIENT].flags |= SCOLS_FL_TRUNC;
	table = cli_table(shown, CLI_ARRAY_SIZE(shown));
	for (size_t i = 0; i < count; i++)
		add_row(table, rows[i].client, &rows[i].rates, size);
	cli_table_print(table);
}

/* Prints the clients of the server and their rates now, and their bytes since it began. */
static void print_sums(const struct session *session, const struct top_look *look, const struct top_rates *all)
{
	char first[CLI_UNIT_MAX], second[CLI_UNIT_MAX], third[CLI_UNIT_MAX];

	printf("%s: %llu %s, reading %s, writing %s", session->info.address, (unsigned long long)look->clients,
	       look->clients == 1 ? "client" : "clients", format_rate(first, all->read),
	       format_rate(second, all->write));
	if (look->routes)
		printf(", staging %s", format_rate(third, all->staged));
	printf("\nsince the server began: %s read, %s written", cli_format_bytes(first, look->read),
	       cli_format_bytes(second, look->written));
	if (look->routes)
		printf(", %s direct, %s staged", cli_format_bytes(first, look->direct),
		       cli_format_bytes(second, look->staged));
	putchar('\n');
}

void top_print(const struct session *session, const struct top_look *before, const struct top_look *now,
	       const struct top_row *rows, bool quiet)
{
	bool terminal = isatty(STDOUT_FILENO);
	struct top_rates all = top_rates_of_all(before, now);
	struct winsize size = { .ws_row = 0 };
	size_t shown;

	/* Zeros stay: no terminal, or one of unknown size. */
	if (terminal)
		ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	shown = rows_shown(now->count, &size);
	if (terminal)
		fputs("\033[H\033[J", stdout);
	if (!quiet)
		print_sums(session, now, &all);
	print_clients(rows, shown, &size);
	if (shown < now->count)
		printf("and %zu slower clients\n", now->count - shown);
	fflush(stdout);
}

/* Adds bytes and rates by route; null if the server tells none. */
static void add_routes_json(struct json_object *object, bool routes, uint64_t direct, uint64_t staged,
			    const struct top_rates *rates)
{
	cli_json_add(object, "direct_bytes", routes ? json_object_new_uint64(direct) : NULL);
	cli_json_add(object, "staged_bytes", routes ? json_object_new_uint64(staged) : NULL);
	cli_json_add(object, "direct_bytes_per_second", routes ? json_object_new_double(rates->direct) : NULL);
	cli_json_add(object, "staged_bytes_per_second", routes ? json_object_new_double(rates->staged) : NULL);
}

static void add_rates_json(struct json_object *object, const struct top_rates *rates)
{
	cli_json_add(object, "read_bytes_per_second", json_object_new_double(rates->read));
	cli_json_add(object, "written_bytes_per_second", json_object_new_double(rates->write));
}

int top_print_json(const struct session *session, const struct top_look *before, const struct top_look *now,
		   const struct top_row *rows)
{
	struct json_object *object = cli_json_begin(), *clients = json_object_new_array();
	struct top_rates all = top_rates_of_all(before, now);

	cli_json_add(object, "address", cli_json_text(session->info.address));
	cli_json_add(object, "seconds", json_object_new_double((double)(now->time - before->time) / CLI_NS_PER_S));
	cli_json_add(object, "client_count", json_object_new_uint64(now->clients));
	cli_json_add(object, "read_bytes", json_object_new_uint64(now->read));
	cli_json_add(object, "written_bytes", json_object_new_uint64(now->written));
	add_routes_json(object, now->routes, now->direct, now->staged, &all);
	add_rates_json(object, &all);
	for (size_t i = 0; i < now->count; i++) {
		const struct service_client *row = rows[i].client;
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "client", cli_json_text(row->address));
		cli_json_add(one, "identity", cli_json_text_or_null(row->identity));
		cli_json_add(one, "fabric", cli_json_text(row->fabric));
		cli_json_add(one, "connected_seconds", json_object_new_double((double)row->connected / CLI_NS_PER_S));
		cli_json_add(one, "read_bytes", json_object_new_uint64(row->read));
		cli_json_add(one, "written_bytes", json_object_new_uint64(row->written));
		add_routes_json(one, row->routes, row->direct, row->staged, &rows[i].rates);
		add_rates_json(one, &rows[i].rates);
		cli_json_add(one, "requests", json_object_new_uint64(row->requests));
		cli_json_add(one, "requests_per_second", json_object_new_double(rows[i].rates.requests));
		cli_json_add(one, "open", json_object_new_uint64(row->open));
		cli_json_add(one, "name", cli_json_text_or_null(row->name));
		cli_json_append(clients, one);
	}
	cli_json_add(object, "clients", clients);
	return cli_json_end(object, false);
}
