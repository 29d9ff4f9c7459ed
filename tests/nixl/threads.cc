/* SPDX-License-Identifier: BSD-2-Clause */
#include "threads.h"

#include <atomic>
#include <map>
#include <thread>

#include "stand_in.h"

static constexpr size_t LENGTH = 1 << 20;

/* Writes 64 bytes by a request of its own. Writes have no order, so other threads do not write to the first 4 KiB. */
static void write_once(stand_in &agent, const range &local, const range &there, const char *to)
{
	nixlBackendReqH *handle;

	check_number(agent.prepare(NIXL_WRITE, local, there, { { 0, 64, 64 } }, to, handle), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle)), NIXL_SUCCESS);
	agent.release(handle);
}

/* Two threads post, a third one notifies, all to one agent; two others register and load memory; the first one collects. */
void test_threads(void *argument)
{
	constexpr int ROUNDS = 40;
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<char> memory(LENGTH);
	stand_in agent("one", parameters);
	stand_in other("two", parameters);
	std::vector<char> target(LENGTH);
	range local = agent.add(memory.data(), LENGTH), own = other.add(target.data(), LENGTH), there;
	std::vector<std::thread> threads;
	std::map<std::string, int> seen;

	check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
	check_number(agent.load("two", other.public_data(own), own.address, LENGTH, there), NIXL_SUCCESS);
	for (size_t half : { (size_t)0, LENGTH / 2 }) {
		threads.emplace_back([&, half] {
			nixlBackendReqH *handle;
			for (int i = 0; i < ROUNDS; i++) {
				check_number(agent.prepare(
						     NIXL_WRITE, local, there,
						     { { half, half + 4096, 4096 }, { half + 8192, half + 16384, 64 } },
						     "two", handle),
					     NIXL_SUCCESS);
				for (int post = 0; post < 3; post++)
					check_number(agent.finish(handle, agent.post(handle, half ? "high" : "low")),
						     NIXL_SUCCESS);
				agent.release(handle);
			}
		});
	}
	threads.emplace_back([&] {
		for (int i = 0; i < ROUNDS; i++)
			check_number(agent.engine->genNotif("two", i % 2 ? "small" : notice_of(2000)), NIXL_SUCCESS);
	});
	threads.emplace_back([&] {
		std::vector<char> more(4096);
		for (int i = 0; i < ROUNDS; i++) {
			range fresh = agent.add(more.data(), more.size());
			check(!agent.public_data(fresh).empty());
			agent.remove(fresh);
		}
	});
	threads.emplace_back([&, data = other.public_data(own)] {
		range again;
		for (int i = 0; i < ROUNDS; i++) {
			check_number(agent.load("two", data, own.address, LENGTH, again), NIXL_SUCCESS);
			write_once(agent, local, again, "two");
			agent.unload(again);
		}
	});
	for (int i = 0; i < 3 * ROUNDS * 2 + ROUNDS; i++)
		seen[other.notice().second]++;
	for (std::thread &each : threads)
		each.join();
	check_number(seen["high"], 3 * ROUNDS);
	check_number(seen["low"], 3 * ROUNDS);
	check_number(seen["small"], ROUNDS / 2);
	check_number(seen[notice_of(2000)], ROUNDS / 2);
	agent.unload(there);
	agent.remove(local);
	other.remove(own);
}

/*
 * Threads post to an agent without an end, each to bytes of its own. Meanwhile another thread connects to a third agent and
 * disconnects, again and again; then it disconnects from the agent of the others, whose postings end, and are refused from then on.
 * Bytes of canceled postings may arrive late, so the last write has bytes of its own, too.
 */
void test_disconnects(void *argument)
{
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<char> memory(LENGTH), target(LENGTH), third_target(LENGTH);
	stand_in agent("one", parameters), other("two", parameters), third("three", parameters);
	range local = agent.add(memory.data(), LENGTH), own = other.add(target.data(), LENGTH), there, far;
	range third_own = third.add(third_target.data(), LENGTH);
	std::vector<std::thread> threads;
	std::atomic<unsigned> posted = 0;

	check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
	check_number(agent.load("two", other.public_data(own), own.address, LENGTH, there), NIXL_SUCCESS);
	for (size_t at : { 65536, 131072 }) {
		threads.emplace_back([&, at] {
			nixlBackendReqH *handle;
			nixl_status_t status;
			check_number(agent.prepare(NIXL_WRITE, local, there, { { 0, at, 65536 } }, "two", handle),
				     NIXL_SUCCESS);
			while ((status = agent.finish(handle, agent.post(handle))) == NIXL_SUCCESS)
				posted++;
			check_number(status, NIXL_ERR_CANCELED);
			check_number(agent.finish(handle, agent.post(handle)), NIXL_ERR_CANCELED);
			agent.release(handle);
		});
	}
	for (int i = 0; i < 20; i++) {
		check_number(agent.engine->loadRemoteConnInfo("three", third.info()), NIXL_SUCCESS);
		check_number(agent.load("three", third.public_data(third_own), third_own.address, LENGTH, far),
			     NIXL_SUCCESS);
		write_once(agent, local, far, "three");
		agent.unload(far);
		check_number(agent.engine->disconnect("three"), NIXL_SUCCESS);
	}
	for (unsigned before = posted; posted < before + 2;)
		std::this_thread::yield();
	check_number(agent.engine->disconnect("two"), NIXL_SUCCESS);
	for (std::thread &each : threads)
		each.join();
	agent.unload(there);
	/* The agent can be loaded again. */
	check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
	check_number(agent.load("two", other.public_data(own), own.address, LENGTH, there), NIXL_SUCCESS);
	write_once(agent, local, there, "two");
	agent.unload(there);
	agent.remove(local);
	other.remove(own);
	third.remove(third_own);
}
