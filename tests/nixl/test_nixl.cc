/* SPDX-License-Identifier: BSD-2-Clause */
/* The plugin of NIXL between two processes, and of an agent with itself. */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <signal.h>

#include "parameters.h"
#include "stand_in.h"
#include "strangers.h"
#include "threads.h"
#include "wire.h"

extern "C" {
#include "cut.h"
#include "support/cases.h"
#include "support/gpu.h"
}

/* Sanitizers are slow, and look at each byte: one case has as many pieces there. */
static constexpr size_t MANY_PIECES = 40000;
static const size_t PIECES = slowness() > 2 ? 8000 : MANY_PIECES;
static constexpr size_t PIECE = 40;
static constexpr size_t STRIDE = 64;
static const size_t LENGTH = PIECES * STRIDE;

static void fill(std::vector<char> &memory, unsigned seed)
{
	for (size_t i = 0; i + 4 <= memory.size(); i += 4) {
		uint32_t word = (uint32_t)(i * 2654435761u + seed * 40503u);
		memcpy(&memory[i], &word, 4);
	}
}

/* Pieces at both ends in orders of their own, none next to the other. */
static std::vector<piece> scattered(size_t count = PIECES)
{
	std::vector<piece> pieces;

	for (size_t i = 0; i < count; i++)
		pieces.push_back({ i * STRIDE, i * 7919 % count * STRIDE, PIECE });
	return pieces;
}

static void copy_pieces(std::vector<char> &to, const std::vector<char> &from, const std::vector<piece> &pieces)
{
	for (const piece &each : pieces)
		memcpy(&to[each.to], &from[each.from], each.length);
}

static void check_answer(remote_process &remote, const char *expected)
{
	std::string text = answer(remote);

	check_text(text.c_str(), expected);
}

static void check_report(remote_process &remote, stand_in &agent, const std::string &notice,
			 const std::vector<char> &expected)
{
	report next = next_report(remote, agent);

	check_text(next.sender.c_str(), "one");
	check_number(next.length, notice.size());
	check(next.hash == hash_bytes(notice.data(), notice.size()));
	check(next.range_hash == hash_bytes(expected.data(), expected.size()));
}

/* All pieces to and fro, posted again and again, with notifications of all sizes. */
static void test_transfers(void *argument)
{
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<char> memory(LENGTH), expected(LENGTH), back(LENGTH);
	std::vector<piece> pieces = scattered(), mirrored;
	remote_process remote = start_remote("two", parameters, LENGTH);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), LENGTH), again = agent.add(back.data(), LENGTH);
	range there = load_remote(agent, remote);
	nixlBackendReqH *write, *read;
	unsigned seed = 0;

	check_number(agent.prepare(NIXL_WRITE, local, there, pieces, "two", write), NIXL_SUCCESS);
	check_number(agent.prepare(NIXL_READ, again, there, pieces, "two", read), NIXL_SUCCESS);
	for (size_t length : { (size_t)0, (size_t)1, (size_t)1024, (size_t)1025, (size_t)8193, (size_t)1 << 20 }) {
		std::string notice = notice_of(length);
		fill(memory, ++seed);
		copy_pieces(expected, memory, pieces);
		check_number(agent.finish(write, agent.post(write, notice)), NIXL_SUCCESS);
		check_report(remote, agent, notice, expected);
	}
	check_number(agent.finish(read, agent.post(read, notice_of(3))), NIXL_SUCCESS);
	check_report(remote, agent, notice_of(3), expected);
	for (const piece &each : pieces)
		check(!memcmp(&back[each.from], &memory[each.from], each.length));
	/* Without a notification none arrives: the next one is of genNotif(). */
	check_number(agent.finish(write, agent.post(write)), NIXL_SUCCESS);
	for (size_t length : { (size_t)0, (size_t)8192, (size_t)1 << 20 }) {
		check_number(agent.engine->genNotif("two", notice_of(length)), NIXL_SUCCESS);
		check_report(remote, agent, notice_of(length), expected);
	}
	agent.release(write);
	agent.release(read);
	agent.unload(there);
	check_number(agent.engine->disconnect("two"), NIXL_SUCCESS);
	check_number(agent.engine->genNotif("two", "x"), NIXL_ERR_NOT_FOUND);
	agent.remove(local);
	agent.remove(again);
	end_remote(remote);
}

