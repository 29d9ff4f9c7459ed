/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The plugin's work, without NIXL's types: an engine over one context of the library. Functions return 0 or a negative
 * errno. Any thread may call any function at any time.
 *
 * Locks are taken in this order: request, agent, engine. No lock of the engine is held while another is taken.
 */
#ifndef PLUGIN_NIXL_ENGINE_H
#define PLUGIN_NIXL_ENGINE_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <peerlane/peerlane.h>

#include "settings.h"
#include "wire.h"

namespace peerlane_nixl
{

class agent;
class engine;
class request;

/* Registered range of this process. */
struct memory {
	pl_region *region = nullptr;
	memory_card card;
};

/* Registered range of an agent, imported when a transfer first uses it. The agent's lock protects the second part. */
struct remote_memory {
	const std::shared_ptr<agent> owner;
	const memory_card card;

	pl_remote *remote = nullptr;
	pl_operation *import = nullptr;

	remote_memory(std::shared_ptr<agent> of, memory_card public_data);
	~remote_memory();
	/* Starts or continues the import over the agent's connection. Returns -EINPROGRESS while it runs. */
	int import_locked(pl_error &error);
	void forget_locked();
};

/* An agent to which transfers go, or this agent itself: its addresses, and one connection, made at first use. */
class agent
{
	friend class agent_lock;
	enum class state { idle, connecting, up, failed };

	engine &owner;
	const agent_card card;
	state now = state::idle;
	std::atomic<bool> closed = false;
	pl_remote *proof = nullptr;
	std::condition_variable changed;
	std::thread connector;

	void run_connector();
	int try_addresses(pl_peer **fresh, pl_remote **imported, pl_error &error);
	int wait_unless_closed(pl_operation *operation, pl_completion &completion, pl_error &error);
	int try_address(const std::string &address, pl_peer **fresh, pl_remote **imported, pl_error &error);
	int send_large_locked(const std::string &notice, pl_error &error);

public:
	const std::string name;
	std::mutex mutex;
	pl_peer *peer = nullptr;                      /* while the state is up */
	pl_peer *dropped = nullptr;                   /* closed once the lock is released */
	uint64_t connection = 0;                      /* rises with each end of a connection */
	std::unordered_set<request *> prepared;       /* those with a vector of the peer */
	std::unordered_set<remote_memory *> imported; /* those with a handle of the peer */

	agent(engine &of, std::string called, agent_card reached);
	~agent();
	/* Returns 0 if the connection is up. Otherwise starts it, and returns -EINPROGRESS, -ENOTCONN or -ECANCELED. */
	int ready_locked();
	/* Lets the next ready_locked() connect again after a failure. */
	void forgive_locked();
	/* Ends the connection if it still has this number. The end of the agent_lock closes it. */
	void drop_locked(uint64_t number);
	/* Ends the connection, or the attempt, for good. */
	void close();
	/* Connects, and waits for it. */
	int connect();
	/* Sends a notification, over a new connection if the old one is lost. Waits for a connection only. */
	int send(const std::string &notice);
	int send_locked(const std::string &notice, pl_error &error);
	/* Starts to import the agent's proof again over its connection: a living agent answers with 0. */
	int probe_locked(pl_operation **probe, pl_error &error);
};

/*
 * Lock of an agent whose holder may end the connection. Closes the ended connection without the lock, because that waits up to
 * 1 s for copies of a stopped process.
 */
class agent_lock
{
	agent &of;

public:
	explicit agent_lock(agent &locked) : of(locked) { of.mutex.lock(); }
	agent_lock(const agent_lock &) = delete;
	agent_lock &operator=(const agent_lock &) = delete;
	~agent_lock();
};

/* A prepared transfer: ranges, and the state of the last posting. */
class request
{
	enum class state { idle, waiting, running, refused, notifying, probing };

	struct element {
		uint32_t local;
		uint32_t remote;
		uint64_t offset;
		uint64_t remote_offset;
		uint64_t length;
	};

