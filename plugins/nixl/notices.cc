/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of the context: connections of other agents, and the notifications that arrive over them. A thread handles
 * them, so that agents need not be polled; take_notices() handles them, too, so that nothing waits for the thread.
 */
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <poll.h>

#include "engine.h"

namespace peerlane_nixl
{
namespace
{

/* With more uncollected notifications the engine takes no more, and their senders wait. */
constexpr size_t NOTICES_MAX = 1u << 20;
constexpr size_t NOTICE_BYTES_MAX = 1u << 30;
/*
 * Large notifications of one connection that have memory here; further ones wait. One of any size always fits. The limit does not
 * belong to the agent's name, which another agent could claim to use the limit up.
 */
constexpr size_t ARRIVING_MAX = 16;
constexpr size_t ARRIVING_BYTES_MAX = 2 * NOTICE_MAX;
/* Announcements that wait: an agent that sends more is closed. */
constexpr size_t WAITING_MAX = 1u << 16;
/* Milliseconds between two attempts to handle events without memory for them. */
constexpr int MEMORY_PAUSE = 10;

uint64_t read_length(const std::string &bytes)
{
	uint64_t length = 0;

	for (int i = 0; i < 8; i++)
		length |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
	return length;
}

} // namespace

void engine::run_events()
{
	pollfd wait[2] = { { pl_fd(context), POLLIN, 0 }, { wake_fd, POLLIN, 0 } };

	for (;;) {
		bool complete = drain();
		wait_until_collected();
		{
			std::lock_guard<std::mutex> lock(mutex);
			if (stopping)
				return;
		}
		/* Without memory, further events that have arrived must not end the pause. */
		if (complete)
			poll(wait, 2, -1);
		else
			poll(wait + 1, 1, MEMORY_PAUSE);
	}
}

void engine::wait_until_collected()
{
	std::unique_lock<std::mutex> lock(mutex);

	while (!stopping && (notices.size() > NOTICES_MAX || notice_bytes > NOTICE_BYTES_MAX))
		wait_for_change(collected, lock);
}

bool engine::drain()
{
	std::vector<pl_peer *> gone;
	bool complete;
	{
		std::lock_guard<std::mutex> lock(drain_mutex);
		lacks_memory = false;
		handle_all();
		try {
			resume_receives();
			serve_waiting();
			forget_lost(gone);
		} catch (const std::exception &problem) {
			wait_without_memory(problem.what());
		}
		for (pl_peer *each : gone)
			forget_peer(each);
		complete = !lacks_memory;
		told_of_memory &= lacks_memory;
	}
	/* Without the lock: pl_peer_close() waits up to 1 s for copies of a stopped process. */
	for (pl_peer *each : gone)
		pl_peer_close(each);
	return complete;
}

/* The next call of drain() continues. */
void engine::wait_without_memory(const char *why)
{
	if (!told_of_memory)
		warn("notifications and connections wait: %s", why);
	lacks_memory = told_of_memory = true;
}

/* Handles all events that have arrived, in their order. Events stay while there is no memory. The caller holds drain_mutex. */
void engine::handle_all()
{
	do {
		if (next_event == event_count) {
			next_event = 0;
			event_count = std::max(pl_poll(context, fetched, BATCH), 0);
		}
		for (; next_event < event_count; next_event++)
			if (!try_handle(fetched[next_event]))
				return;
	} while (event_count == BATCH);
}

/* Returns false without memory for an event, which may be handled again. */
bool engine::try_handle(pl_completion &completion)
{
	try {
		handle(completion);
	} catch (const std::bad_alloc &problem) {
		wait_without_memory(problem.what());
		return false;
	} catch (const std::exception &problem) {
		warn("an event was lost: %s", problem.what());
	}
	/* Does nothing for other events. */
	pl_notification_free(context, &completion);
	return true;
}

/* Drops all that the engine knows of a connection that it closes, whose address another one may get. The caller holds drain_mutex. */
void engine::forget_peer(pl_peer *peer)
{
	peers.erase(peer);
	for (int i = next_event; i < event_count; i++)
		if (fetched[i].peer == peer && (fetched[i].kind == PL_KIND_NOTIFIED || fetched[i].kind == PL_KIND_LOST))
			fetched[i].peer = nullptr;
}

void engine::free_events()
{
	for (; next_event < event_count; next_event++)
		pl_notification_free(context, &fetched[next_event]);
}

void engine::handle(pl_completion &completion)
{
	switch (completion.kind) {
	case PL_KIND_ACCEPT:
		if (completion.status == 0 && completion.peer)
			handle_accepted(completion.peer);
		/* Last, because the event may be handled again. */
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

void engine::accept_next() noexcept
{
	pl_error error = {};

	if (pl_accept_start(listener, 0, nullptr, &error) < 0)
		warn("cannot accept further agents: %s", error.message);
}

/* The library tells of a connection only after its accept, so that this is the first event of the peer. */
void engine::handle_accepted(pl_peer *peer)
{
	peers[peer].number = ++connections;
}

void engine::handle_notified(const pl_completion &completion)
{
	auto sender = peers.find(completion.peer);
	const char *bytes = static_cast<const char *>(completion.data);

	/* The other end of an own connection proves no name, and agents send nothing there. */
	if (sender == peers.end())
		return;
	handle_notice(sender->first, sender->second, completion.value,
		      std::string(bytes ? bytes : "", completion.data_length));
}

void engine::handle_notice(pl_peer *peer, inbound &sender, uint64_t value, std::string data)
{
	auto kind = static_cast<notice_kind>(value >> 56);

	if (kind == notice_kind::hello) {
		if (data.size() < 2 || (uint8_t)data[0] != HELLO_VERSION)
			warn("an agent of another release of the plugin has connected; its notifications are dropped");
		else if (sender.name.empty())
			sender.name = data.substr(1);
		return;
	}
	if (sender.name.empty() || sender.refused)
		return;
	if (kind == notice_kind::small) {
		deliver(sender.name, std::move(data));
	} else if (kind == notice_kind::large && data.size() == 8) {
		announced notice = { value & ~notice_value(notice_kind(0xff)), read_length(data) };
		if (notice.length == 0 || notice.length > NOTICE_MAX || sender.waiting.size() >= WAITING_MAX) {
			warn("agent %s announces a notification of %llu bytes behind %zu others: too much, so its "
			     "connection is closed",
			     sender.name.c_str(), (unsigned long long)notice.length, sender.waiting.size());
			sender.refused = true;
			return;
		}
		sender.waiting.push_back(notice);
		try_receives(peer, sender);
	}
}

/* Begins receives. Without memory resume_receives() begins them later, or the end of those under way. */
void engine::try_receives(pl_peer *peer, inbound &sender)
{
	try {
		begin_receives(peer, sender);
	} catch (const std::exception &problem) {
		wait_without_memory(problem.what());
	}
}

/* True if the limit of all connections allows a notification. One of any size fits alone. */
bool engine::memory_fits(uint64_t length) const
{
	return receives.empty() || receive_bytes + length <= options.notice_memory;
}

/* Puts a connection at the end of those that wait for memory. */
void engine::wait_for_memory(pl_peer *peer, inbound &sender, uint64_t length)
{
	if (sender.short_of_memory)
		return;
	if (short_of_memory.empty()) {
		pl_error error = {};
		error.code = -ENOBUFS;
		snprintf(error.id, sizeof(error.id), "NIXL-NOTICE-MEMORY");
		snprintf(error.object, sizeof(error.object), "agent %s", sender.name.c_str());
		snprintf(error.message, sizeof(error.message),
			 "its notification of %llu bytes waits, as others that arrive use %llu of %llu bytes",
			 (unsigned long long)length, (unsigned long long)receive_bytes,
			 (unsigned long long)options.notice_memory);
		snprintf(error.hint, sizeof(error.hint),
			 "raise notification_memory, or PEERLANE_NIXL_NOTIFICATION_MEMORY");
		warn_error("notifications wait for memory", error);
	}
	short_of_memory.emplace_back(peer, sender.number);
	sender.short_of_memory = true;
}

/* Continues connections whose receives a lack of memory in this process has stopped: no completion continues them. */
void engine::resume_receives()
{
	for (auto &[peer, sender] : peers) {
		if (!sender.waiting.empty() && !sender.arriving && !sender.short_of_memory)
			begin_receives(peer, sender);
	}
}

/* Gives memory that has become free to the connections that wait for it, one notification each, in their order. */
void engine::serve_waiting()
{
	while (!short_of_memory.empty()) {
		auto [peer, number] = short_of_memory.front();
		auto found = peers.find(peer);
		bool gone = found == peers.end() || found->second.number != number || found->second.refused ||
			    found->second.waiting.empty();
		if (!gone && !memory_fits(found->second.waiting.front().length))
			return;
		short_of_memory.pop_front();
		if (gone)
			continue;
		found->second.short_of_memory = false;
		begin_receives(peer, found->second, true);
	}
}

/*
 * Gives memory to announced notifications, in their order, as far as the limits allow. Others wait for memory first, unless the
 * connection has its turn with one notification.
 */
void engine::begin_receives(pl_peer *peer, inbound &sender, bool turn)
{
	for (; !sender.waiting.empty() && !sender.refused; turn = false) {
		announced next = sender.waiting.front();
		if (sender.arriving &&
		    (sender.arriving >= ARRIVING_MAX || sender.arriving_bytes + next.length > ARRIVING_BYTES_MAX))
			return;
		if (!memory_fits(next.length) || (!turn && !short_of_memory.empty())) {
			wait_for_memory(peer, sender, next.length);
			return;
		}
		pl_error error = {};
		int status = begin_receive(peer, sender, next, error);
		/* Without memory it waits for those that have some, or for the next attempt. */
		if (status == -ENOMEM) {
			if (!sender.arriving)
				wait_without_memory(error.message);
			return;
		}
		if (status < 0)
			warn_error("cannot receive a notification of agent " + sender.name, error);
		sender.waiting.pop_front();
	}
}

int engine::begin_receive(pl_peer *peer, inbound &sender, const announced &notice, pl_error &error)
{
	pl_attributes attributes = PL_ATTRIBUTES_INIT;
	pl_region *region;

	attributes.user_data = ++receives_begun;
	arriving fresh = { peer, sender.number, sender.name, nullptr, notice.length };
	arriving &entry = receives.emplace(attributes.user_data, std::move(fresh)).first->second;
	int status = pl_region_allocate(context, notice.length, PL_ACCESS_LOCAL, &region, &error);
	if (status == 0) {
		pl_buffer buffer = { region, 0, notice.length };
		entry.region = region;
		status = pl_receive(peer, notice.tag, UINT64_MAX, &buffer, &attributes, nullptr, &error);
		if (status < 0)
			pl_region_deregister(region);
	}
	if (status < 0) {
		receives.erase(attributes.user_data);
		return status;
	}
	sender.arriving++;
	sender.arriving_bytes += notice.length;
	receive_bytes += notice.length;
	return 0;
}

void engine::handle_received(const pl_completion &completion)
{
	auto found = receives.find(completion.user_data);

	if (found == receives.end())
		return;
	arriving &done = found->second;
	if (completion.status == 0)
		deliver(done.name,
			std::string(static_cast<const char *>(pl_region_address(done.region)), completion.bytes));
	else
		warn("a notification of agent %s was lost: %s", done.name.c_str(), strerror(-completion.status));
	pl_region_deregister(done.region);
	receive_bytes -= done.length;
	auto sender = peers.find(done.peer);
	bool same = sender != peers.end() && sender->second.number == done.number;
	if (same) {
		sender->second.arriving--;
		sender->second.arriving_bytes -= done.length;
	}
	receives.erase(found);
	if (same)
		try_receives(sender->first, sender->second);
}

void engine::close_peer(pl_peer *peer)
{
	bool leaves;

	if (!peer)
		return;
	{
		std::lock_guard<std::mutex> lock(drain_mutex);
		forget_peer(peer);
	}
	{
		std::lock_guard<std::mutex> lock(mutex);
		leaves = stopping;
	}
	/* pl_close() closes all peers together. */
	if (leaves)
		return;
	/* Without the lock: pl_peer_close() waits up to 1 s for copies of a stopped process. */
	pl_peer_close(peer);
}

/* Collects refused connections, and lost ones whose large notifications have arrived. The caller erases and closes them. */
void engine::forget_lost(std::vector<pl_peer *> &gone)
{
	for (auto &[peer, sender] : peers) {
		bool done = sender.lost && sender.waiting.empty() && !sender.arriving;

		if (sender.refused || done)
			gone.push_back(peer);
	}
}

void engine::deliver(const std::string &sender, std::string bytes)
{
	std::lock_guard<std::mutex> lock(mutex);
	size_t length = bytes.size();

	notices.emplace_back(sender, std::move(bytes));
	notice_bytes += length;
}

void engine::take_notices(std::vector<std::pair<std::string, std::string>> &list)
{
	drain();
	free_retired();
	std::lock_guard<std::mutex> lock(mutex);
	/* Without memory all notifications stay for the next call. */
	list.reserve(list.size() + notices.size());
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
