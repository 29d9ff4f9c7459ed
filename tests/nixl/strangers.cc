/* SPDX-License-Identifier: BSD-2-Clause */
#include "strangers.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <peerlane/peerlane.h>

#include "stand_in.h"
#include "wire.h"

extern "C" {
#include "support/cases.h"
}

static void check_notice(stand_in &agent, const char *expected)
{
	std::string notice = agent.notice().second;

	check_text(notice.c_str(), expected);
}

/* -- a process without memory --------------------------------------------------------------------- */

/* Allocations of this size and up to twice of it fail. 0: none does. */
static std::atomic<size_t> failing_size;
static std::atomic<unsigned> failures;

__attribute__((noinline)) void *operator new(size_t size)
{
	size_t failing = failing_size;

	if (failing && size >= failing && size < 2 * failing) {
		failures++;
		throw std::bad_alloc();
	}
	void *memory = malloc(size ? size : 1);
	if (!memory)
		throw std::bad_alloc();
	return memory;
}

__attribute__((noinline)) void operator delete(void *memory) noexcept
{
	free(memory);
}

__attribute__((noinline)) void operator delete(void *memory, size_t) noexcept
{
	free(memory);
}

static nixl_b_params_t parameters()
{
	return { { "fabric", "tcp" } };
}

/* The receiver's thread waits 10 ms between two attempts, although another event has arrived. A slow machine makes fewer attempts. */
static void check_pauses()
{
	uint64_t begin = clock_now();
	unsigned before = failures;

	sleep_ms(200);
	check(failures - before <= 2 * ((clock_now() - begin) / 10000000 + 1));
}

/* Sends a notification for which the receiver has no memory at first. It arrives once there is memory. */
static void check_kept(stand_in &agent, stand_in &other, const std::string &notice)
{
	failures = 0;
	/* The sender allocates no such string. */
	failing_size = notice.size() - 1;
	check_number(agent.engine->genNotif("two", notice), NIXL_SUCCESS);
	/* The second failure is that of another attempt. */
	while (failures < 2)
		check(!other.has_notice());
	check_number(agent.engine->genNotif("two", "after"), NIXL_SUCCESS);
	check_pauses();
	failing_size = 0;
	check(other.notice().second == notice);
	check_notice(other, "after");
}

/* The threads of an engine survive, and notifications without memory arrive later. */
void test_no_memory(void *)
{
	std::string name(3000, 'n');
	name.resize(900);
	stand_in agent(name, parameters()), other("two", parameters());

	check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
	failing_size = 899;
	check(agent.engine->connect("two") != NIXL_SUCCESS);
	failing_size = 0;
	check_number(agent.engine->connect("two"), NIXL_SUCCESS);
	check_number(agent.engine->genNotif("two", "before"), NIXL_SUCCESS);
	check_notice(other, "before");
	check_kept(agent, other, std::string(1000, 's'));
	check_kept(agent, other, std::string(700000, 'x'));
}

/* Notifications for which the list of the caller has no room stay, all of them and in their order. */
void test_no_memory_list(void *)
{
	constexpr size_t BEFORE = 1000, COUNT = 20;
	stand_in agent("one", parameters()), other("two", parameters());
	notif_list_t list;

	check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
	for (size_t i = 0; i < COUNT; i++)
		check_number(agent.engine->genNotif("two", std::to_string(i)), NIXL_SUCCESS);
	/* Most have arrived before the first call. */
	std::this_thread::sleep_for(std::chrono::milliseconds(50));
	list.reserve(BEFORE + 1);
	list.resize(BEFORE);
	failing_size = sizeof(list[0]) * (BEFORE + 2);
	while (list.size() < BEFORE + COUNT)
		if (other.engine->getNotifs(list) != NIXL_SUCCESS)
			failing_size = 0;
	failing_size = 0;
	for (size_t i = 0; i < COUNT; i++)
		check(list[BEFORE + i].second == std::to_string(i));
}

/* -- a process that stands still ------------------------------------------------------------------ */

