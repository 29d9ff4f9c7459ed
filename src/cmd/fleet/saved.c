/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/saved.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/check/policy_file.h"

#define FILE_MAX (512u << 20) /* bytes of a document of a fleet */
#define DEPTH_MAX 40          /* a document of a host is within it */
#define SUFFIX ".json"
#define SAVED_HINT "name a folder of --save, a file of --output, or the JSON document of a host"
#define UNNAMED "unnamed" /* host of a document that has no name, as of a dump */

static int fail_saved(struct pl_error *error, const char *path, const char *fact)
{
	return cli_fail(error, -EINVAL, "FLEET-SAVED", path, SAVED_HINT, "%s", fact);
}

/* Makes room for the answers of all hosts. */
static int allocate_answers(struct saved *saved, struct pl_error *error)
{
	saved->answers = calloc(saved->hosts.count + 1, sizeof(*saved->answers));
	return saved->answers ? 0 : cli_fail_errno(error, -ENOMEM, "calloc", NULL);
}

/* Sets the kind to that of a host's document.  Returns false if it is none. */
static bool set_kind(struct saved *saved, struct json_object *root)
{
	const char *kind = cli_json_member_text(root, "kind");

	if (!kind || (strcmp(kind, "check") != 0 && strcmp(kind, "topo") != 0))
		return false;
	saved->kind = !strcmp(kind, "topo") ? FLEET_TOPO : FLEET_CHECK;
	return true;
}

/* Takes the kind of the first document for all. */
static void learn_kind(struct saved *saved, bool *known, const char *text, size_t length)
{
	struct json_object *root;
	const char *begin;
	size_t size;
	bool truncated;

	if (*known)
		return;
	root = answer_find(text, length, &begin, &size, &truncated);
	*known = set_kind(saved, root);
	json_object_put(root);
}

/* -- folder -------------------------------------------------------------------------------------- */

static int choose_saved_file(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > strlen(SUFFIX) && length <= FLEET_NAME_MAX + strlen(SUFFIX) &&
	       !strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX);
}

/* Orders entries by the names of their hosts, as strcmp(3) orders names without the suffix. */
static int compare_saved_files(const struct dirent **left, const struct dirent **right)
{
	char a[FLEET_NAME_MAX + 1], b[FLEET_NAME_MAX + 1];

	snprintf(a, sizeof(a), "%.*s", (int)(strlen((*left)->d_name) - strlen(SUFFIX)), (*left)->d_name);
	snprintf(b, sizeof(b), "%.*s", (int)(strlen((*right)->d_name) - strlen(SUFFIX)), (*right)->d_name);
	return strcmp(a, b);
}

static int read_saved_file(struct saved *saved, size_t host, bool *known, struct pl_error *error)
{
	struct answer *answer = &saved->answers[host];
	struct stat status;
	char *path = NULL, *text;
	size_t length;
	int rc;

	if (asprintf(&path, "%s/%s" SUFFIX, saved->path, saved->hosts.names[host]) < 0)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	/* The user named the folder only: a pipe in it, for which opening would wait, is no answer. */
	if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
		rc = fail_saved(error, path, "it is no regular file");
	else
		rc = check_read_file(path, RUN_OUTPUT_MAX, &text, &length, error);
	free(path);
	answer->seconds = -1;
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) {
		answer->outcome = ANSWER_NO_DOCUMENT;
		snprintf(answer->reason, sizeof(answer->reason), "%s", error->message);
		return 0;
	}
	learn_kind(saved, known, text, length);
	answer_read(answer, saved->kind, text, length);
	free(text);
	return 0;
}

static int read_saved_folder(struct saved *saved, struct pl_error *error)
{
	struct dirent **entries;
	int count = scandir(saved->path, &entries, choose_saved_file, compare_saved_files), rc = 0;
	bool known = false;

	if (count < 0)
		return cli_fail_errno(error, -errno, "scandir", saved->path);
	for (int i = 0; i < count; i++) {
		entries[i]->d_name[strlen(entries[i]->d_name) - strlen(SUFFIX)] = '\0';
		if (rc == 0)
			rc = host_list_add(&saved->hosts, entries[i]->d_name, error);
		free(entries[i]);
	}
	free(entries);
	if (rc < 0)
		return rc;
	/* A name with a comma or a bracket is several names. */
	if (!count || (size_t)count != saved->hosts.count)
		return fail_saved(error, saved->path,
				  count ? "a name of a file is no name of a host" : "there are no documents");
	rc = allocate_answers(saved, error);
	for (size_t i = 0; rc == 0 && i < saved->hosts.count; i++)
		rc = read_saved_file(saved, i, &known, error);
	return rc;
}

/* -- file ---------------------------------------------------------------------------------------- */

static int compare_saved_hosts(const void *left, const void *right)
{
	const char *a = cli_json_member_text(*(struct json_object *const *)left, "host");
	const char *b = cli_json_member_text(*(struct json_object *const *)right, "host");

	return strcmp(a ? a : "", b ? b : "");
}

