/* SPDX-License-Identifier: BSD-2-Clause */
#include "stand_in.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t PATIENCE = hang_seconds(10) * SECOND;
static constexpr size_t ANSWER_MAX = 65536;

nixl_b_params_t parameters_of(const char *text)
{
	nixl_b_params_t parameters;
	std::string all = text, word;

	for (size_t at = 0; at < all.size();) {
		size_t end = std::min(all.find(' ', at), all.size());
		word = all.substr(at, end - at);
		parameters[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
		at = end + 1;
	}
	/* Cases run over the stand-in card, too. */
	if (const char *fabric = getenv("NIXL_TEST_FABRIC"))
		parameters["fabric"] = fabric;
	return parameters;
}

stand_in::stand_in(const std::string &called, nixl_b_params_t parameters) : name(called)
{
	const char *path = getenv("NIXL_PLUGIN");
	nixlBackendInitParams params;
	std::string none;

	check(path);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library)
		check_failed(__FILE__, __LINE__, "%s", dlerror());
	auto init = reinterpret_cast<nixlBackendPlugin *(*)()>(dlsym(library, "nixl_plugin_init"));
	check(init && dlsym(library, "nixl_plugin_fini"));
	plugin = init();
	check_number(plugin->api_version, 1);
	check_text(plugin->get_plugin_name(), "PEERLANE");
	params.localAgent = name;
	params.type = "PEERLANE";
	params.customParams = &parameters;
	engine = plugin->create_engine(&params);
	check(engine);
	if (engine->getInitErr())
		return;
	check(engine->supportsRemote() && engine->supportsLocal() && engine->supportsNotif());
	check_number(engine->getConnInfo(none), NIXL_SUCCESS);
	check(!none.empty());
	check_number(engine->connect(name), NIXL_SUCCESS);
}

stand_in::~stand_in()
{
	plugin->destroy_engine(engine);
}

std::string stand_in::info() const
{
	std::string text;

	check_number(engine->getConnInfo(text), NIXL_SUCCESS);
	return text;
}

range stand_in::add(void *memory, size_t length, nixl_mem_t kind)
{
	range fresh;
	nixlBlobDesc description(reinterpret_cast<uintptr_t>(memory), length, 0);

	fresh.address = description.addr;
	fresh.length = length;
	fresh.kind = kind;
	check_number(engine->registerMem(description, kind, fresh.metadata), NIXL_SUCCESS);
	return fresh;
}

void stand_in::remove(range &gone)
{
	check_number(engine->deregisterMem(gone.metadata), NIXL_SUCCESS);
	gone.metadata = nullptr;
}

std::string stand_in::public_data(const range &local) const
{
	std::string text;

	check_number(engine->getPublicData(local.metadata, text), NIXL_SUCCESS);
	return text;
}

range stand_in::add_self(const range &local)
{
	range self = local;

	check_number(engine->loadLocalMD(local.metadata, self.metadata), NIXL_SUCCESS);
	return self;
}

nixl_status_t stand_in::load(const std::string &agent, const std::string &blob, uintptr_t address, size_t length,
			     range &out)
{
	nixlBlobDesc description(address, length, 0);

	description.metaInfo = blob;
	out.address = address;
	out.length = length;
	return engine->loadRemoteMD(description, out.kind, agent, out.metadata);
}

void stand_in::unload(range &gone)
{
	check_number(engine->unloadMD(gone.metadata), NIXL_SUCCESS);
	gone.metadata = nullptr;
}

nixl_status_t stand_in::prepare(nixl_xfer_op_t operation, const range &local, const range &remote,
				const std::vector<piece> &pieces, const std::string &agent, nixlBackendReqH *&out)
{
	nixl_meta_dlist_t from(local.kind), to(remote.kind);

	for (const piece &each : pieces) {
		nixlMetaDesc here(local.address + each.from, each.length, 0);
		nixlMetaDesc there(remote.address + each.to, each.length, 0);
		here.metadataP = local.metadata;
		there.metadataP = remote.metadata;
		from.addDesc(here);
		to.addDesc(there);
	}
	return engine->prepXfer(operation, from, to, agent, out);
}

nixl_status_t stand_in::post(nixlBackendReqH *&handle)
{
	nixl_meta_dlist_t none(DRAM_SEG);

	return engine->postXfer(NIXL_WRITE, none, none, "", handle);
}

nixl_status_t stand_in::post(nixlBackendReqH *&handle, const std::string &notice)
{
	nixl_meta_dlist_t none(DRAM_SEG);
	nixl_opt_b_args_t options;

	options.hasNotif = true;
	options.notifMsg = notice;
	return engine->postXfer(NIXL_WRITE, none, none, "", handle, &options);
}

nixl_status_t stand_in::finish(nixlBackendReqH *handle, nixl_status_t status)
{
	uint64_t end = clock_now() + PATIENCE;

	while (status == NIXL_IN_PROG) {
		check(clock_now() < end);
		sleep_ms(0);
		status = engine->checkXfer(handle);
	}
	return status;
}

void stand_in::release(nixlBackendReqH *handle)
{
	nixl_status_t status = engine->releaseReqH(handle);

	if (status != NIXL_SUCCESS)
		status = engine->releaseReqH(handle);
	check_number(status, NIXL_SUCCESS);
}