/* A deregistration in the middle of a transfer ends it: what the other process sends later is not written. */
void test_busy(void *argument)
{
	bool write = argument != nullptr;
	const size_t length = 8 << 20;
	std::vector<char> memory(length);
	remote_process remote = start_remote("two", parameters(), length);
	stand_in agent("one", parameters());
	range local = agent.add(memory.data(), length), there = load_remote(agent, remote);
	nixlBackendReqH *handle;

	check_number(agent.prepare(write ? NIXL_WRITE : NIXL_READ, local, there, { { 0, 0, length } }, "two", handle),
		     NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle)), NIXL_SUCCESS);
	process_stop(remote.pid);
	check_number(agent.post(handle), NIXL_IN_PROG);
	check_number(agent.engine->checkXfer(handle), NIXL_IN_PROG);
	agent.remove(local);
	memset(memory.data(), 0x55, length);
	check_number(agent.engine->checkXfer(handle), NIXL_ERR_CANCELED);
	kill(remote.pid, SIGCONT);
	check_number(agent.engine->genNotif("two", notice_of(3)), NIXL_SUCCESS);
	check_number(next_report(remote, agent).length, 3);
	check(std::all_of(memory.begin(), memory.end(), [](char each) { return each == 0x55; }));
	check_number(agent.post(handle), NIXL_ERR_NOT_FOUND);
	agent.release(handle);
	agent.unload(there);
	end_remote(remote);
}

/* Gates of the local fabric: one in each 64 bytes, the number of its key, and the count of copies that use it. */
struct gate {
	std::atomic<uint32_t> open, holders;
	uint32_t rest[14];
};

/* Returns the gates of all connections that are shut, in mappings of their own, which outlive the connections. */
static std::vector<gate *> shut_gates()
{
	std::ifstream maps("/proc/self/maps");
	std::vector<gate *> gates;
	std::string line;

	while (std::getline(maps, line)) {
		constexpr size_t PAGE = 4096; /* the file is sparse, and this process has shared few keys */
		unsigned long from;
		if (line.find("memfd:peerlane-gates") == std::string::npos || sscanf(line.c_str(), "%lx-", &from) != 1)
			continue;
		void *copy = mremap(reinterpret_cast<void *>(from), 0, PAGE, MREMAP_MAYMOVE);
		check(copy != MAP_FAILED);
		for (size_t at = 0; at < PAGE; at += sizeof(gate)) {
			auto *found = reinterpret_cast<gate *>(static_cast<char *>(copy) + at);
			if (!found->open)
				gates.push_back(found);
		}
	}
	return gates;
}

/* True if an agent collects notifications while it closes a connection to a process that was stopped in a copy. */
static bool collects_during_close()
{
	nixl_b_params_t local_fabric = { { "fabric", "local" } };
	remote_process remote = start_remote("two", local_fabric, 4096);
	stand_in agent("one", local_fabric);
	range there = load_remote(agent, remote);
	std::atomic<bool> done = false;
	std::vector<gate *> gates;
	gate *opened = nullptr;
	notif_list_t list;
	bool collected;

	check_number(agent.engine->connect("two"), NIXL_SUCCESS);
	process_stop(remote.pid);
	gates = shut_gates();
	/* Opens a gate: the other process copies a large message itself. */
	check_number(agent.engine->genNotif("two", std::string(1 << 20, 'x')), NIXL_SUCCESS);
	while (!opened)
		for (gate *each : gates)
			opened = each->open ? each : opened;
	opened->holders = 1;
	std::thread closing([&] {
		check_number(agent.engine->disconnect("two"), NIXL_SUCCESS);
		done = true;
	});
	while (opened->open)
		std::this_thread::yield();
	check_number(agent.engine->getNotifs(list), NIXL_SUCCESS);
	sleep_ms(20);
	collected = !done;
	opened->holders = 0;
	closing.join();
	agent.unload(there);
	process_kill(remote.pid, SIGKILL);
	return collected;
}

/* The close ends after 1 s at most, which a slow machine may spend elsewhere. */
void test_slow_close(void *)
{
	for (int attempt = 0; attempt < 10; attempt++)
		if (collects_during_close())
			return;
	check(!"notifications are collected while a connection is closed");
}

