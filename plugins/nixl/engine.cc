/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine: its context and listener, registered memory, and the agents it knows. */
#include <cerrno>
#include <chrono>
#include <cstring>

#include <sys/eventfd.h>
#include <unistd.h>

#include "engine.h"

namespace peerlane_nixl
{
namespace
{

constexpr size_t PROOF_SIZE = 64;
constexpr int ACCEPTS = 16;
constexpr int DEREGISTER_ATTEMPTS = 1000;

int share_region(pl_region *region, unsigned rights, std::string &token, pl_error &error)
{
	pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
	size_t length = PL_TOKEN_MAX;
	int status;

	grant.rights = rights;
	token.resize(length);
	status = pl_region_share(region, &grant, token.data(), &length, &error);
	token.resize(status == 0 ? length : 0);
	return status;
}

} // namespace

int engine::listen(const settings &with, pl_error &error)
{
	char address[128];
	agent_card card;
	int status = pl_listen(context, with.address.c_str(), &listener, &error);

	if (status == 0)
		status = pl_region_allocate(context, PROOF_SIZE, PL_ACCESS_READ, &proof, &error);
	if (status == 0)
		status = share_region(proof, PL_ACCESS_READ, card.token, error);
	if (status < 0)
		return status;
	pl_listener_address(listener, address, sizeof(address));
	card.addresses = reachable_addresses(address);
	conn_info = encode(card);
	agents[name] = std::make_shared<agent>(*this, name, card);
	return 0;
}

int engine::open(const parameters &given)
{
	pl_error error = {};
	int status = options.read(given);

	if (status < 0)
		return status;
	if (name.empty() || name.size() >= PL_NOTIFY_DATA_MAX) {
		warn("the agent's name has %zu bytes; 1 to %d are possible", name.size(), PL_NOTIFY_DATA_MAX - 1);
		return -EINVAL;
	}
	options.apply();
	status = pl_open(&context, &options.options, &error);
	if (status == 0)
		status = listen(options, error);
	if (status < 0) {
		warn_error("cannot open the engine", error);
		return status;
	}
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	/* Several, so that an agent's first notifications do not wait until others were accepted. */
	for (int i = 0; i < ACCEPTS; i++)
		accept_next();
	if (options.options.progress == PL_PROGRESS_THREAD)
		events = std::thread(&engine::run_events, this);
	return 0;
}

engine::~engine()
{
	std::unordered_map<std::string, std::shared_ptr<agent>> known;
	{
		std::lock_guard<std::mutex> lock(mutex);
		stopping = true;
		collected.notify_all();
		known.swap(agents);
	}
	if (events.joinable()) {
		uint64_t one = 1;
		if (write(wake_fd, &one, sizeof(one)) < 0)
			warn("cannot wake the thread of events: %s", strerror(errno));
		events.join();
	}
	for (const auto &each : known)
		each.second->close();
	for (const auto &each : live_requests())
		each->abandon();
	free_events();
	/* Sends what waits for all agents, in the time of one. */
	if (context)
		pl_close(context);
	if (wake_fd >= 0)
		close(wake_fd);
}

int engine::register_memory(uint64_t address, uint64_t length, bool gpu, std::shared_ptr<memory> &out)
{
	auto fresh = std::make_shared<memory>();
	pl_error error = {};
	unsigned access = PL_ACCESS_READ | PL_ACCESS_WRITE;
	int status =
		pl_region_register(context, reinterpret_cast<void *>(address), length, access, &fresh->region, &error);

	if (status < 0) {
		warn_error("cannot register memory", error);
		return status;
	}
	bool is_gpu = strcmp(pl_region_memory(fresh->region), "cuda") == 0;
	fresh->card = { address, length, gpu, "" };
	if (is_gpu != gpu) {
		warn("memory at 0x%llx is %s memory, but registered as %s", (unsigned long long)address,
		     is_gpu ? "GPU" : "host", gpu ? "VRAM_SEG" : "DRAM_SEG");
		status = -EXDEV;
	} else {
		status = share_region(fresh->region, access, fresh->card.token, error);
		if (status < 0)
			warn_error("cannot share memory", error);
	}
	if (status < 0)
		pl_region_deregister(fresh->region);
	else
		out = std::move(fresh);
	return status;
}

int engine::deregister_memory(const memory &gone)
{
	int status;

	free_retired();
	for (const auto &each : live_requests())
		each->revoke(gone);
	/* A request that was released meanwhile may still have the region in a vector, for an instant. */
	for (int i = 0; i < DEREGISTER_ATTEMPTS; i++) {
		status = pl_region_deregister(gone.region);
		if (status != -EBUSY)
			return status;
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	/* The region outlives its metadata, but no agent reaches the memory any more. */
	pl_region_revoke(gone.region, gone.card.token.data(), gone.card.token.size());
	warn("memory at 0x%llx is in use, and must stay allocated", (unsigned long long)gone.card.address);
	std::lock_guard<std::mutex> lock(mutex);
	retired.push_back(gone.region);
	return status;
}

/* Ends registrations whose last user has gone. */
void engine::free_retired()
{
	std::lock_guard<std::mutex> lock(mutex);

	for (size_t i = retired.size(); i-- > 0;)
		if (pl_region_deregister(retired[i]) == 0)
			retired.erase(retired.begin() + (ptrdiff_t)i);
}

int engine::load_agent(const std::string &called, const std::string &info)
{
	agent_card card;
	std::shared_ptr<agent> old;

	if (!decode(info, card)) {
		warn("the connection information of agent %s is damaged, or of another release", called.c_str());
		return -EBADMSG;
	}
	if (called == name)
		return info == conn_info ? 0 : -EPERM;
	{
		std::lock_guard<std::mutex> lock(mutex);
		std::shared_ptr<agent> &place = agents[called];
		old = std::move(place);
		place = std::make_shared<agent>(*this, called, std::move(card));
	}
	if (old)
		old->close();
	return 0;
}

std::shared_ptr<agent> engine::find_agent(const std::string &called)
{
	std::lock_guard<std::mutex> lock(mutex);
	auto found = agents.find(called);

	return found == agents.end() ? nullptr : found->second;
}

void engine::disconnect(const std::string &called)
{
	std::shared_ptr<agent> old;

	if (called == name)
		return;
	{
		std::lock_guard<std::mutex> lock(mutex);
		auto found = agents.find(called);
		if (found == agents.end())
			return;
		old = std::move(found->second);
		agents.erase(found);
	}
	old->close();
}

int engine::load_memory(const std::string &called, const std::string &public_data, bool gpu, uint64_t address,
			uint64_t length, std::shared_ptr<remote_memory> &out)
{
	std::shared_ptr<agent> owner = find_agent(called);
	memory_card card;

	if (!owner)
		return -ENOENT;
	if (!decode(public_data, card)) {
		warn("the metadata of memory of agent %s is damaged, or of another release", called.c_str());
		return -EBADMSG;
	}
	if (card.gpu != gpu || address < card.address || address - card.address > card.length ||
	    length > card.length - (address - card.address)) {
		warn("the metadata of memory of agent %s belong to another range", called.c_str());
		return -EBADMSG;
	}
	out = std::make_shared<remote_memory>(std::move(owner), std::move(card));
	return 0;
}

std::shared_ptr<request> engine::new_request(std::shared_ptr<agent> to, bool write)
{
	auto fresh = std::make_shared<request>(*this, std::move(to), write);
	std::lock_guard<std::mutex> lock(mutex);

	requests[fresh.get()] = fresh;
	return fresh;
}

void engine::forget_request(request *gone)
{
	std::lock_guard<std::mutex> lock(mutex);

	requests.erase(gone);
}

std::vector<std::shared_ptr<request>> engine::live_requests()
{
	std::lock_guard<std::mutex> lock(mutex);
	std::vector<std::shared_ptr<request>> live;

	for (const auto &each : requests) {
		if (auto held = each.second.lock())
			live.push_back(std::move(held));
	}
	return live;
}

} // namespace peerlane_nixl
