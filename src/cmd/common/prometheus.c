/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/prometheus.h"

#include "cmd/common/output.h"

void prometheus_describe(FILE *file, const char *metric, const char *type, const char *help)
{
	fprintf(file, "# HELP peerlane_%s %s\n# TYPE peerlane_%s %s\n", metric, help, metric, type);
}

/* Writes NAME="VALUE" with the value escaped, as UTF-8. */
static void write_label(FILE *file, const char *name, const char *value)
{
	struct json_object *clean = cli_json_text(value);

	fprintf(file, "%s=\"", name);
	for (const char *at = clean ? json_object_get_string(clean) : ""; *at; at++) {
		if (*at == '\n')
			fputs("\\n", file);
		else
			fprintf(file, *at == '\\' || *at == '"' ? "\\%c" : "%c", *at);
	}
	fputc('"', file);
	json_object_put(clean);
}

void prometheus_begin(FILE *file, const char *metric, const char *label, const char *value)
{
	fprintf(file, "peerlane_%s{", metric);
	write_label(file, label, value);
}

void prometheus_label(FILE *file, const char *label, const char *value)
{
	fputc(',', file);
	write_label(file, label, value);
}

void prometheus_end(FILE *file, uint64_t value)
{
	fprintf(file, "} %llu\n", (unsigned long long)value);
}

void prometheus_end_seconds(FILE *file, uint64_t nanoseconds)
{
	fprintf(file, "} %.9f\n", (double)nanoseconds / CLI_NS_PER_S);
}

void prometheus_value(FILE *file, const char *metric, const char *type, const char *help, uint64_t value)
{
	prometheus_describe(file, metric, type, help);
	fprintf(file, "peerlane_%s %llu\n", metric, (unsigned long long)value);
}
