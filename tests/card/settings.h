/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings of tests over the stand-in card. */
#ifndef CARD_SETTINGS_H
#define CARD_SETTINGS_H

#include "support/environment.h"

/* Progress by the program's calls, or by threads of the contexts. */
extern const struct setting card_manual, card_threads;

#endif
