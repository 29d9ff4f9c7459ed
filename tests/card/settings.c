/* SPDX-License-Identifier: BSD-2-Clause */
#include "card/settings.h"

const struct setting card_manual = {
	.name = "manual", .fabric = "verbs", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1, .one_sided = true
};
const struct setting card_threads = {
	.name = "thread", .fabric = "verbs", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1, .one_sided = true
};
