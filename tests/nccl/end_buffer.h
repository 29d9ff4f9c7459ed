/* SPDX-License-Identifier: BSD-2-Clause */
/* An end with one connection and a registered buffer, over the fabric that a case names. */
#ifndef NCCL_END_BUFFER_H
#define NCCL_END_BUFFER_H

#include "end.h"

#define MIDDLE ((size_t)1 << 20)
#define LENGTH ((size_t)8 << 20) /* of the buffer */

/*
 * Selects the fabric of this process and its children: "tcp", "local", "verbs", or
 * "denied": the local fabric, while the kernel refuses copies between processes;
 * "encrypted": tcp with a key that the processes share.
 * Ends the case as skipped if the machine lacks the fabric.
 */
void use_fabric(const void *fabric);
/* Loads the plugin, connects, and registers `end->data`. */
void end_open(struct end *end, bool sends);
void end_close(struct end *end, bool sends);
/* Moves message `number` both ways; both ends call it, one of them as the first. */
void end_exchange(struct end *end, void *send_comm, void *receive_comm, unsigned number, bool first);

/* Checks what the plugin of this process logged about its path to the other end's memory: "local" and "denied" differ. */
void check_path(const void *fabric);
/* Sets PEERLANE_KEY_FILE for this process and its children. */
void use_key(const char *key);

#endif
