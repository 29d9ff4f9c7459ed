/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cases of test_nixl with ends of the test's own, by the library: what other agents may do, and processes that stand still or
 * have no memory.
 */
#ifndef TEST_NIXL_STRANGERS_H
#define TEST_NIXL_STRANGERS_H

void test_announcements(void *argument);
void test_busy(void *argument);
void test_departed(void *argument);
void test_leaving(void *argument);
void test_ending(void *argument);
void test_false_name(void *argument);
void test_slow_close(void *argument);
void test_notice_memory(void *argument);
void test_identities(void *argument);
void test_no_memory(void *argument);
void test_no_memory_list(void *argument);

#endif