static void read_saved_host(struct saved *saved, size_t index, struct json_object *host)
{
	struct answer *answer = &saved->answers[index];
	struct json_object *document = cli_json_member(host, "document", json_type_object);
	const char *text = document ? json_object_to_json_string_ext(document, JSON_C_TO_STRING_PLAIN) : NULL;
	const char *reason = cli_json_member_text(host, "reason"), *outcome = cli_json_member_text(host, "outcome");
	struct json_object *clock = cli_json_member(host, "clock_difference_seconds", json_type_double);

	if (text) {
		answer_read(answer, saved->kind, text, strlen(text));
		if (answer->outcome == ANSWER_DOCUMENT && clock)
			answer_set_clock(answer, json_object_get_double(clock));
	} else {
		answer->outcome = answer_outcome_of(outcome ? outcome : "");
		snprintf(answer->reason, sizeof(answer->reason), "%s", reason && *reason ? reason : "no document");
		cli_printable(answer->reason, false);
	}
	answer->seconds = -1;
}

static int read_saved_hosts(struct saved *saved, struct json_object *root, struct pl_error *error)
{
	struct json_object *hosts = cli_json_member(root, "hosts", json_type_array);
	const char *command = cli_json_member_text(root, "command"), *kind = cli_json_member_text(root, "kind");
	size_t count = hosts ? json_object_array_length(hosts) : 0;
	int rc = 0;

	if (!kind || strcmp(kind, "fleet") || !command || !count)
		return fail_saved(error, saved->path, "this is no document of peerlane fleet");
	if (fleet_number(root, "format") != 1)
		return fail_saved(error, saved->path, "the document has another format than 1, as of another version");
	saved->kind = !strcmp(command, "topo") ? FLEET_TOPO : FLEET_CHECK;
	json_object_array_sort(hosts, compare_saved_hosts);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const char *name = cli_json_member_text(json_object_array_get_idx(hosts, i), "host");

		rc = name ? host_list_add(&saved->hosts, name, error) : -EINVAL;
		if (rc == -EINVAL || (rc == 0 && saved->hosts.count != i + 1) ||
		    (rc == 0 && i && !strcmp(saved->hosts.names[i - 1], saved->hosts.names[i])))
			return fail_saved(error, saved->path, "a host has no name, or the name of another one");
	}
	if (rc == 0)
		rc = allocate_answers(saved, error);
	for (size_t i = 0; rc == 0 && i < count; i++)
		read_saved_host(saved, i, json_object_array_get_idx(hosts, i));
	return rc;
}

/* Reads the document of one host. */
static int read_single_document(struct saved *saved, struct json_object *root, const char *text, size_t length,
				struct pl_error *error)
{
	const char *host = cli_json_member_text(root, "host");
	int rc = host_list_add(&saved->hosts, host ? host : UNNAMED, error);

	if (rc == -EINVAL || (rc == 0 && saved->hosts.count != 1))
		return fail_saved(error, saved->path, "the name in the document is no name of a host");
	if (rc == 0)
		rc = allocate_answers(saved, error);
	if (rc < 0)
		return rc;
	answer_read(&saved->answers[0], saved->kind, text, length);
	saved->answers[0].seconds = -1;
	return saved->answers[0].outcome == ANSWER_DOCUMENT ? 0
							    : fail_saved(error, saved->path, saved->answers[0].reason);
}

int saved_take(struct saved *saved, const char *path, struct json_object *root, struct pl_error *error)
{
	*saved = (struct saved){ .path = path };
	return read_saved_hosts(saved, root, error);
}

int saved_parse(struct saved *saved, const char *path, const char *text, size_t length, struct pl_error *error)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *root;
	int rc;

	saved->path = path;
	if (!tokener)
		return cli_fail_errno(error, -ENOMEM, "json_tokener_new", NULL);
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = json_tokener_parse_ex(tokener, text, (int)length);
	if (json_tokener_get_error(tokener) != json_tokener_success)
		rc = fail_saved(error, path, "this is no whole JSON document");
	else if (set_kind(saved, root))
		rc = read_single_document(saved, root, text, length, error);
	else
		rc = read_saved_hosts(saved, root, error);
	json_object_put(root);
	json_tokener_free(tokener);
	return rc;
}

int saved_read(struct saved *saved, const char *path, struct pl_error *error)
{
	struct stat status;
	size_t length;
	char *text;
	int rc;

	*saved = (struct saved){ .path = path };
	if (stat(path, &status) < 0)
		return cli_fail_errno(error, -errno, "stat", path);
	if (S_ISDIR(status.st_mode))
		return read_saved_folder(saved, error);
	rc = check_read_file(path, FILE_MAX, &text, &length, error);
	if (rc < 0)
		return rc;
	rc = saved_parse(saved, path, text, length, error);
	free(text);
	return rc;
}

void saved_free(struct saved *saved)
{
	for (size_t i = 0; saved->answers && i < saved->hosts.count; i++)
		answer_free(&saved->answers[i]);
	free(saved->answers);
	host_list_free(&saved->hosts);
	*saved = (struct saved){ .path = NULL };
}