/* As many pieces as a request of vLLM has, to and fro once, also under sanitizers. */
static void test_many(void *)
{
	constexpr size_t LENGTH_OF_MANY = MANY_PIECES * STRIDE;
	nixl_b_params_t parameters = parameters_of("fabric=tcp");
	std::vector<char> memory(LENGTH_OF_MANY), expected(LENGTH_OF_MANY), back(LENGTH_OF_MANY);
	std::vector<piece> pieces = scattered(MANY_PIECES);
	remote_process remote = start_remote("two", parameters, LENGTH_OF_MANY);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), LENGTH_OF_MANY), again = agent.add(back.data(), LENGTH_OF_MANY);
	range there = load_remote(agent, remote);
	nixlBackendReqH *write, *read;

	fill(memory, 5);
	copy_pieces(expected, memory, pieces);
	check_number(agent.prepare(NIXL_WRITE, local, there, pieces, "two", write), NIXL_SUCCESS);
	check_number(agent.finish(write, agent.post(write, "many")), NIXL_SUCCESS);
	check_report(remote, agent, "many", expected);
	check_number(agent.prepare(NIXL_READ, again, there, pieces, "two", read), NIXL_SUCCESS);
	check_number(agent.finish(read, agent.post(read)), NIXL_SUCCESS);
	for (const piece &each : pieces)
		check(!memcmp(&back[each.from], &memory[each.from], each.length));
	agent.release(write);
	agent.release(read);
	agent.unload(there);
	agent.remove(local);
	agent.remove(again);
	end_remote(remote);
}

/* The other agent answers over a connection of its own. */
static void test_answers(void *)
{
	nixl_b_params_t parameters = parameters_of("fabric=tcp");
	remote_process remote = start_remote("two", parameters, 4096);
	stand_in agent("one", parameters);

	range there = load_remote(agent, remote);
	command(remote, "i one " + agent.info());
	check_answer(remote, "0");
	for (size_t length : { (size_t)0, (size_t)1000, (size_t)100000 }) {
		command(remote, "g one " + std::to_string(length));
		check_answer(remote, "0");
		auto notice = agent.notice();
		check_text(notice.first.c_str(), "two");
		check(notice.second == notice_of(length));
	}
	agent.unload(there);
	end_remote(remote);
}

/* An agent transfers within itself, as NIXL allows where supportsLocal() is true. */
static void test_self(void *argument)
{
	std::vector<char> from(LENGTH), to(LENGTH), expected(LENGTH);
	std::vector<piece> pieces = scattered();
	stand_in agent("one", parameters_of((const char *)argument));
	range local = agent.add(from.data(), LENGTH), other = agent.add(to.data(), LENGTH);
	range target = agent.add_self(other);
	nixlBackendReqH *handle;

	fill(from, 1);
	copy_pieces(expected, from, pieces);
	check_number(agent.prepare(NIXL_WRITE, local, target, pieces, "one", handle), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle, "done")), NIXL_SUCCESS);
	auto notice = agent.notice();
	check_text(notice.first.c_str(), "one");
	check_text(notice.second.c_str(), "done");
	check(to == expected);
	agent.release(handle);
	agent.unload(target);
	agent.remove(local);
	agent.remove(other);
}

/* The target deregisters: the transfer fails, and no notification comes, neither then nor before the next one. */
static void test_failure(void *argument)
{
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<char> memory(LENGTH);
	remote_process remote = start_remote("two", parameters, LENGTH);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), LENGTH), there = load_remote(agent, remote);
	nixlBackendReqH *handle;

	check_number(agent.prepare(NIXL_WRITE, local, there, scattered(), "two", handle), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle)), NIXL_SUCCESS);
	command(remote, "r");
	check_answer(remote, "removed");
	check_number(agent.finish(handle, agent.post(handle, notice_of(5))), NIXL_ERR_NOT_ALLOWED);
	check_number(agent.finish(handle, agent.post(handle, notice_of(5000))), NIXL_ERR_NOT_ALLOWED);
	check_number(agent.engine->genNotif("two", notice_of(6)), NIXL_SUCCESS);
	check_number(next_report(remote, agent).length, 6);
	agent.release(handle);
	agent.unload(there);
	agent.remove(local);
	end_remote(remote);
}

