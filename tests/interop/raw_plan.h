/* SPDX-License-Identifier: BSD-2-Clause */
/* What raw_verbs does to the memory of raw_server, known to both. */
#ifndef RAW_PLAN_H
#define RAW_PLAN_H

#include <stddef.h>
#include <stdint.h>

/* The grant begins and ends within a page: what is around it is not the peer's. */
#define PLAN_REGION 65536
#define PLAN_GRANT 4136
#define PLAN_LENGTH 20001

/* Written, as places in the grant. */
#define PLAN_BLOCK 123
#define PLAN_BLOCK_LENGTH 12000
/* Its address is a multiple of 8. */
#define PLAN_WORD 16384
#define PLAN_ADDED 1000003u
#define PLAN_SWAPPED 0x0123456789abcdefull
/* As far as the last byte. */
#define PLAN_EDGE_LENGTH 77
#define PLAN_EDGE (PLAN_LENGTH - PLAN_EDGE_LENGTH)

/* The message in which the server sends two tokens of the grant, for everything and for reading, one after the other. */
#define PLAN_TAG 0x5241
#define PLAN_TOKEN 68

/* Notifications of the stranger, in this order. */
#define PLAN_FIRST 11
#define PLAN_SECOND 22
/* The server revokes the first token, and answers with the same. */
#define PLAN_REVOKE 33

/* What a byte of the region is at first, and what it is once written over: another one everywhere. */
static inline uint8_t plan_before(size_t at)
{
	return (uint8_t)(at * 7 + (at >> 8) * 31 + 5);
}

static inline uint8_t plan_after(size_t at)
{
	return (uint8_t)~plan_before(at);
}

#endif