	engine &owner;
	const std::shared_ptr<agent> target;
	const bool write;
	std::mutex mutex;
	std::vector<std::shared_ptr<memory>> locals;
	std::vector<std::shared_ptr<remote_memory>> remotes;
	std::vector<element> elements;
	pl_operation *operation = nullptr;
	state now = state::idle;
	int result = -EINVAL; /* of the last posting, while idle */
	bool has_notice = false;
	std::string notice;
	bool posted_again = false;
	bool revoked = false; /* a local range was deregistered */
	bool release_refused = false;
	uint64_t connection = 0; /* of the agent, at the posting */
	pl_operation *probe = nullptr;
	std::chrono::steady_clock::time_point refused_until, next_probe;
	pl_error refusal = {};

	int step();
	int begin();
	int post_locked(pl_error &error);
	int prepare_locked(pl_error &error);
	int lost_locked(int status);
	int finish(int status, const pl_error *error);
	int step_running();
	int step_refused();
	void begin_refused(const pl_error &error);
	void end_probe();
	int step_notifying();
	void stop(uint64_t timeout);

public:
	pl_vector *vector = nullptr; /* of the agent's connection; the agent's lock protects it */

	request(engine &of, std::shared_ptr<agent> to, bool is_write);
	~request();
	/* Adds a pair of equally long ranges. Returns -ERANGE outside of the memory, -EINVAL for memory of another agent. */
	int add(const std::shared_ptr<memory> &local, uint64_t address, const std::shared_ptr<remote_memory> &remote,
		uint64_t remote_address, uint64_t length);
	/* Starts to connect and to import, so that the first posting finds both done. */
	void warm_up();
	/* Posts. Returns -EINPROGRESS; 0: done already; -EALREADY while it runs. A null notice means none. */
	int post(const std::string *with_notice);
	/* Returns the state of the last posting: -EINPROGRESS, 0 or its error. Never blocks. */
	int check();
	/* Cancels. Returns 0 once no local range is in use; -EBUSY after 100 ms. The second call waits until then. */
	int release();
	/* Leaves the operation to pl_close(), which follows. */
	void abandon();
	/* Cancels, waits, and fails all later postings if the request uses this memory. */
	void revoke(const memory &gone);
};

/* Waits for a change, or wakes up without one. condition_variable::wait() would need a libstdc++ newer than RHEL 9's. */
inline void wait_for_change(std::condition_variable &changed, std::unique_lock<std::mutex> &lock)
{
	changed.wait_for(lock, std::chrono::hours(1));
}

class engine
{
	/* Large notification that was announced. */
	struct announced {
		uint64_t tag;
		uint64_t length;
	};
	/* Connection that another agent has made to this one. */
	struct inbound {
		uint64_t number = 0;
		std::string name;              /* of the agent, once it has said hello */
		bool lost = false;             /* what it sent before may still arrive */
		bool refused = false;          /* it is closed by this engine */
		std::deque<announced> waiting; /* until others have arrived */
		size_t arriving = 0;           /* large notifications under way */
		size_t arriving_bytes = 0;     /* their lengths */
		bool short_of_memory = false;  /* it is in the list of that name */
	};
	struct arriving {
		pl_peer *peer;
		uint64_t number; /* of the connection: another one may have the address by now */
		std::string name;
		pl_region *region;
		uint64_t length;
	};

	std::string conn_info;
	pl_listener *listener = nullptr;
	pl_region *proof = nullptr;
	int wake_fd = -1;
	std::thread events;
	static constexpr int BATCH = 64;
	std::mutex drain_mutex; /* taken before mutex: one thread handles events, in their order */
	std::unordered_map<pl_peer *, inbound> peers;    /* of drain_mutex */
	std::unordered_map<uint64_t, arriving> receives; /* of drain_mutex: large notifications under way */
	uint64_t receives_begun = 0, connections = 0;
	uint64_t receive_bytes = 0; /* of drain_mutex: lengths of all receives */
	/* Connections whose next large notification waits for memory that others use, by peer and number; of drain_mutex. */
	std::deque<std::pair<pl_peer *, uint64_t>> short_of_memory;

