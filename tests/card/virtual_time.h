/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Virtual time of the library in a program that is linked with its wraps (meson.build): each reading is 100 ns after
 * the last one, whatever else the machine does, and timers do not expire. So the path of an operation does not depend on
 * the machine.
 */
#ifndef CARD_VIRTUAL_TIME_H
#define CARD_VIRTUAL_TIME_H

void virtual_time_begin(void);

#endif
