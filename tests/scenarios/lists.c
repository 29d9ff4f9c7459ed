/* SPDX-License-Identifier: BSD-2-Clause */
#include "scenarios/scenario.h"

const struct scenario *const scenario_lists[] = {
	transfer_scenarios,      vector_scenarios,
	order_scenarios,         event_scenarios,
	message_scenarios,       atomic_scenarios,
	grant_scenarios,         set_scenarios,
	revoke_scenarios,        cut_scenarios,
	mapping_scenarios,       deadline_scenarios,
	cancel_scenarios,        close_scenarios,
	connect_scenarios,       option_scenarios,
	load_scenarios,          flood_scenarios,
	registration_scenarios,  log_scenarios,
	stream_scenarios,        stream_memory_scenarios,
	counter_scenarios,       stream_hostile_scenarios,
	close_message_scenarios, NULL,
};
