/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of processors, from the text of /proc/cpuinfo. */
#ifndef PL_CPU_NAME_H
#define PL_CPU_NAME_H

#include "base/base.h"

/* Bytes of /proc/cpuinfo, enough for the first processor. */
#define PL_CPUINFO_SIZE 8192

/* Copies the value of the first line with this name; "" if there is none. */
void pl_cpuinfo_value(const char *cpuinfo, const char *name, char *to, size_t size);
/* Writes the name of the first processor, for example "Neoverse-V2"; "" if nothing in the text tells it. */
void pl_cpu_name(const char *cpuinfo, char *to, size_t size);
/* Writes the name of this machine's first processor; "" if it is unknown. */
void pl_cpu_name_here(char *to, size_t size);

#endif
