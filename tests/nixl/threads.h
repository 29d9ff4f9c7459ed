/* SPDX-License-Identifier: BSD-2-Clause */
/* Cases of test_nixl in which several threads call one engine. */
#ifndef TEST_NIXL_THREADS_H
#define TEST_NIXL_THREADS_H

void test_threads(void *argument);
void test_disconnects(void *argument);

#endif