/* An agent that ends deregisters its memory first. Its end is the result of a transfer, not the deregistration. */
void test_ending(void *)
{
	nixl_b_params_t local_fabric = { { "fabric", "local" } };
	std::vector<char> memory(4096);
	remote_process remote = start_remote("two", local_fabric, 4096);
	stand_in agent("one", local_fabric);
	range local = agent.add(memory.data(), 4096), there = load_remote(agent, remote);
	nixlBackendReqH *handle, *released;

	check_number(agent.prepare(NIXL_WRITE, local, there, { { 0, 0, 4096 } }, "two", handle), NIXL_SUCCESS);
	check_number(agent.prepare(NIXL_READ, local, there, { { 0, 0, 4096 } }, "two", released), NIXL_SUCCESS);
	check_number(agent.finish(handle, agent.post(handle)), NIXL_SUCCESS);
	check_number(agent.finish(released, agent.post(released)), NIXL_SUCCESS);
	command(remote, "r");
	check(answer(remote) == "removed");
	/* The local fabric refuses the transfer without the help of the other process. */
	process_stop(remote.pid);
	nixl_status_t status = agent.post(handle, "never");
	for (int polls = 0; polls < 100 && status == NIXL_IN_PROG; polls++) {
		sleep_ms(1);
		status = agent.engine->checkXfer(handle);
	}
	check_number(status, NIXL_IN_PROG);
	check_number(agent.post(released), NIXL_IN_PROG);
	check_number(agent.engine->releaseReqH(released), NIXL_SUCCESS);
	process_kill(remote.pid, SIGKILL);
	check_number(agent.finish(handle, status), NIXL_ERR_REMOTE_DISCONNECT);
	agent.release(handle);
	agent.unload(there);
	agent.remove(local);
}

/* -- strangers ------------------------------------------------------------------------------------ */

/* An end that speaks the agents' protocol itself. */
struct stranger {
	pl_context *context;
	pl_listener *listener = nullptr;
	pl_peer *peer = nullptr;

	stranger()
	{
		pl_options options = PL_OPTIONS_INIT;
		options.fabric = "tcp";
		options.insecure = PL_ON;
		check_ok(pl_open(&context, &options, nullptr), nullptr);
	}
	~stranger() { pl_close(context); }

	void dial(const stand_in &agent)
	{
		peerlane_nixl::agent_card card;
		check(decode(agent.info(), card));
		check_ok(pl_connect(context, card.addresses[0].c_str(), 0, &peer, nullptr), nullptr);
	}
	void notify(unsigned kind, uint64_t rest, const std::string &data)
	{
		check_ok(pl_notify(peer, (uint64_t)kind << 56 | rest, data.data(), data.size(), nullptr, nullptr,
				   nullptr),
			 nullptr);
	}
	void hello(const std::string &name) { notify(1, 0, "\1" + name); }
	void announce(uint64_t tag, uint64_t length)
	{
		std::string bytes;
		for (int i = 0; i < 8; i++)
			bytes.push_back((char)(length >> 8 * i));
		notify(3, tag, bytes);
	}
};

/* Bytes of this process's mappings of memory that the library allocated. */
static size_t library_bytes()
{
	std::ifstream maps("/proc/self/maps");
	std::string line;
	size_t bytes = 0;

	while (std::getline(maps, line)) {
		unsigned long from, to;
		if (line.find("memfd:peerlane") != std::string::npos &&
		    sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2)
			bytes += to - from;
	}
	return bytes;
}

