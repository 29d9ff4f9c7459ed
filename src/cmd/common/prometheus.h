/* SPDX-License-Identifier: BSD-2-Clause */
/* Prometheus' text format, version 0.0.4.  The names of all metrics begin with "peerlane_", which the functions add. */
#ifndef PL_CMD_COMMON_PROMETHEUS_H
#define PL_CMD_COMMON_PROMETHEUS_H

#include <stdint.h>
#include <stdio.h>

/* Writes the lines that describe a metric; `type` is "gauge", "counter" or "histogram". */
void prometheus_describe(FILE *file, const char *metric, const char *type, const char *help);
/* Writes the beginning of a sample with one label.  Escapes the value, and makes it UTF-8. */
void prometheus_begin(FILE *file, const char *metric, const char *label, const char *value);
/* Adds a label. */
void prometheus_label(FILE *file, const char *label, const char *value);
/* Ends the sample. */
void prometheus_end(FILE *file, uint64_t value);
/* The same, with a value of nanoseconds in seconds. */
void prometheus_end_seconds(FILE *file, uint64_t nanoseconds);
/* Describes a metric without labels, and writes its sample. */
void prometheus_value(FILE *file, const char *metric, const char *type, const char *help, uint64_t value);

#endif
