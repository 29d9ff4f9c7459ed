/* SPDX-License-Identifier: BSD-2-Clause */
/* Stand-in for NIXL's agent: loads the plugin as NIXL does, and calls its engine as the agent does. */
#ifndef TEST_NIXL_STAND_IN_H
#define TEST_NIXL_STAND_IN_H

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "interface.h"

extern "C" {
#include "support/check.h"
#include "support/process.h"
}

/* Range of memory with its registration, or with the metadata of another agent's. */
struct range {
	uintptr_t address = 0;
	size_t length = 0;
	nixl_mem_t kind = DRAM_SEG;
	nixlBackendMD *metadata = nullptr;
};

struct piece {
	size_t from; /* offset in the local range */
	size_t to;   /* offset in the remote range */
	size_t length;
};

/* Returns parameters from a text: "fabric=tcp progress=manual". NIXL_TEST_FABRIC sets another fabric for all cases. */
nixl_b_params_t parameters_of(const char *text);

class stand_in
{
	nixlBackendPlugin *plugin;

public:
	const std::string name;
	nixlBackendEngine *engine;

	stand_in(const std::string &called, nixl_b_params_t parameters);
	~stand_in();
	stand_in(const stand_in &) = delete;

	std::string info() const;
	range add(void *memory, size_t length, nixl_mem_t kind = DRAM_SEG);
	void remove(range &gone);
	std::string public_data(const range &local) const;
	/* Loads the range as a target of this agent's own transfers. */
	range add_self(const range &local);
	nixl_status_t load(const std::string &agent, const std::string &blob, uintptr_t address, size_t length,
			   range &out);
	void unload(range &gone);
	nixl_status_t prepare(nixl_xfer_op_t operation, const range &local, const range &remote,
			      const std::vector<piece> &pieces, const std::string &agent, nixlBackendReqH *&out);
	nixl_status_t post(nixlBackendReqH *&handle);
	nixl_status_t post(nixlBackendReqH *&handle, const std::string &notice);
	/* Polls until a posted transfer ends. */
	nixl_status_t finish(nixlBackendReqH *handle, nixl_status_t posted);
	/* Releases, again if the first attempt was too early. */
	void release(nixlBackendReqH *handle);
	/* Waits for the next notification. */
	std::pair<std::string, std::string> notice();
	bool has_notice();

private:
	notif_list_t arrived;
};

/* Another process with an agent and a range of zeros. */
struct remote_process {
	pid_t pid = 0;
	int fd = -1;
	std::string name, info, data;
	uintptr_t address = 0;
	size_t length = 0;
};

/* Report of the other process about a notification: its sender, its bytes, and the range at that moment. */
struct report {
	std::string sender;
	size_t length;
	uint64_t hash;       /* of the notification */
	uint64_t range_hash; /* of the whole range */
};

remote_process start_remote(const std::string &name, const nixl_b_params_t &parameters, size_t length);
/* Sends a command: "v": report the range's hash; "r": deregister; "g AGENT LENGTH": notify; "i AGENT" and the info: load. */
void command(remote_process &remote, const std::string &text);
std::string answer(remote_process &remote);
/* Polls the agent meanwhile, which sends only then if its progress is manual. */
report next_report(remote_process &remote, stand_in &agent);
void end_remote(remote_process &remote);
/* Loads the other process's agent and range. */
range load_remote(stand_in &agent, const remote_process &remote);

/* ThreadSanitizer does not look: agreements with other processes order these reads and the peer's next writes. */
uint64_t hash_bytes(const void *bytes, size_t length);
std::string notice_of(size_t length);

#endif