/* Announcements alone cost no memory beyond a limit of the connection; they delay no agent whose name their sender claims. */
void test_announcements(void *)
{
	stand_in agent("one", parameters()), other("two", parameters());
	size_t before = library_bytes();
	stranger liar;

	liar.dial(other);
	liar.hello("one");
	for (uint64_t tag = 1; tag <= 40; tag++)
		liar.announce(tag, 64u << 20);
	liar.notify(2, 0, "marker");
	check_notice(other, "marker");
	check(library_bytes() - before >= 64u << 20);
	check(library_bytes() - before <= 160u << 20);
	/* All that an honest agent sends at once arrives, in order. */
	check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
	for (int i = 0; i < 40; i++)
		check_number(agent.engine->genNotif("two", std::string(20000 + i, (char)('A' + i))), NIXL_SUCCESS);
	for (int i = 0; i < 40; i++)
		check(other.notice().second == std::string(20000 + i, (char)('A' + i)));
	/* A length that no agent has ends the connection. */
	liar.announce(41, (64u << 20) + 1);
	pl_peer_info info = PL_PEER_INFO_INIT;
	do {
		check(!other.has_notice());
		check_number(pl_peer_query(liar.peer, &info), 0);
	} while (info.connected);
}

/* Text that this process wrote to standard error since `file` took it over. */
static std::string error_text(const char *file)
{
	std::ifstream written(file);

	return { std::istreambuf_iterator<char>(written), {} };
}

/* Connections that announce together more than the engine's limit get memory up to it. Others wait, and have their turn. */
void test_notice_memory(void *)
{
	constexpr size_t MIB = 1 << 20;
	char file[] = "/tmp/test_nixl.XXXXXX";
	nixl_b_params_t small = parameters(), wrong = parameters();

	wrong["notification_memory"] = "63";
	check(stand_in("bad", wrong).engine->getInitErr());
	small["notification_memory"] = "128";
	stand_in agent("one", parameters()), other("two", small);
	size_t before = library_bytes();
	close(mkstemp(file));
	check(freopen(file, "w", stderr) && setvbuf(stderr, nullptr, _IONBF, 0) == 0);
	{
		stranger liars[4];
		for (stranger &each : liars) {
			each.dial(other);
			each.hello("liar");
			for (uint64_t tag = 1; tag <= 3; tag++)
				each.announce(tag, 64 * MIB);
			each.notify(2, 0, "marker");
		}
		for (int i = 0; i < 4; i++)
			check_notice(other, "marker");
		check(library_bytes() - before >= 128 * MIB);
		check(library_bytes() - before <= 160 * MIB);
		check(error_text(file).find("NIXL-NOTICE-MEMORY") != std::string::npos);
		/* Without memory it waits; a small one does not. */
		check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
		check_number(agent.engine->genNotif("two", std::string(20000, 'x')), NIXL_SUCCESS);
		check_number(agent.engine->genNotif("two", "small"), NIXL_SUCCESS);
		check_notice(other, "small");
		check(!other.has_notice());
	}
	check(other.notice().second == std::string(20000, 'x'));
	for (int i = 0; i < 3; i++)
		check_number(agent.engine->genNotif("two", std::string(64 * MIB, (char)('a' + i))), NIXL_SUCCESS);
	for (int i = 0; i < 3; i++)
		check(other.notice().second == std::string(64 * MIB, (char)('a' + i)));
	unlink(file);
}

/* Identities decide which agents connect, without a key: those of the file `authorized`, in both directions. */
void test_identities(void *)
{
	char folder[] = "/tmp/test_nixl.XXXXXX";

	if (!getenv("PEERLANE"))
		exit(SKIPPED);
	check(mkdtemp(folder) && chdir(folder) == 0);
	check_number(
		system("umask 077; for name in one two three; do \"$PEERLANE\" key generate $name.pem >$name.log && "
		       "\"$PEERLANE\" key show $name.pem >$name.print || exit 1; done; "
		       "for name in one two; do echo \"$(cat $name.print) read,write\"; done >authorized"),
		0);
	{
		auto with = [](const char *file) {
			return nixl_b_params_t{ { "fabric", "tcp" },
						{ "address", "127.0.0.1:0" },
						{ "identity", file },
						{ "authorized", "authorized" } };
		};
		stand_in one("one", with("one.pem")), two("two", with("two.pem")), three("three", with("three.pem"));
		for (stand_in *each : { &one, &three }) {
			check_number(each->engine->loadRemoteConnInfo("two", two.info()), NIXL_SUCCESS);
			check_number(each->engine->genNotif("two", each->name),
				     each == &one ? NIXL_SUCCESS : NIXL_ERR_REMOTE_DISCONNECT);
		}
		check_notice(two, "one");
		check_number(one.engine->loadRemoteConnInfo("three", three.info()), NIXL_SUCCESS);
		check(one.engine->connect("three") != NIXL_SUCCESS);
		check(!two.has_notice());
		nixl_b_params_t missing = with("nowhere.pem");
		check(stand_in("four", missing).engine->getInitErr());
	}
	check(chdir("/") == 0);
	check_number(system((std::string("rm -r ") + folder).c_str()), 0);
}

