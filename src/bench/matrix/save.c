/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File of results that grows while the matrix is measured.  mpirun ends all ranks soon after a signal, and may drop
 * their output.  So rank 0 writes the results after pairs, not at the signal.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/matrix/ending.h"
#include "bench/matrix/matrix.h"
#include "cmd/common/output.h"

/* Writes take at most 1/20 of the time, and occur at most once a second. */
#define PAUSE_MIN CLI_NS_PER_S
#define PAUSE_FACTOR 20

struct matrix_save {
	struct matrix *matrix;
	const struct matrix_options *options;
	char *path;
	mode_t mode;
	uint64_t next; /* time of the next write */
	bool warned;
	struct ending *ending;
};

static int write_results(struct matrix_save *save, bool complete, struct pl_error *error)
{
	struct matrix *matrix = save->matrix;
	uint64_t begun = cli_now();
	struct json_object *object = NULL;
	const char *text;
	int rc;

	matrix_stop_clock(matrix);
	if (matrix_judge(matrix) == 0)
		object = matrix_document(matrix, save->options, complete);
	text = cli_json_string(object, matrix_has_lines(matrix));
	ending_hold(save->ending);
	rc = text ? cli_replace_file(save->path, text, save->mode, error)
		  : cli_fail_errno(error, -ENOMEM, "malloc", save->path);
	if (rc == 0)
		ending_set_pairs(save->ending, matrix_count_pairs(matrix));
	ending_release(save->ending);
	json_object_put(object);
	save->next = cli_now();
	save->next += CLI_MAX(PAUSE_MIN, (save->next - begun) * PAUSE_FACTOR);
	return rc;
}

/* -- file --------------------------------------------------------------------------------------------- */

/* Refuses to replace a file: the results of an earlier run would be lost. */
static int choose_new_path(struct matrix_save *save, const char *path, struct pl_error *error)
{
	struct stat status;

	if (lstat(path, &status) == 0)
		return cli_fail(error, -EEXIST, "MATRIX-SAVE-EXISTS", path,
				"continue an interrupted measurement with --resume FILE; else remove the file",
				"the file exists");
	save->path = strdup(path);
	return save->path ? 0 : cli_fail_errno(error, -ENOMEM, "strdup", NULL);
}

/* Finds the file to replace behind a symbolic link, and keeps its mode. */
static int choose_old_path(struct matrix_save *save, const char *path, struct pl_error *error)
{
	struct stat status;

	save->path = realpath(path, NULL);
	if (!save->path || stat(save->path, &status) < 0)
		return cli_fail_errno(error, -errno, "realpath", path);
	save->mode = status.st_mode & 0777;
	return 0;
}

int matrix_save_open(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	struct matrix_save *save = NULL;
	mode_t mask;
	int rc;

	if (!options->save && !options->resume)
		return 0;
	save = calloc(1, sizeof(*save));
	if (!save)
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	mask = umask(0);
	umask(mask);
	*save = (struct matrix_save){ .matrix = matrix, .options = options, .mode = 0666 & ~mask };
	rc = options->save ? choose_new_path(save, options->save, error)
			   : choose_old_path(save, options->resume, error);
	if (rc == 0)
		rc = ending_open(&save->ending, save->path, matrix_pairs(matrix), error);
	if (rc == 0)
		rc = write_results(save, false, error);
	if (rc < 0) {
		matrix_save_close(save);
		return rc;
	}
	matrix->save = save;
	return 0;
}

void matrix_save_part(struct matrix_save *save)
{
	struct pl_error error;
	char text[sizeof(error) + 32];

	if (!save || cli_now() < save->next || write_results(save, false, &error) == 0 || save->warned)
		return;
	/* The rest of the matrix can still be printed, and the disk may have room later. */
	save->warned = true;
	pl_error_format(&error, text, sizeof(text));
	cli_warn("the results cannot be saved now: %s", text);
}

int matrix_save_all(struct matrix_save *save, struct pl_error *error)
{
	return save ? write_results(save, true, error) : 0;
}

void matrix_save_close(struct matrix_save *save)
{
	if (!save)
		return;
	ending_close(save->ending);
	free(save->path);
	free(save);
}
