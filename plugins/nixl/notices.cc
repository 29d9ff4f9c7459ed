/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of the context: connections of other agents, and the notifications that arrive over them. A thread handles
 * them, so that agents need not be polled; take_notices() handles them, too, so that nothing waits for the thread.
 */
#include <cerrno>
#include <cstring>

#include <poll.h>

#include "engine.h"

namespace peerlane_nixl
{
namespace
{

constexpr int BATCH = 64;
/* With more uncollected notifications the engine takes no more, and their senders wait. */
constexpr size_t NOTICES_MAX = 1u << 20;
constexpr size_t NOTICE_BYTES_MAX = 1u << 30;

uint64_t read_length(const unsigned char *bytes)
{
	uint64_t length = 0;

	for (int i = 0; i < 8; i++)
		length |= (uint64_t)bytes[i] << 8 * i;
	return length;
}

} // namespace

void engine::run_events()
{
	pollfd wait[2] = { { pl_fd(context), POLLIN, 0 }, { wake_fd, POLLIN, 0 } };

	for (;;) {
		drain();
		wait_until_collected();
		{
			std::lock_guard<std::mutex> lock(mutex);
			if (stopping)
				return;
		}
		poll(wait, 2, -1);
	}
}

void engine::wait_until_collected()
{
	std::unique_lock<std::mutex> lock(mutex);

	while (!stopping && (notices.size() > NOTICES_MAX || notice_bytes > NOTICE_BYTES_MAX))
		wait_for_change(collected, lock);
}

void engine::drain()
{
	std::lock_guard<std::mutex> lock(drain_mutex);
	pl_completion completions[BATCH];
	int count;

	do {
		count = pl_poll(context, completions, BATCH);
		for (int i = 0; i < count; i++)
			handle(completions[i]);
	} while (count == BATCH);
	close_lost();
}

void engine::handle(pl_completion &completion)
{
	switch (completion.kind) {
	case PL_KIND_ACCEPT:
		if (completion.status == 0 && completion.peer) {
			inbound &fresh = peers[completion.peer];
			fresh.accepted = true;
		}
		if (completion.status != -ECANCELED)
			accept_next();
		break;
	case PL_KIND_LOST: {
		auto found = peers.find(completion.peer);
		if (found != peers.end())
			found->second.lost = true;
		break;
	}
	case PL_KIND_NOTIFIED:
		handle_notified(completion);
		pl_notification_free(context, &completion);
		break;
	case PL_KIND_RECEIVE:
		handle_received(completion);
		break;
	case PL_KIND_SEND:
		if (completion.status < 0)
			warn("a notification was not sent: %s", strerror(-completion.status));
		end_send(completion.user_data);
		break;
	default:
		break;
	}
}

void engine::accept_next()
{
	pl_error error = {};

	if (pl_accept_start(listener, 0, nullptr, &error) < 0)
		warn_error("cannot accept further agents", error);
}

void engine::handle_notified(const pl_completion &completion)
{
	const char *data = static_cast<const char *>(completion.data);
	auto kind = static_cast<notice_kind>(completion.value >> 56);

	if (!completion.peer)
		return;
	if (kind == notice_kind::hello) {
		if (completion.data_length < 2 || (uint8_t)data[0] != HELLO_VERSION) {
			warn("an agent of another release of the plugin has connected; its notifications are dropped");
			return;
		}
		inbound &sender = peers[completion.peer];
		sender.name.assign(data + 1, completion.data_length - 1);
		return;
	}
	auto sender = peers.find(completion.peer);
	if (sender == peers.end() || sender->second.name.empty())
		return;
	if (kind == notice_kind::small)
		deliver(sender->second.name, std::string(data ? data : "", completion.data_length));
	else if (kind == notice_kind::large && completion.data_length == 8)
		begin_receive(completion.peer, sender->second.name, completion);
}

void engine::begin_receive(pl_peer *peer, const std::string &sender, const pl_completion &completion)
{
	uint64_t length = read_length(static_cast<const unsigned char *>(completion.data));
	pl_attributes attributes = PL_ATTRIBUTES_INIT;
	pl_error error = {};
	pl_region *region;
	int status;

	if (length == 0 || length > NOTICE_MAX) {
		warn("agent %s announces a notification of %llu bytes, which is too long", sender.c_str(),
		     (unsigned long long)length);
		return;
	}
	status = pl_region_allocate(context, length, PL_ACCESS_LOCAL, &region, &error);
	if (status == 0) {
		pl_buffer buffer = { region, 0, length };
		attributes.user_data = ++receives_begun;
		status = pl_receive(peer, completion.value & ~notice_value(notice_kind(0xff)), UINT64_MAX, &buffer,
				    &attributes, nullptr, &error);
		if (status == 0)
			receives[attributes.user_data] = { sender, region };
		else
			pl_region_deregister(region);
	}
	if (status < 0)
		warn_error("cannot receive a notification of agent " + sender, error);
}

void engine::handle_received(const pl_completion &completion)
{
	auto found = receives.find(completion.user_data);

	if (found == receives.end())
		return;
	pl_region *region = found->second.region;
	if (completion.status == 0)
		deliver(found->second.name,
			std::string(static_cast<const char *>(pl_region_address(region)), completion.bytes));
	else
		warn("a notification of agent %s was lost: %s", found->second.name.c_str(),
		     strerror(-completion.status));
	receives.erase(found);
	pl_region_deregister(region);
}

/* Closes lost connections, after the notifications that came before their loss were handled. */
void engine::close_lost()
{
	for (auto each = peers.begin(); each != peers.end();) {
		if (each->second.accepted && each->second.lost) {
			pl_peer_close(each->first);
			each = peers.erase(each);
		} else {
			++each;
		}
	}
}

void engine::deliver(const std::string &sender, std::string bytes)
{
	std::lock_guard<std::mutex> lock(mutex);

	notice_bytes += bytes.size();
	notices.emplace_back(sender, std::move(bytes));
}

void engine::take_notices(std::vector<std::pair<std::string, std::string>> &list)
{
	drain();
	std::lock_guard<std::mutex> lock(mutex);
	for (auto &each : notices)
		list.push_back(std::move(each));
	notices.clear();
	notice_bytes = 0;
	collected.notify_all();
}

uint64_t engine::keep_send(pl_region *region)
{
	std::lock_guard<std::mutex> lock(mutex);

	sends[++sends_begun] = region;
	return sends_begun;
}

void engine::end_send(uint64_t tag)
{
	pl_region *region = nullptr;
	{
		std::lock_guard<std::mutex> lock(mutex);
		auto found = sends.find(tag);
		if (found == sends.end())
			return;
		region = found->second;
		sends.erase(found);
	}
	pl_region_deregister(region);
}

} // namespace peerlane_nixl
