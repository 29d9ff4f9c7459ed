/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cable between the stand-in cards of several processes: sockets in the folder STANDIN_CABLE. The numbers of queue pairs
 * name process and device. Without the folder a process has its card for itself.
 */
#ifndef CARD_WIRE_H
#define CARD_WIRE_H

#include "card/card.h"

enum wire_kind { WIRE_ASK, WIRE_ANSWER };

/* A request, or its answer, which repeats `id` and `from`. `length` bytes follow. */
struct wire_header {
	uint64_t id, address, compare, swap;
	int32_t status;
	uint32_t kind, opcode, from, to, psn, key, immediate;
	uint32_t length; /* of what follows */
	uint32_t wanted; /* bytes of the request */
	uint32_t rnr_timer;
	uint16_t pkey_index, unused;
};

struct wire;

/* Joins the cable if there is one. The lock is held in all functions. */
void card_wire_start(void);
/* Returns the number of the next queue pair of a device. */
uint32_t card_wire_number(unsigned device, uint32_t count);
/* Returns the place of the process that a number names. */
unsigned card_wire_place(uint32_t number);
/* True if the number is of another process; *device is the device that it names. */
bool card_wire_is_far(uint32_t number, unsigned *device);
/* Sends to the process of a number. Returns false if there is none. */
bool card_wire_send(uint32_t number, const struct wire_header *header, const void *bytes);
/* Answers what came from there. */
void card_wire_answer(struct wire *wire, const struct wire_header *header, const void *bytes);

/* far.c */
/* Asks the process of the connected queue pair to do a request. Returns CARD_WAIT, or a status without asking. */
int card_far_execute(struct card_qp *qp, struct card_request *request);
void card_far_message(struct wire *wire, const struct wire_header *header, uint8_t *bytes);
/* Requests whose answers cannot come any more, because the connection to the process of `place` broke, are sent again. */
void card_far_lost(unsigned place);

#endif