bool stand_in::has_notice()
{
	if (arrived.empty())
		check_number(engine->getNotifs(arrived), NIXL_SUCCESS);
	return !arrived.empty();
}

std::pair<std::string, std::string> stand_in::notice()
{
	uint64_t end = clock_now() + PATIENCE;

	while (!has_notice()) {
		check(clock_now() < end);
		sleep_ms(0);
	}
	auto first = arrived.front();
	arrived.erase(arrived.begin());
	return first;
}

__attribute__((no_sanitize("thread"))) uint64_t hash_bytes(const void *bytes, size_t length)
{
	const char *at = static_cast<const char *>(bytes);
	uint64_t hash = 14695981039346656037ull + length, word;

	for (; length >= 8; length -= 8, at += 8) {
		memcpy(&word, at, 8);
		hash = (hash ^ word) * 1099511628211ull;
	}
	while (length--)
		hash = (hash ^ (unsigned char)*at++) * 1099511628211ull;
	return hash;
}

std::string notice_of(size_t length)
{
	std::string text(length, '\0');

	for (size_t i = 0; i < length; i++)
		text[i] = (char)(i * 31 + length);
	return text;
}

static void send_text(int fd, const std::string &text)
{
	check(send(fd, text.data(), text.size(), MSG_NOSIGNAL) == (ssize_t)text.size());
}

/* Handles a command of the parent. Returns false at the end. */
static bool obey(stand_in &agent, range &own, int fd, const std::string &text)
{
	std::istringstream words(text);
	std::string verb, other;
	size_t length;

	words >> verb >> other;
	if (verb == "q")
		return false;
	if (verb == "v") {
		send_text(fd, std::to_string(hash_bytes(reinterpret_cast<void *>(own.address), own.length)));
	} else if (verb == "r") {
		agent.remove(own);
		send_text(fd, "removed");
	} else if (verb == "g") {
		words >> length;
		send_text(fd, std::to_string(agent.engine->genNotif(other, notice_of(length))));
	} else {
		std::string blob = text.substr(verb.size() + other.size() + 2);
		send_text(fd, std::to_string(agent.engine->loadRemoteConnInfo(other, blob)));
	}
	return true;
}

static void serve(const std::string &name, const nixl_b_params_t &parameters, size_t length, int fd)
{
	std::vector<char> memory(length);
	stand_in agent(name, parameters);
	range own = agent.add(memory.data(), length);
	char text[4096];

	send_text(fd, agent.info());
	send_text(fd, agent.public_data(own));
	send_text(fd, std::to_string(own.address));
	for (;;) {
		pollfd ready = { fd, POLLIN, 0 };
		if (poll(&ready, 1, 0) == 1) {
			ssize_t got = recv(fd, text, sizeof(text), 0);
			if (got <= 0 || !obey(agent, own, fd, std::string(text, (size_t)got)))
				break;
		}
		while (agent.has_notice()) {
			auto each = agent.notice();
			std::ostringstream line;
			line << "N " << each.first << ' ' << each.second.size() << ' '
			     << hash_bytes(each.second.data(), each.second.size()) << ' '
			     << hash_bytes(memory.data(), memory.size());
			send_text(fd, line.str());
		}
		sleep_ms(1);
	}
	if (own.metadata)
		agent.remove(own);
}

remote_process start_remote(const std::string &name, const nixl_b_params_t &parameters, size_t length)
{
	remote_process remote;
	int pair[2];

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	remote.pid = process_fork();
	if (remote.pid == 0) {
		close(pair[0]);
		serve(name, parameters, length, pair[1]);
		exit(0);
	}
	close(pair[1]);
	remote.fd = pair[0];
	remote.name = name;
	remote.length = length;
	remote.info = answer(remote);
	remote.data = answer(remote);
	remote.address = std::stoull(answer(remote));
	return remote;
}

void command(remote_process &remote, const std::string &text)
{
	send_text(remote.fd, text);
}

std::string answer(remote_process &remote)
{
	std::string text(ANSWER_MAX, '\0');
	pollfd ready = { remote.fd, POLLIN, 0 };

	check_number(poll(&ready, 1, (int)(PATIENCE / MS)), 1);
	ssize_t got = recv(remote.fd, text.data(), text.size(), 0);
	check(got > 0);
	text.resize((size_t)got);
	return text;
}

report next_report(remote_process &remote, stand_in &agent)
{
	pollfd ready = { remote.fd, POLLIN, 0 };
	uint64_t end = clock_now() + PATIENCE;

	while (poll(&ready, 1, 1) == 0) {
		check(clock_now() < end);
		agent.has_notice();
	}
	std::istringstream words(answer(remote));
	std::string verb;
	report next;

	words >> verb >> next.sender >> next.length >> next.hash >> next.range_hash;
	check_text(verb.c_str(), "N");
	return next;
}

void end_remote(remote_process &remote)
{
	send_text(remote.fd, "q");
	check_number(process_wait(remote.pid), 0);
	close(remote.fd);
}

range load_remote(stand_in &agent, const remote_process &remote)
{
	range there;

	check_number(agent.engine->loadRemoteConnInfo(remote.name, remote.info), NIXL_SUCCESS);
	check_number(agent.load(remote.name, remote.data, remote.address, remote.length, there), NIXL_SUCCESS);
	return there;
}
