/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenario: one requirement that every fabric must meet. */
#ifndef TEST_SCENARIO_H
#define TEST_SCENARIO_H

#include "support/environment.h"

enum scenario_flag {
	SCENARIO_HEAVY = 1u << 0,    /* moves or holds hundreds of megabytes, or takes seconds */
	SCENARIO_SETTING = 1u << 1,  /* independent of the number of streams and of the address family */
	SCENARIO_OUTLIVES = 1u << 3, /* reads memory after its region is deregistered */
	SCENARIO_CONTROL = 1u << 2,  /* tests addresses, keys or options, which do not depend on the fabric */
};

struct scenario {
	const char *name;
	void (*run)(struct scenario_environment *environment);
	unsigned flags;
};

/* Lists of scenarios.  Each list ends with an element whose name is NULL. */
extern const struct scenario transfer_scenarios[];
extern const struct scenario vector_scenarios[];
extern const struct scenario order_scenarios[];
extern const struct scenario event_scenarios[];
extern const struct scenario message_scenarios[];
extern const struct scenario atomic_scenarios[];
extern const struct scenario grant_scenarios[];
extern const struct scenario set_scenarios[];
extern const struct scenario revoke_scenarios[];
extern const struct scenario cut_scenarios[];
extern const struct scenario mapping_scenarios[];
extern const struct scenario deadline_scenarios[];
extern const struct scenario cancel_scenarios[];
extern const struct scenario close_scenarios[];
extern const struct scenario close_message_scenarios[];
extern const struct scenario connect_scenarios[];
extern const struct scenario option_scenarios[];
extern const struct scenario load_scenarios[];
extern const struct scenario flood_scenarios[];
extern const struct scenario registration_scenarios[];
extern const struct scenario log_scenarios[];
extern const struct scenario stream_scenarios[];
extern const struct scenario stream_memory_scenarios[];
extern const struct scenario stream_hostile_scenarios[];
extern const struct scenario counter_scenarios[];

/* Array of all lists, ended by NULL. */
extern const struct scenario *const scenario_lists[];

#endif
