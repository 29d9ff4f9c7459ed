/* SPDX-License-Identifier: BSD-2-Clause */
/* Cases of test_nixl about the key and the address, from parameters and from the environment. */
#ifndef TEST_NIXL_PARAMETERS_H
#define TEST_NIXL_PARAMETERS_H

void test_keys(void *argument);
void test_variables(void *argument);

#endif