/* Once released, a read writes nothing into the local range any more. */
static void test_release(void *argument)
{
	const size_t length = 8 << 20;
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<char> memory(length);
	remote_process remote = start_remote("two", parameters, length);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), length), there = load_remote(agent, remote);
	std::vector<piece> pieces;
	nixlBackendReqH *handle;
	unsigned running = 0;

	for (size_t at = 0; at < length; at += 8192)
		pieces.push_back({ at, length - 8192 - at, 8192 });
	check_number(agent.engine->connect("two"), NIXL_SUCCESS);
	for (unsigned i = 0; i < 8; i++) {
		check_number(agent.prepare(NIXL_READ, local, there, pieces, "two", handle), NIXL_SUCCESS);
		nixl_status_t status = agent.post(handle);
		for (unsigned polls = 0; status == NIXL_IN_PROG && polls < i * 20; polls++)
			status = agent.engine->checkXfer(handle);
		running += status == NIXL_IN_PROG;
		agent.release(handle);
		memset(memory.data(), 0x55, length);
		sleep_ms(2);
		for (size_t at = 0; at < length; at += 512)
			check(memory[at] == 0x55);
	}
	check(running > 0);
	/* Memory that a prepared transfer uses can be deregistered; the transfer then fails. */
	check_number(agent.prepare(NIXL_READ, local, there, pieces, "two", handle), NIXL_SUCCESS);
	nixl_status_t posted = agent.post(handle);
	agent.remove(local);
	/* On a busy machine the local fabric may end the read before the call that posts it. */
	check_number(agent.engine->checkXfer(handle), posted == NIXL_IN_PROG ? NIXL_ERR_CANCELED : NIXL_SUCCESS);
	check_number(agent.post(handle), NIXL_ERR_NOT_FOUND);
	agent.release(handle);
	agent.unload(there);
	end_remote(remote);
}

/* The other process dies during a transfer; another one with the same name follows. */
static void test_death(void *argument)
{
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<char> memory(LENGTH), expected(LENGTH);
	std::vector<piece> pieces = scattered();
	remote_process remote = start_remote("two", parameters, LENGTH);
	remote_process successor = start_remote("two", parameters, LENGTH);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), LENGTH), there = load_remote(agent, remote);
	nixlBackendReqH *handle;

	check_number(agent.prepare(NIXL_WRITE, local, there, pieces, "two", handle), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle)), NIXL_SUCCESS);
	process_stop(remote.pid);
	nixl_status_t posted = agent.post(handle, "never");
	process_kill(remote.pid, SIGKILL);
	nixl_status_t status = agent.finish(handle, posted);
	/* The local fabric needs no help of the other process to write. */
	if (status != NIXL_SUCCESS)
		check_number(status, NIXL_ERR_REMOTE_DISCONNECT);
	check_number(agent.finish(handle, agent.post(handle)), NIXL_ERR_REMOTE_DISCONNECT);
	check_number(agent.engine->genNotif("two", "x"), NIXL_ERR_REMOTE_DISCONNECT);
	agent.release(handle);
	agent.unload(there);
	check_number(agent.engine->disconnect("two"), NIXL_SUCCESS);

	there = load_remote(agent, successor);
	fill(memory, 9);
	copy_pieces(expected, memory, pieces);
	check_number(agent.prepare(NIXL_WRITE, local, there, pieces, "two", handle), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle, "new")), NIXL_SUCCESS);
	check_report(successor, agent, "new", expected);
	agent.release(handle);
	agent.unload(there);
	agent.remove(local);
	end_remote(successor);
}

/* Puts a proxy in front of the agent: the first of two addresses of its connection information. */
static std::string through_proxy(const std::string &info)
{
	peerlane_nixl::agent_card card;

	check(peerlane_nixl::decode(info, card));
	card.addresses.insert(card.addresses.begin(), cut_start(card.addresses[0].c_str()));
	return peerlane_nixl::encode(card);
}

/* The connection breaks and both processes live: the plugin connects again by another address, and nothing fails. */
static void test_reconnect(void *)
{
	nixl_b_params_t parameters = parameters_of("fabric=tcp");
	std::vector<char> memory(LENGTH), expected(LENGTH);
	std::vector<piece> pieces = scattered();
	remote_process remote = start_remote("two", parameters, LENGTH);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), LENGTH);
	nixlBackendReqH *handle;

	remote.info = through_proxy(remote.info);
	range there = load_remote(agent, remote);
	check_number(agent.prepare(NIXL_WRITE, local, there, pieces, "two", handle), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle, "first")), NIXL_SUCCESS);
	next_report(remote, agent);
	process_stop(remote.pid);
	fill(memory, 3);
	copy_pieces(expected, memory, pieces);
	check_number(agent.post(handle), NIXL_IN_PROG);
	check_number(agent.engine->checkXfer(handle), NIXL_IN_PROG);
	cut_end();
	kill(remote.pid, SIGCONT);
	check_number(agent.finish(handle, NIXL_IN_PROG), NIXL_SUCCESS);
	check_number(agent.engine->genNotif("two", "second"), NIXL_SUCCESS);
	check_report(remote, agent, "second", expected);
	agent.release(handle);
	agent.unload(there);
	agent.remove(local);
	end_remote(remote);
}

