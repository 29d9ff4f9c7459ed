/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON, tables and files that subcommands write. */
#ifndef PL_CMD_COMMON_OUTPUT_H
#define PL_CMD_COMMON_OUTPUT_H

#include <json-c/json.h>
#include <libsmartcols.h>

#include "cmd/common/cli.h"

/* Returns any bytes as a JSON string.  Bytes that are not UTF-8 become U+FFFD; NULL becomes null. */
struct json_object *cli_json_text(const char *text);
/* Like cli_json_text(), but an empty text becomes null as well. */
struct json_object *cli_json_text_or_null(const char *text);
/* Returns the bytes of the well-formed UTF-8 character at the beginning of a text, or 0.  NUL is none. */
size_t cli_utf8_character(const char *text);
/* True if the bytes are well-formed UTF-8 without NUL.  The byte after them must be NUL. */
bool cli_is_utf8(const char *text, size_t length);
/* Returns { "code", "id", "call", "object", "message", "hint" }. */
struct json_object *cli_json_error(const struct pl_error *error);
/* Adds a member.  The object owns the value afterwards, also if there is no memory. */
void cli_json_add(struct json_object *object, const char *name, struct json_object *value);
/* Appends an element, in the same way. */
void cli_json_append(struct json_object *array, struct json_object *value);
/* Returns the member of this type; NULL if it is missing or of another type, or `object` is no object.  Borrowed. */
struct json_object *cli_json_member(struct json_object *object, const char *name, enum json_type type);
/* Returns the text of a member; NULL if it is missing or no text.  Borrowed. */
const char *cli_json_member_text(struct json_object *object, const char *name);
/* Begins a document: an object that cli_json_end() prints, or NULL if out of memory. */
struct json_object *cli_json_begin(void);
/* Returns the text of a document, which the document owns; NULL if memory lacked since its beginning. */
const char *cli_json_string(struct json_object *object, bool pretty);
/* Prints a document as cli_json_print() does.  Prints nothing and returns -ENOMEM if memory lacked since its beginning. */
int cli_json_end(struct json_object *object, bool pretty);
/* Ends the document with a command's results.  Returns CLI_OK, or CLI_OUTPUT with a message. */
int cli_json_results(struct json_object *object);
/* Prints the object on standard output, on several lines if `pretty`, flushes, and frees the object. */
void cli_json_print(struct json_object *object, bool pretty);

/* Reports the error that ends the command: on standard error, with --json also as { "error" }.  Returns CLI_FAILED. */
int cli_report_for(const struct cli_options *options, const struct pl_error *error);

/*
 * Paths of outputs (output_path.c).  Special paths name devices and open descriptors, such as /dev/stdout or
 * /proc/self/fd/3.  Ordinary are the files that another path in /proc leads to, such as /proc/self/cwd/FILE, and those in
 * /dev/shm.
 */
bool cli_path_is_special(const char *path);
/*
 * Opens a special path or a pipe for writing.  A path that names a descriptor of this process gives a copy of it, with
 * its position.  Fails with EBADF for a descriptor that the command opened itself, rather than inherited.  Returns a
 * descriptor that the caller closes, or a negative errno, which is also in errno.
 */
int cli_open_stream(const char *path);
/*
 * Returns the path of the file that a symbolic link leads to, which the caller frees; NULL with errno if there is none,
 * or the kernel protects this user from the link.
 */
char *cli_link_target(const char *path);
/* Returns the folder of a path, which the caller frees; NULL: no memory (replace_file.c). */
char *cli_folder_of(const char *path);

/*
 * Writes a text, and a newline unless it ends with one, into a temporary file in the same folder, which then replaces the
 * file `path` (replace_file.c), or the target of a symbolic link.  Writes directly into a pipe, a special path, a mount
 * point, or a file whose folder takes no new file; but not into a file of another user than the folder's owner, if the
 * folder has the sticky bit.  Returns 0, or a negative errno and *error; the old file stays then, if another file can
 * replace it.
 */
int cli_replace_file(const char *path, const char *text, unsigned mode, struct pl_error *error);
/* Does the same with what a function writes, which returns 0 or a negative errno.  The function can be called twice. */
int cli_replace_file_by(const char *path, int (*write)(FILE *file, const void *argument), const void *argument,
			unsigned mode, struct pl_error *error);
/* Does the same with the mode of the file, or of new files; writes to standard output for "-". */
int cli_write_file(const char *path, int (*write)(FILE *file, const void *argument), const void *argument,
		   struct pl_error *error);
/* Returns the mode of new files: the umask of this process allows it. */
unsigned cli_new_file_mode(void);

/* Returns "direct", "staged" or "none". */
const char *cli_route_name(enum pl_route route);

struct cli_column {
	const char *name;
	int flags; /* SCOLS_FL_* */
};

/* Creates a table of text.  Returns NULL if out of memory. */
struct libscols_table *cli_table(const struct cli_column *columns, size_t count);
/* Appends a line.  Returns NULL if out of memory; cli_table_set() accepts that. */
struct libscols_line *cli_table_line(struct libscols_table *table);
void cli_table_set(struct libscols_line *line, size_t column, const char *text);
/* Prints the table on standard output and frees it.  Accepts NULL. */
void cli_table_print(struct libscols_table *table);

#endif
