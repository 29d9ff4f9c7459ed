/* SPDX-License-Identifier: BSD-2-Clause */
/* What every fabric must do, as a list that is run over any of them. */
#ifndef TEST_SCENARIO_H
#define TEST_SCENARIO_H

#include "support/environment.h"

enum scenario_flag {
	SCENARIO_HEAVY = 1u << 0,    /* moves or holds hundreds of megabytes, or takes seconds */
	SCENARIO_SETTING = 1u << 1,  /* the same whatever the streams and the address family */
	SCENARIO_OUTLIVES = 1u << 3, /* looks at memory after its region is gone */
	SCENARIO_CONTROL = 1u << 2,  /* about addresses, keys or options: the same for every fabric */
};

struct scenario {
	const char *name;
	void (*run)(struct scenario_environment *environment);
	unsigned flags;
};

/* Each list ends with an element without a name. */
extern const struct scenario transfer_scenarios[];
extern const struct scenario vector_scenarios[];
extern const struct scenario order_scenarios[];
extern const struct scenario message_scenarios[];
extern const struct scenario atomic_scenarios[];
extern const struct scenario grant_scenarios[];
extern const struct scenario revoke_scenarios[];
extern const struct scenario cut_scenarios[];
extern const struct scenario mapping_scenarios[];
extern const struct scenario deadline_scenarios[];
extern const struct scenario cancel_scenarios[];
extern const struct scenario close_scenarios[];
extern const struct scenario connect_scenarios[];
extern const struct scenario option_scenarios[];
extern const struct scenario load_scenarios[];
extern const struct scenario flood_scenarios[];
extern const struct scenario registration_scenarios[];

/* All lists, ended by NULL. */
extern const struct scenario *const scenario_lists[];

#endif