static void flip_bytes(stand_in &agent, const std::string &blob, const std::string &called, const range *there)
{
	for (size_t at = 0; at < blob.size(); at += 3) {
		std::string damaged = blob;
		damaged[at] = (char)(damaged[at] ^ (1 << at % 8));
		range out;
		nixl_status_t status = there ? agent.load(called, damaged, there->address, there->length, out)
					     : agent.engine->loadRemoteConnInfo(called, damaged);
		check_number(status, NIXL_ERR_MISMATCH);
	}
}

/* Damaged and foreign blobs, and wrong lists, are refused. */
static void test_wrong(void *)
{
	nixl_b_params_t parameters = parameters_of("fabric=tcp");
	std::vector<char> memory(LENGTH);
	remote_process remote = start_remote("two", parameters, LENGTH);
	stand_in agent("one", parameters);
	range local = agent.add(memory.data(), LENGTH), there = load_remote(agent, remote), out;
	range self = agent.add_self(local);
	nixlBackendReqH *handle = nullptr;
	nixlBackendMD *none = nullptr;

	flip_bytes(agent, remote.info, "three", nullptr);
	flip_bytes(agent, remote.data, "two", &there);
	check_number(agent.engine->loadRemoteConnInfo("three", ""), NIXL_ERR_MISMATCH);
	check_number(agent.engine->loadRemoteConnInfo("three", remote.data), NIXL_ERR_MISMATCH);
	check_number(agent.load("two", remote.info, there.address, LENGTH, out), NIXL_ERR_MISMATCH);
	check_number(agent.load("two", remote.data, there.address + 1, LENGTH, out), NIXL_ERR_MISMATCH);
	check_number(agent.load("three", remote.data, there.address, LENGTH, out), NIXL_ERR_NOT_FOUND);
	check_number(agent.engine->connect("three"), NIXL_ERR_NOT_FOUND);
	check_number(agent.prepare(NIXL_READ, local, there, {}, "two", handle), NIXL_ERR_INVALID_PARAM);
	check_number(agent.prepare(NIXL_READ, local, there, { { 1, 0, LENGTH } }, "two", handle),
		     NIXL_ERR_INVALID_PARAM);
	check_number(agent.prepare(NIXL_READ, local, there, { { 0, LENGTH, 1 } }, "two", handle),
		     NIXL_ERR_INVALID_PARAM);
	check_number(agent.prepare(NIXL_READ, local, self, { { 0, 0, 1 } }, "two", handle), NIXL_ERR_INVALID_PARAM);
	check_number(agent.prepare(NIXL_READ, there, local, { { 0, 0, 1 } }, "two", handle), NIXL_ERR_INVALID_PARAM);
	check_number(agent.prepare(NIXL_READ, local, there, { { 0, 0, 1 } }, "three", handle), NIXL_ERR_NOT_FOUND);
	check_number(agent.engine->registerMem(nixlBlobDesc((uintptr_t)memory.data(), LENGTH, 0), VRAM_SEG, none),
		     NIXL_ERR_MISMATCH);
	check_number(agent.engine->registerMem(nixlBlobDesc((uintptr_t)memory.data(), 0, 0), DRAM_SEG, none),
		     NIXL_ERR_INVALID_PARAM);
	check_number(agent.engine->genNotif("two", std::string((64u << 20) + 1, 'x')), NIXL_ERR_INVALID_PARAM);
	agent.unload(self);
	agent.unload(there);
	agent.remove(local);
	end_remote(remote);
	for (const char *bad : { "fabric=nothing", "workers=0", "insecure=2", "progress=never", "key_file=/nowhere" }) {
		stand_in broken("bad", parameters_of(bad));
		check(broken.engine->getInitErr());
	}
}

