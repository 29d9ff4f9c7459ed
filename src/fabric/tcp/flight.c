/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/tcp/flight.h"

#include <sys/socket.h>

#include "base/address.h"
#include "core/socket.h"

/* The limit is no less than the bytes that this rate brings in a round trip: one lane carries hardly more. Bytes a nanosecond. */
#define RATE_IN_FLIGHT 2u
/*
 * Shortest round trip of a long path, in nanoseconds. On a shorter one a lane's least share brings RATE_IN_FLIGHT, and frames that are
 * held back for the next answer wait no longer than that.
 */
#define LONG_TRIP (250u * 1000)
/* Round trips after which the shortest one is forgotten, because the path may have become longer. */
#define TRIPS_OF_SHORTEST 64u

static uint32_t flight_path_bytes(int fd)
{
	uint64_t trip = pl_socket_round_trip(fd);

	return trip < LONG_TRIP ? 0 : (uint32_t)PL_MIN(trip * RATE_IN_FLIGHT, (uint64_t)UINT32_MAX);
}

void tcp_flight_start(struct tcp_flight *flight, int fd, bool limits)
{
	struct sockaddr_storage other;
	socklen_t length = sizeof(other);

	*flight = (struct tcp_flight){ .shortest_next = UINT64_MAX, .path = flight_path_bytes(fd) };
	flight->limited = limits && getpeername(fd, (struct sockaddr *)&other, &length) == 0 &&
			  pl_address_is_loopback((struct sockaddr *)&other);
}

void tcp_flight_add(struct tcp_flight *flight, uint32_t length, uint32_t sequence, struct pl_engine *engine)
{
	flight->bytes += length;
	if (flight->began)
		return;
	flight->sequence = sequence;
	/* The engine's own time may be older than a long system call. */
	flight->began = pl_clock_now(&engine->clock);
}

static void flight_end_trip(struct tcp_flight *flight, struct pl_engine *engine)
{
	uint64_t trip = pl_engine_now(engine) - flight->began;

	flight->began = 0;
	flight->shortest_next = PL_MIN(flight->shortest_next, trip);
	if (!flight->shortest || trip < flight->shortest)
		flight->shortest = trip;
	if (++flight->trips < TRIPS_OF_SHORTEST)
		return;
	flight->shortest = flight->shortest_next;
	flight->shortest_next = UINT64_MAX;
	flight->trips = 0;
}

void tcp_flight_remove(struct tcp_flight *flight, uint32_t length, uint32_t sequence, struct pl_engine *engine)
{
	flight->bytes -= length;
	if (flight->began && sequence == flight->sequence)
		flight_end_trip(flight, engine);
}

uint64_t tcp_flight_limit(const struct tcp_flight *flight, uint32_t share)
{
	return PL_MAX((uint64_t)share, flight->shortest * RATE_IN_FLIGHT);
}
