/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections to agents. A thread of the agent connects, because the library's calls wait. */
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "engine.h"

namespace peerlane_nixl
{
namespace
{

/* Time after which a connection attempt notices that its agent is closed. */
constexpr uint64_t CLOSED_PERIOD = 20000000;

} // namespace

remote_memory::remote_memory(std::shared_ptr<agent> of, memory_card public_data)
	: owner(std::move(of)), card(std::move(public_data))
{
}

remote_memory::~remote_memory()
{
	std::lock_guard<std::mutex> lock(owner->mutex);

	forget_locked();
	owner->imported.erase(this);
}

void remote_memory::forget_locked()
{
	pl_completion completion;

	/* The connection may still be open. */
	if (import)
		pl_cancel(import);
	if (import && pl_wait(import, UINT64_MAX, &completion, nullptr) == 0)
		remote = completion.remote;
	import = nullptr;
	if (remote)
		pl_remote_release(remote);
	remote = nullptr;
}

int remote_memory::import_locked(pl_error &error)
{
	pl_completion completion;
	int status;

	if (remote)
		return 0;
	if (!import) {
		status = pl_remote_import_start(owner->peer, card.token.data(), card.token.size(), 0, &import, &error);
		if (status < 0) {
			import = nullptr;
			return status;
		}
		owner->imported.insert(this);
	}
	status = pl_test(import, &completion, &error);
	if (status == -EINPROGRESS)
		return status;
	import = nullptr;
	if (status == 0)
		remote = completion.remote;
	return status;
}

agent::agent(engine &of, std::string called, agent_card reached)
	: owner(of), card(std::move(reached)), name(std::move(called))
{
}

agent_lock::~agent_lock()
{
	pl_peer *gone = std::exchange(of.dropped, nullptr);

	of.mutex.unlock();
	of.owner.close_peer(gone);
}

agent::~agent()
{
	close();
}

int agent::wait_unless_closed(pl_operation *operation, pl_completion &completion, pl_error &error)
{
	int status;

	while ((status = pl_try_wait(operation, CLOSED_PERIOD, &completion, &error)) == -EINPROGRESS) {
		if (closed)
			pl_cancel(operation);
	}
	return status;
}

/* Connects to one address, and proves that the listener there is the agent's: another process may have its port. */
int agent::try_address(const std::string &address, pl_peer **fresh, pl_remote **imported_proof, pl_error &error)
{
	std::string hello = std::string(1, (char)HELLO_VERSION) + owner.name;
	pl_completion completion = {};
	pl_operation *operation;
	int status = pl_connect_start(owner.context, address.c_str(), 0, 0, &operation, &error);

	if (status == 0)
		status = wait_unless_closed(operation, completion, error);
	if (status < 0)
		return status;
	*fresh = completion.peer;
	status = pl_remote_import_start(*fresh, card.token.data(), card.token.size(), 0, &operation, &error);
	if (status == 0)
		status = wait_unless_closed(operation, completion, error);
	if (status == 0) {
		*imported_proof = completion.remote;
		status = pl_notify(*fresh, notice_value(notice_kind::hello), hello.data(), hello.size(), nullptr,
				   nullptr, &error);
	}
	if (status == 0)
		return 0;
	owner.close_peer(*fresh);
	pl_remote_release(*imported_proof);
	*fresh = nullptr;
	*imported_proof = nullptr;
	return status;
}

int agent::try_addresses(pl_peer **fresh, pl_remote **imported_proof, pl_error &error)
{
	int status = -EHOSTUNREACH;

	try {
		for (const std::string &address : card.addresses) {
			status = try_address(address, fresh, imported_proof, error);
			if (status == 0 || closed)
				break;
		}
	} catch (const std::exception &problem) {
		snprintf(error.message, sizeof(error.message), "%s", problem.what());
		status = -ENOMEM;
	}
	return status;
}

void agent::run_connector()
{
	pl_peer *fresh = nullptr;
	pl_remote *imported_proof = nullptr;
	pl_error error = {};
	int status = try_addresses(&fresh, &imported_proof, error);
	agent_lock lock(*this);

	if (status == 0 && closed) {
		dropped = fresh;
		pl_remote_release(imported_proof);
		status = -ECANCELED;
	} else if (status == 0) {
		peer = fresh;
		proof = imported_proof;
	} else if (!closed) {
		warn("cannot connect to agent %s: %s", name.c_str(), error.message);
	}
	now = status == 0 ? state::up : state::failed;
	changed.notify_all();
}

int agent::ready_locked()
{
	if (closed)
		return -ECANCELED;
	if (now == state::up)
		return 0;
	if (now == state::failed)
		return -ENOTCONN;
	if (now == state::idle) {
		/* The last attempt's thread has left the lock behind. */
		if (connector.joinable())
			connector.join();
		connector = std::thread(&agent::run_connector, this);
		now = state::connecting;
	}
	return -EINPROGRESS;
}

void agent::forgive_locked()
{
	if (now == state::failed)
		now = state::idle;
}

void agent::drop_locked(uint64_t number)
{
	if (now != state::up || number != connection)
		return;
	for (request *each : prepared) {
		pl_vector_free(each->vector);
		each->vector = nullptr;
	}
	prepared.clear();
	dropped = std::exchange(peer, nullptr);
	for (remote_memory *each : imported)
		each->forget_locked();
	imported.clear();
	pl_remote_release(proof);
	proof = nullptr;
	connection++;
	now = state::idle;
}

void agent::close()
{
	std::thread attempt;

	{
		agent_lock lock(*this);
		closed = true;
		drop_locked(connection);
		attempt = std::move(connector);
		changed.notify_all();
	}
	if (attempt.joinable())
		attempt.join();
}

int agent::connect()
{
	std::unique_lock<std::mutex> lock(mutex);
	int status;

	forgive_locked();
	while ((status = ready_locked()) == -EINPROGRESS)
		wait_for_change(changed, lock);
	return status;
}

/* Announces the length, so that the other end posts a buffer, and sends the bytes into it. */
int agent::send_large_locked(const std::string &notice, pl_error &error)
{
	pl_attributes attributes = PL_ATTRIBUTES_INIT;
	unsigned char length[8];
	pl_region *region;
	int status = pl_region_allocate(owner.context, notice.size(), PL_ACCESS_LOCAL, &region, &error);

	if (status < 0)
		return status;
	memcpy(pl_region_address(region), notice.data(), notice.size());
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)notice.size() >> 8 * i);
	uint64_t tag = owner.keep_send(region);
	pl_buffer buffer = { region, 0, notice.size() };
	attributes.user_data = tag;
	status = pl_notify(peer, notice_value(notice_kind::large, tag), length, sizeof(length), nullptr, nullptr,
			   &error);
	if (status == 0)
		status = pl_send(peer, tag, &buffer, &attributes, nullptr, &error);
	if (status < 0)
		owner.end_send(tag);
	return status;
}

int agent::send_locked(const std::string &notice, pl_error &error)
{
	if (notice.size() > NOTICE_MAX)
		return -EMSGSIZE;
	if (notice.size() > PL_NOTIFY_DATA_MAX)
		return send_large_locked(notice, error);
	return pl_notify(peer, notice_value(notice_kind::small), notice.empty() ? nullptr : notice.data(),
			 notice.size(), nullptr, nullptr, &error);
}

int agent::probe_locked(pl_operation **probe, pl_error &error)
{
	return pl_remote_import_start(peer, card.token.data(), card.token.size(), 0, probe, &error);
}

int agent::send(const std::string &notice)
{
	pl_error error = {};
	int status = -ENOTCONN;

	for (int attempt = 0; attempt < 2; attempt++) {
		status = connect();
		if (status < 0)
			return status;
		agent_lock lock(*this);
		if (now != state::up)
			continue;
		status = send_locked(notice, error);
		if (!status_is_loss(status))
			break;
		drop_locked(connection);
	}
	if (status < 0 && status != -EMSGSIZE)
		warn_error("cannot notify agent " + name, error);
	return status;
}

} // namespace peerlane_nixl