/* GPU memory at either end, and at both. */
static void test_gpu(void *argument)
{
	nixl_b_params_t parameters = parameters_of((const char *)argument);
	std::vector<piece> pieces = { { 0, 65536, 4096 }, { 12288, 0, 8192 }, { 40000, 100000, 1 } };
	std::vector<char> memory(LENGTH), back(LENGTH), expected(LENGTH);
	nixlBackendMD *none = nullptr;
	nixlBackendReqH *handle;

	if (!gpu_open("alloc"))
		exit(SKIPPED);
	void *from = gpu_allocate(LENGTH), *to = gpu_allocate(LENGTH);
	{
		stand_in agent("one", parameters), other("two", parameters);
		range local = agent.add(from, LENGTH, VRAM_SEG), host = agent.add(back.data(), LENGTH), there;
		range own = other.add(to, LENGTH, VRAM_SEG);
		check_number(agent.engine->registerMem(nixlBlobDesc((uintptr_t)from, LENGTH, 0), DRAM_SEG, none),
			     NIXL_ERR_MISMATCH);
		check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
		check_number(agent.load("two", other.public_data(own), own.address, LENGTH, there), NIXL_ERR_MISMATCH);
		there.kind = VRAM_SEG;
		check_number(agent.load("two", other.public_data(own), own.address, LENGTH, there), NIXL_SUCCESS);
		fill(memory, 7);
		gpu_copy_in(from, memory.data(), LENGTH);
		copy_pieces(expected, memory, pieces);
		gpu_copy_in(to, back.data(), LENGTH);
		check_number(agent.prepare(NIXL_WRITE, local, there, pieces, "two", handle), NIXL_SUCCESS);
		check_number(agent.finish(handle, agent.post(handle, "on the GPU")), NIXL_SUCCESS);
		check_number(other.notice().second.size(), 10);
		gpu_copy_out(to, back.data(), LENGTH);
		check(back == expected);
		agent.release(handle);
		std::fill(back.begin(), back.end(), 0);
		check_number(agent.prepare(NIXL_READ, host, there, { { 5, 65536, 4096 } }, "two", handle), NIXL_SUCCESS);
		check_number(agent.finish(handle, agent.post(handle)), NIXL_SUCCESS);
		check(!memcmp(&back[5], &memory[0], 4096));
		agent.release(handle);
		agent.unload(there);
		agent.remove(local);
		agent.remove(host);
		other.remove(own);
	}
	gpu_free(from);
	gpu_free(to);
}

int main()
{
	const struct test_case cases[] = {
		{ "transfers_tcp", test_transfers, "fabric=tcp", 30 },
		{ "transfers_local", test_transfers, "fabric=local", 30 },
		{ "transfers_manual", test_transfers, "fabric=tcp progress=manual", 30 },
		{ "many", test_many, nullptr, 60 },
		{ "answers", test_answers, nullptr, 30 },
		{ "self_tcp", test_self, "fabric=tcp", 30 },
		{ "self_local", test_self, "fabric=local", 30 },
		{ "failure_tcp", test_failure, "fabric=tcp", 30 },
		{ "failure_local", test_failure, "fabric=local", 30 },
		{ "release_tcp", test_release, "fabric=tcp", 30 },
		{ "release_local", test_release, "fabric=local", 30 },
		{ "busy_read", test_busy, nullptr, 30 },
		{ "busy_write", test_busy, "write", 30 },
		{ "ending", test_ending, nullptr, 30 },
		{ "slow_close", test_slow_close, nullptr, 60 },
		{ "death_tcp", test_death, "fabric=tcp", 30 },
		{ "death_local", test_death, "fabric=local", 30 },
		{ "reconnect", test_reconnect, nullptr, 30 },
		{ "wrong", test_wrong, nullptr, 30 },
		{ "announcements", test_announcements, nullptr, 30 },
		{ "notice_memory", test_notice_memory, nullptr, 60 },
		{ "departed", test_departed, nullptr, 30 },
		{ "leaving", test_leaving, nullptr, 60 },
		{ "identities", test_identities, nullptr, 60 },
		{ "false_name", test_false_name, nullptr, 30 },
		{ "keys", test_keys, nullptr, 60 },
		{ "variables", test_variables, nullptr, 60 },
		{ "no_memory", test_no_memory, nullptr, 30 },
		{ "no_memory_list", test_no_memory_list, nullptr, 30 },
		{ "gpu_tcp", test_gpu, "fabric=tcp", 30 },
		{ "gpu_local", test_gpu, "fabric=local", 30 },
		{ "threads_tcp", test_threads, "fabric=tcp", 30 },
		{ "threads_local", test_threads, "fabric=local", 30 },
		{ "disconnects_tcp", test_disconnects, "fabric=tcp", 30 },
		{ "disconnects_local", test_disconnects, "fabric=local", 30 },
	};

	return cases_run("nixl", cases, sizeof(cases) / sizeof(cases[0]));
}
