/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading of documents: what results and matrices share. */
#ifndef PL_BENCH_COMPARE_DOCUMENT_READER_H
#define PL_BENCH_COMPARE_DOCUMENT_READER_H

#include <json-c/json.h>

#include "bench/compare/document.h"

/* Reader of a document, with the error for its first defect. */
struct document_reader {
	const char *name, *text;
	size_t length;
	struct document *document;
	struct json_object *root;
	struct pl_error *error;
};

/* Fails with BENCH-DOCUMENT. */
int refuse_document(const struct document_reader *reader, const char *format, const char *what);
/* Copies a text without control characters, as it is printed on a terminal. */
void copy_document_text(struct json_object *object, const char *name, const char *otherwise, char *to, size_t size);
/* Reads a rate or a time; its limits keep ratios finite. */
bool read_positive_number(struct json_object *value, double *number);

/* Reads a matrix; one of few ranks also has rows (document_matrix.c). */
int document_read_matrix(const struct document_reader *reader);
void document_free_matrix(struct document_matrix *matrix);

#endif