	pl_completion fetched[BATCH]; /* of drain_mutex: events, of which those from `next_event` on are not handled */
	int next_event = 0, event_count = 0;
	bool lacks_memory = false; /* of drain_mutex: events or receives wait for memory of this process */
	bool told_of_memory = false;

	std::mutex mutex;
	bool stopping = false;
	std::condition_variable collected;
	std::unordered_map<std::string, std::shared_ptr<agent>> agents;
	std::unordered_map<request *, std::weak_ptr<request>> requests;
	std::unordered_map<uint64_t, pl_region *> sends; /* large notifications that are being sent */
	uint64_t sends_begun = 0;
	std::vector<std::pair<std::string, std::string>> notices;
	size_t notice_bytes = 0;
	std::vector<pl_region *> retired; /* deregistered ranges that something still used */

	int listen(const settings &with, pl_error &error);
	void run_events();
	void wait_until_collected();
	/* Returns false if something waits for memory of this process. Then it must be called again. */
	bool drain();
	void wait_without_memory(const char *why);
	void handle_all();
	bool try_handle(pl_completion &completion);
	void forget_peer(pl_peer *peer);
	void free_events();
	void handle(pl_completion &completion);
	void handle_accepted(pl_peer *peer);
	void handle_notified(const pl_completion &completion);
	void handle_notice(pl_peer *peer, inbound &sender, uint64_t value, std::string data);
	void handle_received(const pl_completion &completion);
	void begin_receives(pl_peer *peer, inbound &sender, bool turn = false);
	void try_receives(pl_peer *peer, inbound &sender);
	bool memory_fits(uint64_t length) const;
	void wait_for_memory(pl_peer *peer, inbound &sender, uint64_t length);
	void resume_receives();
	void serve_waiting();
	int begin_receive(pl_peer *peer, inbound &sender, const announced &notice, pl_error &error);
	void accept_next() noexcept;
	void free_retired();
	void forget_lost(std::vector<pl_peer *> &gone);
	void deliver(const std::string &name, std::string bytes);
	std::vector<std::shared_ptr<request>> live_requests();

public:
	pl_context *context = nullptr;
	settings options;
	const std::string name;

	explicit engine(std::string called) : name(std::move(called)) {}
	~engine();
	int open(const parameters &given);
	const std::string &connection_info() const { return conn_info; }

	int register_memory(uint64_t address, uint64_t length, bool gpu, std::shared_ptr<memory> &out);
	int deregister_memory(const memory &gone);

	int load_agent(const std::string &called, const std::string &info);
	std::shared_ptr<agent> find_agent(const std::string &called);
	void disconnect(const std::string &called);
	int load_memory(const std::string &called, const std::string &public_data, bool gpu, uint64_t address,
			uint64_t length, std::shared_ptr<remote_memory> &out);
	std::shared_ptr<request> new_request(std::shared_ptr<agent> to, bool write);
	void forget_request(request *gone);

	/* Closes a connection that an agent of this engine has made. */
	void close_peer(pl_peer *peer);
	/* Moves all notifications that have arrived to `list`. */
	void take_notices(std::vector<std::pair<std::string, std::string>> &list);
	/* Keeps a region until the message with the returned tag is sent. */
	uint64_t keep_send(pl_region *region);
	void end_send(uint64_t tag);
};

/* Kinds of notifications between agents, in the upper 8 bits of the number. */
enum class notice_kind : uint64_t {
	hello = 1, /* data: version of this protocol, name of the agent */
	small = 2, /* data: the notification */
	large = 3, /* the lower bits: tag of a message with the notification; data: its length, 8 bytes */
};
constexpr uint8_t HELLO_VERSION = 1;
constexpr uint64_t notice_value(notice_kind kind, uint64_t rest = 0)
{
	return (uint64_t)kind << 56 | rest;
}

/* True if a status means that the connection is gone, so that another one may succeed. */
constexpr bool status_is_loss(int status)
{
	return status == -ECONNRESET || status == -ENOTCONN || status == -EPROTO || status == -EPIPE;
}

} // namespace peerlane_nixl

#endif
