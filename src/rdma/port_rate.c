/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/port_rate.h"

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* Returns the rate of a lane, in units of 100 Mb/s; 0: unknown. */
static unsigned lane_rate(unsigned speed)
{
	static const struct {
		uint8_t code;
		unsigned rate;
	} rates[] = {
		{ 1, 25 }, { 2, 50 }, { 4, 100 }, { 8, 100 }, { 16, 140 }, { 32, 250 }, { 64, 500 }, { 128, 1000 }
	};

	for (size_t i = 0; i < PL_ARRAY_SIZE(rates); i++)
		if (rates[i].code == speed)
			return rates[i].rate;
	return 0;
}

static unsigned count_lanes(unsigned width)
{
	static const struct {
		uint8_t code, lanes;
	} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };

	for (size_t i = 0; i < PL_ARRAY_SIZE(widths); i++)
		if (widths[i].code == width)
			return widths[i].lanes;
	return 0;
}

unsigned rdma_port_rate(unsigned active_speed, unsigned active_width)
{
	return lane_rate(active_speed) * count_lanes(active_width);
}
