/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers. A posting passes these states: waiting (for the connection and the imports), running (one operation of the
 * library for all ranges), notifying (a large notification after it). A lost connection leads back to waiting, once; or
 * to probing, if the lost operation had a notification, which may have arrived: the probe tells if the agent still lives.
 * An agent that ends deregisters its memory first, so that its end can look like a refusal: a refused transfer asks the
 * agent whether it lives before it fails.
 */
#include <cerrno>

#include "engine.h"

namespace peerlane_nixl
{
namespace
{

/* Cancelled operations end within some milliseconds, unless the peer's process is stopped. */
constexpr uint64_t RELEASE_WAIT = 100000000;

/* Time in which an agent that has deregistered its memory usually ends, if it does. */
constexpr std::chrono::milliseconds REFUSED_WAIT(50);
/* Longest wait after it for an answer, which an agent that was stopped does not give, and the time between two probes. */
constexpr std::chrono::milliseconds PROBE_WAIT(2000), PROBE_PAUSE(2);

template <class T> uint32_t index_of(std::vector<std::shared_ptr<T>> &all, const std::shared_ptr<T> &one)
{
	/* Ranges of one registration follow each other. */
	for (size_t i = all.size(); i-- > 0;) {
		if (all[i] == one)
			return (uint32_t)i;
	}
	all.push_back(one);
	return (uint32_t)(all.size() - 1);
}

bool range_is_inside(const memory_card &card, uint64_t address, uint64_t length)
{
	return address >= card.address && address - card.address <= card.length &&
	       length <= card.length - (address - card.address);
}

} // namespace

request::request(engine &of, std::shared_ptr<agent> to, bool is_write)
	: owner(of), target(std::move(to)), write(is_write)
{
}

request::~request()
{
	owner.forget_request(this);
	stop(UINT64_MAX);
}

int request::add(const std::shared_ptr<memory> &local, uint64_t address, const std::shared_ptr<remote_memory> &remote,
		 uint64_t remote_address, uint64_t length)
{
	/* Another thread may deregister other memory, and looks at this request. */
	std::lock_guard<std::mutex> lock(mutex);

	if (remote->owner != target)
		return -EINVAL;
	if (!range_is_inside(local->card, address, length) || !range_is_inside(remote->card, remote_address, length))
		return -ERANGE;
	element fresh = { index_of(locals, local), index_of(remotes, remote), address - local->card.address,
			  remote_address - remote->card.address, length };
	if (!elements.empty()) {
		element &last = elements.back();
		if (last.local == fresh.local && last.remote == fresh.remote &&
		    last.offset + last.length == fresh.offset &&
		    last.remote_offset + last.length == fresh.remote_offset) {
			last.length += length;
			return 0;
		}
	}
	elements.push_back(fresh);
	return elements.size() <= PL_TRANSFERS_MAX ? 0 : -E2BIG;
}

void request::warm_up()
{
	std::lock_guard<std::mutex> lock(target->mutex);
	pl_error error;

	if (target->ready_locked() == 0) {
		for (const auto &each : remotes)
			each->import_locked(error);
	}
}

int request::finish(int status, const pl_error *error)
{
	/* First, because the warning may find no memory. */
	now = state::idle;
	result = status;
	if (status < 0 && status != -ECANCELED && error && error->code)
		warn_error(std::string(write ? "write to" : "read from") + " agent " + target->name, *error);
	return status;
}

int request::prepare_locked(pl_error &error)
{
	std::vector<pl_transfer> transfers(elements.size());

	for (size_t i = 0; i < elements.size(); i++) {
		const element &each = elements[i];
		transfers[i] = { remotes[each.remote]->remote, each.remote_offset, locals[each.local]->region,
				 each.offset, each.length };
	}
	int status = pl_vector_prepare(target->peer, write ? PL_KIND_WRITE : PL_KIND_READ, transfers.data(),
				       transfers.size(), &vector, &error);
	if (status < 0)
		vector = nullptr;
	else
		target->prepared.insert(this);
	return status;
}

int request::post_locked(pl_error &error)
{
	pl_attributes attributes = PL_ATTRIBUTES_INIT;
	const memory_card &destination = write ? remotes[0]->card : locals[0]->card;
	int status = vector ? 0 : prepare_locked(error);

	if (status < 0)
		return status;
	attributes.visible = destination.gpu ? PL_VISIBLE_GPU_VISIBLE : PL_VISIBLE_PLACED;
	if (has_notice && notice.size() <= PL_NOTIFY_DATA_MAX) {
		attributes.flags = PL_NOTIFY;
		attributes.notify = notice_value(notice_kind::small);
		attributes.notify_data = notice.empty() ? nullptr : notice.data();
		attributes.notify_length = notice.size();
	}
	connection = target->connection;
	return pl_vector_post(vector, 0, 0, &attributes, &operation, &error);
}

/* Ends the lost connection. Returns -EINPROGRESS if the posting may go on over another one, else -ENOTCONN. */
int request::lost_locked(int status)
{
	target->drop_locked(connection);
	if (posted_again)
		return status == -ECANCELED ? status : -ENOTCONN;
	posted_again = true;
	now = state::waiting;
	return -EINPROGRESS;
}

/* Posts if the connection and all imports are there. */
int request::begin()
{
	agent_lock lock(*target);
	pl_error error = {};
	bool pending = false;
	int status = target->ready_locked();

	if (status < 0)
		return status == -EINPROGRESS ? status : finish(status, nullptr);
	connection = target->connection;
	for (const auto &each : remotes) {
		int one = each->import_locked(error);
		if (one == -EINPROGRESS)
			pending = true;
		else if (one < 0 && status == 0)
			status = one;
	}
	if (status == 0 && pending)
		return -EINPROGRESS;
	if (status == 0)
		status = post_locked(error);
	if (status_is_loss(status))
		status = lost_locked(status);
	if (status == -EINPROGRESS)
		return status;
	if (status == -EACCES) {
		begin_refused(error);
		return 0;
	}
	if (status < 0)
		return finish(status, &error);
	now = state::running;
	return 0;
}

int request::step_running()
{
	pl_error error = {};
	int status = pl_test(operation, nullptr, &error);

	if (status == -EINPROGRESS)
		return status;
	operation = nullptr;
	bool large = has_notice && notice.size() > PL_NOTIFY_DATA_MAX;
	if (status == 0 && large) {
		now = state::notifying;
		return 0;
	}
	if (status == 0)
		return finish(0, nullptr);
	if (status == -EACCES) {
		begin_refused(error);
		return 0;
	}
	agent_lock lock(*target);
	/* Another request that met the loss has closed the connection, which cancels the operations of all. */
	bool lost = status_is_loss(status) || (status == -ECANCELED && connection != target->connection);
	if (!lost)
		return finish(status, &error);
	if (has_notice && !large) {
		target->drop_locked(connection);
		now = state::probing;
		return 0;
	}
	status = lost_locked(status);
	return status == -EINPROGRESS ? 0 : finish(status, &error);
}

void request::begin_refused(const pl_error &error)
{
	refusal = error;
	refused_until = std::chrono::steady_clock::now() + REFUSED_WAIT;
	now = state::refused;
}

void request::end_probe()
{
	pl_completion completion;

	if (!probe)
		return;
	pl_cancel(probe);
	if (pl_wait(probe, UINT64_MAX, &completion, nullptr) == 0)
		pl_remote_release(completion.remote);
	probe = nullptr;
}

/* Probes the agent again and again. The refusal is the result if the agent lives until the end of the time. */
int request::step_refused()
{
	agent_lock lock(*target);
	const auto time = std::chrono::steady_clock::now();
	pl_completion completion;
	pl_error error = {};
	int status = -ECONNRESET;

	if (connection == target->connection) {
		if (!probe && time < next_probe)
			return -EINPROGRESS;
		status = probe ? 0 : target->probe_locked(&probe, error);
		if (status == 0)
			status = pl_test(probe, &completion, &error);
		/* An agent that is stopped does not answer. */
		if (status == -EINPROGRESS && time < refused_until + PROBE_WAIT)
			return status;
		if (status != -EINPROGRESS)
			probe = nullptr;
	}
	end_probe();
	next_probe = time + PROBE_PAUSE;
	if (status == 0)
		pl_remote_release(completion.remote);
	/* The proof is refused, too, while the agent ends. */
	if ((status == 0 || status == -EACCES) && time < refused_until)
		return -EINPROGRESS;
	if (!status_is_loss(status) && status != -ECANCELED)
		return finish(-EACCES, &refusal);
	status = lost_locked(-ENOTCONN);
	return status == -EINPROGRESS ? 0 : finish(status, &error);
}

int request::step_notifying()
{
	agent_lock lock(*target);
	pl_error error = {};
	int status = target->ready_locked();

	if (status == -EINPROGRESS)
		return status;
	if (status == 0) {
		connection = target->connection;
		status = target->send_locked(notice, error);
	}
	if (status_is_loss(status) && lost_locked(status) == -EINPROGRESS) {
		now = state::notifying;
		return 0;
	}
	return finish(status, &error);
}

int request::step()
{
	int status = 0;

	while (status != -EINPROGRESS) {
		switch (now) {
		case state::idle:
			return result;
		case state::waiting:
			status = begin();
			break;
		case state::running:
			status = step_running();
			break;
		case state::refused:
			status = step_refused();
			break;
		case state::notifying:
			status = step_notifying();
			break;
		case state::probing: {
			std::lock_guard<std::mutex> lock(target->mutex);
			status = target->ready_locked();
			if (status != -EINPROGRESS)
				finish(status == 0 ? -EIO : status, nullptr);
			break;
		}
		}
	}
	return status;
}

int request::post(const std::string *with_notice)
{
	std::lock_guard<std::mutex> lock(mutex);

	if (now != state::idle)
		return -EALREADY;
	if (revoked)
		return -ENOENT;
	if (with_notice && with_notice->size() > NOTICE_MAX)
		return -EMSGSIZE;
	has_notice = with_notice != nullptr;
	notice = with_notice ? *with_notice : "";
	posted_again = false;
	now = state::waiting;
	{
		std::lock_guard<std::mutex> target_lock(target->mutex);
		target->forgive_locked();
	}
	return step();
}

int request::check()
{
	std::lock_guard<std::mutex> lock(mutex);

	return step();
}

/* Cancels the operation and waits for its end. The vector stays if the time was not enough. */
void request::stop(uint64_t timeout)
{
	if (operation) {
		pl_cancel(operation);
		if (pl_try_wait(operation, timeout, nullptr, nullptr) == -EINPROGRESS)
			return;
		operation = nullptr;
	}
	end_probe();
	if (now != state::idle)
		finish(-ECANCELED, nullptr);
	std::lock_guard<std::mutex> lock(target->mutex);
	pl_vector_free(vector);
	vector = nullptr;
	target->prepared.erase(this);
}

int request::release()
{
	std::lock_guard<std::mutex> lock(mutex);

	stop(release_refused ? UINT64_MAX : RELEASE_WAIT);
	release_refused = operation != nullptr;
	return release_refused ? -EBUSY : 0;
}

void request::abandon()
{
	std::lock_guard<std::mutex> lock(mutex);

	operation = probe = nullptr;
	stop(0);
}

void request::revoke(const memory &gone)
{
	std::lock_guard<std::mutex> lock(mutex);

	for (const auto &each : locals) {
		if (each.get() == &gone) {
			stop(UINT64_MAX);
			revoked = true;
		}
	}
}

} // namespace peerlane_nixl