/* All notifications of an agent that has left already arrive. */
void test_departed(void *)
{
	stand_in other("two", parameters());
	{
		stand_in agent("one", parameters());
		check_number(agent.engine->loadRemoteConnInfo("two", other.info()), NIXL_SUCCESS);
		for (int i = 0; i < 40; i++)
			check_number(agent.engine->genNotif("two", std::string(2000 + i, (char)('A' + i))),
				     NIXL_SUCCESS);
		check(other.notice().second == std::string(2000, 'A'));
	}
	for (int i = 1; i < 40; i++)
		check(other.notice().second == std::string(2000 + i, (char)('A' + i)));
}

/* An agent that leaves many others, which take no notifications, waits once for all of them. */
void test_leaving(void *)
{
	/* More than a connection takes. */
	const int agents = 80, notices = 1100;
	stranger silent;
	pl_region *region;
	peerlane_nixl::agent_card card;
	char address[80], token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	uint64_t started;

	check_ok(pl_listen(silent.context, "127.0.0.1:0", &silent.listener, nullptr), nullptr);
	pl_listener_address(silent.listener, address, sizeof(address));
	check_ok(pl_region_allocate(silent.context, 64, PL_ACCESS_READ, &region, nullptr), nullptr);
	check_ok(pl_region_share(region, nullptr, token, &length, nullptr), nullptr);
	card.addresses = { address };
	card.token.assign(token, length);
	{
		stand_in agent("one", parameters());
		for (int i = 0; i < agents; i++) {
			std::string name = "silent " + std::to_string(i);
			check_number(agent.engine->loadRemoteConnInfo(name, encode(card)), NIXL_SUCCESS);
			for (int k = 0; k < notices; k++)
				check_number(agent.engine->genNotif(name, "n"), NIXL_SUCCESS);
		}
		started = clock_now();
	}
	check(clock_now() - started < SLACK);
}

/* An agent to which this one connects cannot speak in the name of another one. */
void test_false_name(void *)
{
	stand_in agent("one", parameters());
	stranger liar, honest;
	pl_region *region;
	peerlane_nixl::agent_card card;
	char address[80], token[PL_TOKEN_MAX];
	size_t length = sizeof(token);

	check_ok(pl_listen(liar.context, "127.0.0.1:0", &liar.listener, nullptr), nullptr);
	pl_listener_address(liar.listener, address, sizeof(address));
	check_ok(pl_region_allocate(liar.context, 64, PL_ACCESS_READ, &region, nullptr), nullptr);
	check_ok(pl_region_share(region, nullptr, token, &length, nullptr), nullptr);
	card.addresses = { address };
	card.token.assign(token, length);
	check_number(agent.engine->loadRemoteConnInfo("liar", encode(card)), NIXL_SUCCESS);
	check_number(agent.engine->connect("liar"), NIXL_SUCCESS);
	check_ok(pl_accept(liar.listener, 10000000000, &liar.peer, nullptr), nullptr);
	liar.hello("two");
	liar.notify(2, 0, "from two");
	honest.dial(agent);
	honest.hello("three");
	honest.notify(2, 0, "marker");
	check_notice(agent, "marker");
	std::this_thread::sleep_for(std::chrono::milliseconds(30));
	check(!agent.has_notice());
	check_number(agent.engine->disconnect("liar"), NIXL_SUCCESS);
}
