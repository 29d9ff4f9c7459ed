/* SPDX-License-Identifier: BSD-2-Clause */
/* Machines, and commands of the measurements. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/units.h"
#include "cmd/topo/topo.h"

#define LIST_MAX 64

static void write_machine_entry(FILE *file, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	fprintf(file, "<dt>%s</dt><dd>", name);
	report_escape(file, value, 400);
	fputs("</dd>\n", file);
}

static void write_machine_list(FILE *file, const char *name, struct json_object *list)
{
	size_t count = list ? CLI_MIN(json_object_array_length(list), (size_t)LIST_MAX) : 0;

	if (!count)
		return;
	fprintf(file, "<dt>%s</dt><dd>", name);
	for (size_t i = 0; i < count; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);

		if (!json_object_is_type(one, json_type_string))
			continue;
		report_escape(file, json_object_get_string(one), 120);
		fputs(i + 1 < count ? "<br/>" : "", file);
	}
	fputs("</dd>\n", file);
}

static void write_machine_card(FILE *file, const char *title, struct json_object *machine)
{
	double cores, memory;
	char text[CLI_UNIT_MAX + 32], bytes[CLI_UNIT_MAX];

	if (!machine)
		return;
	fprintf(file, "<div class=\"card\"><h3>%s</h3><dl>\n", title);
	write_machine_entry(file, "Host", cli_json_member_text(machine, "host"));
	write_machine_entry(file, "Processor", cli_json_member_text(machine, "processor"));
	if (report_number(machine, "cores", &cores) == 0 && cores > 0) {
		snprintf(text, sizeof(text), "%.0f", cores);
		write_machine_entry(file, "Cores", text);
	}
	if (report_number(machine, "memory_bytes", &memory) == 0 && memory > 0)
		write_machine_entry(file, "Memory", cli_format_bytes(bytes, (uint64_t)memory));
	write_machine_entry(file, "Kernel", cli_json_member_text(machine, "kernel"));
	write_machine_list(file, "GPUs", cli_json_member(machine, "gpus", json_type_array));
	write_machine_list(file, "Cards", cli_json_member(machine, "cards", json_type_array));
	fputs("</dl></div>\n", file);
}

static void write_topology_card(FILE *file, const struct pl_topology *topology)
{
	struct topo_view view = { .topology = topology, .names = pci_names_open(true) };
	char text[TOPO_TEXT];

	fputs("<figure class=\"card machine\"><figcaption>", file);
	report_escape(file, *topology->platform ? topology->platform : "PCI topology", 80);
	fprintf(file, "</figcaption><p class=\"soft\">%s</p>\n", topo_summary(topology, text));
	if (topology->gpu_count || topology->card_count) {
		fputs("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"topology\">", file);
		topo_draw(&view, file);
		fputs("</div>", file);
	}
	fputs("</figure>\n", file);
	pci_names_close(view.names);
}

static void write_check_card(FILE *file, struct json_object *check)
{
	struct json_object *rows = cli_json_member(check, "checks", json_type_array);
	const char *remedy = cli_json_member_text(check, "first_remedy");

	if (!check)
		return;
	fputs("<div class=\"card\"><h3>GPUDirect RDMA on this machine</h3><p>", file);
	report_escape(file, cli_json_member_text(check, "summary") ? cli_json_member_text(check, "summary") : "-", 0);
	fputs("</p>\n", file);
	if (remedy) {
		fputs("<p>First remedy:</p><pre>", file);
		report_escape(file, remedy, 2000);
		fputs("</pre>\n", file);
	}
	fputs("<details><summary>All checks</summary><div class=\"wide\" tabindex=\"0\" role=\"region\" "
	      "aria-label=\"checks\"><table><thead><tr><th scope=\"col\">Check</th><th "
	      "scope=\"col\">Status</th></tr></thead>\n",
	      file);
	for (size_t i = 0; rows && i < CLI_MIN(json_object_array_length(rows), 200u); i++) {
		struct json_object *row = json_object_array_get_idx(rows, i);
		const char *title = cli_json_member_text(row, "title"), *status = cli_json_member_text(row, "status");

		fputs("<tr><td class=\"t\">", file);
		report_escape(file, title ? title : "-", 200);
		fputs("</td><td>", file);
		report_escape(file, status ? status : "-", 20);
		fputs("</td></tr>\n", file);
	}
	fputs("</table></div></details></div>\n", file);
}

static bool json_objects_equal(struct json_object *a, struct json_object *b)
{
	return a && b && json_object_equal(a, b);
}

void report_write_machines(const struct report *report, FILE *file)
{
	bool any = false;

	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_document *document = &report->documents[i];
		struct json_object *machine = cli_json_member(document->root, "machine", json_type_object);
		struct json_object *peer = cli_json_member(document->root, "peer_machine", json_type_object);

		struct json_object *check = cli_json_member(document->root, "check", json_type_object);

		if (!any && (machine || document->topology || check))
			fputs("<h2>Machines</h2>\n<div class=\"grid\">\n", file);
		any = any || machine || document->topology || check;
		if (!report_is_repeated(report, i, "machine"))
			write_machine_card(file, "Client", machine);
		if (!report_is_repeated(report, i, "peer_machine") && !json_objects_equal(peer, machine))
			write_machine_card(file, "Server", peer);
		if (!report_is_repeated(report, i, "check"))
			write_check_card(file, check);
	}
	if (any)
		fputs("</div>\n", file);
	for (size_t i = 0; i < report->document_count; i++)
		if (report->documents[i].topology && !report_is_repeated(report, i, "topology"))
			write_topology_card(file, report->documents[i].topology);
}

/* Writes a word of a command line, quoted for a shell if needed. */
static void write_shell_word(FILE *file, const char *word)
{
	bool plain =
		*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-") ==
				 strlen(word);

	if (plain) {
		report_escape(file, word, 0);
		return;
	}
	fputs("&#39;", file);
	for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1) {
		char *part = strndup(word, (size_t)(quote - word));

		if (part)
			report_escape(file, part, 0);
		free(part);
		fputs("&#39;\\&#39;&#39;", file);
	}
	report_escape(file, word, 4000);
	fputs("&#39;", file);
}

void report_write_sources(const struct report *report, FILE *file)
{
	fputs("<h2>Commands</h2>\n", file);
	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_document *document = &report->documents[i];
		struct json_object *command = cli_json_member(document->root, "command", json_type_array);
		const char *version = cli_json_member_text(document->root, "version"),
			   *time = cli_json_member_text(document->root, "time");

		if (document->kind == REPORT_MACHINE || document->kind == REPORT_FLEET)
			continue;
		fputs("<h3>", file);
		report_escape(file, document->name, 120);
		fputs("</h3>\n<p class=\"soft keep\">", file);
		report_escape(file, version ? "version " : "", 0);
		report_escape(file, version ? version : "unknown version", 40);
		if (time) {
			fputs(", ", file);
			report_escape(file, time, 40);
		}
		fputs("</p>\n", file);
		if (!command)
			continue;
		fputs("<pre>", file);
		for (size_t j = 0; j < CLI_MIN(json_object_array_length(command), 200u); j++) {
			struct json_object *word = json_object_array_get_idx(command, j);

			fputs(j ? " " : "", file);
			if (json_object_is_type(word, json_type_string))
				write_shell_word(file, json_object_get_string(word));
		}
		fputs("</pre>\n", file);
	}
}
