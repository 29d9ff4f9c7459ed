/* SPDX-License-Identifier: BSD-2-Clause */
/* Accesses of raw_verbs to the memory of raw_server, as both programs know them. */
#ifndef RAW_PLAN_H
#define RAW_PLAN_H

#include <stddef.h>
#include <stdint.h>

/* The grant begins and ends within a page.  The peer must not reach the bytes around it. */
#define PLAN_REGION 65536
#define PLAN_GRANT 4136
#define PLAN_LENGTH 20001

/* Written range, as offset in the grant. */
#define PLAN_BLOCK 123
#define PLAN_BLOCK_LENGTH 12000
/* Offset of the word for atomics, at an address that is a multiple of 8. */
#define PLAN_WORD 16384
#define PLAN_ADDED 1000003u
#define PLAN_SWAPPED 0x0123456789abcdefull
/* Range up to the last byte of the grant. */
#define PLAN_EDGE_LENGTH 77
#define PLAN_EDGE (PLAN_LENGTH - PLAN_EDGE_LENGTH)

/* Message in which the server sends two tokens of the grant: the first for all access, the second for reads. */
#define PLAN_TAG 0x5241
#define PLAN_TOKEN 68

/* Notifications of the stranger, in this order. */
#define PLAN_FIRST 11
#define PLAN_SECOND 22
/* Notification at which the server revokes the first token.  The server answers with the same value. */
#define PLAN_REVOKE 33

/* Return a byte of the region before and after it is written.  The values differ for every byte. */
static inline uint8_t plan_before(size_t at)
{
	return (uint8_t)(at * 7 + (at >> 8) * 31 + 5);
}

static inline uint8_t plan_after(size_t at)
{
	return (uint8_t)~plan_before(at);
}

#endif
