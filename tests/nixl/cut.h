/* SPDX-License-Identifier: BSD-2-Clause */
/* Proxy in front of an agent, whose end breaks the connections through it. */
#ifndef TEST_NIXL_CUT_H
#define TEST_NIXL_CUT_H

/* Starts a proxy to the address. Returns the proxy's address, in static storage. */
const char *cut_start(const char *target);
/* Ends the proxy. Each of its connections breaks. */
void cut_end(void);

#endif
