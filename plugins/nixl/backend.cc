/* SPDX-License-Identifier: BSD-2-Clause */
/* NIXL's class and table over the engine. No exception leaves a function. */
#include <cerrno>
#include <exception>
#include <memory>
#include <new>

#include "engine.h"
#include "interface.h"

using namespace peerlane_nixl;

namespace
{

nixl_status_t status_of(int code)
{
	switch (code) {
	case 0:
		return NIXL_SUCCESS;
	case -EINPROGRESS:
		return NIXL_IN_PROG;
	case -EINVAL:
	case -ERANGE:
	case -EMSGSIZE:
	case -E2BIG:
	case -EFAULT:
		return NIXL_ERR_INVALID_PARAM;
	case -EBADMSG:
	case -EXDEV:
		return NIXL_ERR_MISMATCH;
	case -ENOENT:
		return NIXL_ERR_NOT_FOUND;
	case -EACCES:
	case -EPERM:
		return NIXL_ERR_NOT_ALLOWED;
	case -EALREADY:
	case -EBUSY:
		return NIXL_ERR_REPOST_ACTIVE;
	case -ENOTSUP:
		return NIXL_ERR_NOT_SUPPORTED;
	case -ENOTCONN:
	case -ECONNRESET:
	case -ECONNREFUSED:
		return NIXL_ERR_REMOTE_DISCONNECT;
	case -ECANCELED:
		return NIXL_ERR_CANCELED;
	default:
		return NIXL_ERR_BACKEND;
	}
}

/* Calls a function that returns 0 or a negative errno. */
template <class Function> nixl_status_t guarded(Function function) noexcept
{
	try {
		return status_of(function());
	} catch (const std::exception &problem) {
		warn("%s", problem.what());
		return NIXL_ERR_BACKEND;
	} catch (...) {
		return NIXL_ERR_BACKEND;
	}
}

/* Metadata of one of three kinds: registered memory, memory of another agent, or of this one as a target. */
struct metadata : nixlBackendMD {
	std::shared_ptr<memory> local;
	std::shared_ptr<remote_memory> remote;

	explicit metadata(bool is_private) : nixlBackendMD(is_private) {}
};

struct handle : nixlBackendReqH {
	std::shared_ptr<request> transfer;
};

const metadata &metadata_of(const nixlBackendMD *base)
{
	return *static_cast<const metadata *>(base);
}

class backend final : public nixlBackendEngine
{
	std::unique_ptr<engine> core;

	int fill(request &transfer, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote) const;

public:
	explicit backend(const nixlBackendInitParams *params);

	bool supportsRemote() const override { return true; }
	bool supportsLocal() const override { return true; }
	bool supportsNotif() const override { return true; }
	nixl_mem_list_t getSupportedMems() const override { return { DRAM_SEG, VRAM_SEG }; }

	nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out) override;
	nixl_status_t deregisterMem(nixlBackendMD *meta) override;
	nixl_status_t connect(const std::string &agent) override;
	nixl_status_t disconnect(const std::string &agent) override;
	nixl_status_t unloadMD(nixlBackendMD *input) override;
	nixl_status_t prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&out,
			       const nixl_opt_b_args_t *options) const override;
	nixl_status_t postXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&out,
			       const nixl_opt_b_args_t *options) const override;
	nixl_status_t checkXfer(nixlBackendReqH *posted) const override;
	nixl_status_t releaseReqH(nixlBackendReqH *posted) const override;
	nixl_status_t getPublicData(const nixlBackendMD *meta, std::string &out) const override;
	nixl_status_t getConnInfo(std::string &out) const override;
	nixl_status_t loadRemoteConnInfo(const std::string &agent, const std::string &info) override;
	nixl_status_t loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &kind, const std::string &agent,
				   nixlBackendMD *&out) override;
	nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&out) override;
	nixl_status_t getNotifs(notif_list_t &list) override;
	nixl_status_t genNotif(const std::string &agent, const std::string &msg) const override;
};

backend::backend(const nixlBackendInitParams *params)
	: nixlBackendEngine(params), core(std::make_unique<engine>(params->localAgent))
{
	initErr = core->open(*params->customParams) < 0;
}

nixl_status_t backend::registerMem(const nixlBlobDesc &mem, const nixl_mem_t &kind, nixlBackendMD *&out)
{
	if (kind != DRAM_SEG && kind != VRAM_SEG)
		return NIXL_ERR_NOT_SUPPORTED;
	return guarded([&] {
		auto fresh = std::make_unique<metadata>(true);
		int status = core->register_memory(mem.addr, mem.len, kind == VRAM_SEG, fresh->local);
		if (status == 0)
			out = fresh.release();
		return status;
	});
}

nixl_status_t backend::deregisterMem(nixlBackendMD *meta)
{
	return guarded([&] {
		std::unique_ptr<metadata> gone(static_cast<metadata *>(meta));
		return core->deregister_memory(*gone->local);
	});
}

nixl_status_t backend::connect(const std::string &agent)
{
	return guarded([&] {
		auto target = core->find_agent(agent);
		/* The connection to itself comes with the first transfer. */
		if (agent == core->name)
			return 0;
		return target ? target->connect() : -ENOENT;
	});
}

nixl_status_t backend::disconnect(const std::string &agent)
{
	return guarded([&] {
		core->disconnect(agent);
		return 0;
	});
}

nixl_status_t backend::unloadMD(nixlBackendMD *input)
{
	return guarded([&] {
		delete static_cast<metadata *>(input);
		return 0;
	});
}

nixl_status_t backend::getPublicData(const nixlBackendMD *meta, std::string &out) const
{
	return guarded([&] {
		out = encode(metadata_of(meta).local->card);
		return 0;
	});
}

nixl_status_t backend::getConnInfo(std::string &out) const
{
	return guarded([&] {
		out = core->connection_info();
		return 0;
	});
}

nixl_status_t backend::loadRemoteConnInfo(const std::string &agent, const std::string &info)
{
	return guarded([&] { return core->load_agent(agent, info); });
}

nixl_status_t backend::loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &kind, const std::string &agent,
				    nixlBackendMD *&out)
{
	return guarded([&] {
		auto fresh = std::make_unique<metadata>(false);
		int status = core->load_memory(agent, input.metaInfo, kind == VRAM_SEG, input.addr, input.len,
					       fresh->remote);
		if (status == 0)
			out = fresh.release();
		return status;
	});
}

nixl_status_t backend::loadLocalMD(nixlBackendMD *input, nixlBackendMD *&out)
{
	return guarded([&] {
		auto fresh = std::make_unique<metadata>(true);
		const memory_card &card = metadata_of(input).local->card;
		int status =
			core->load_memory(core->name, encode(card), card.gpu, card.address, card.length, fresh->remote);
		if (status == 0)
			out = fresh.release();
		return status;
	});
}

int backend::fill(request &transfer, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote) const
{
	int count = local.descCount(), status = 0;

	if (count == 0 || count != remote.descCount())
		return -EINVAL;
	for (int i = 0; i < count && status == 0; i++) {
		const nixlMetaDesc &here = local[i], &there = remote[i];
		if (here.len != there.len || !here.metadataP || !there.metadataP)
			return -EINVAL;
		const metadata &ours = metadata_of(here.metadataP), &theirs = metadata_of(there.metadataP);
		if (!ours.local || !theirs.remote)
			return -EINVAL;
		status = transfer.add(ours.local, here.addr, theirs.remote, there.addr, here.len);
	}
	return status;
}

nixl_status_t backend::prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
				const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&out,
				const nixl_opt_b_args_t *) const
{
	return guarded([&] {
		auto target = core->find_agent(agent);
		if (!target)
			return -ENOENT;
		auto fresh = std::make_unique<handle>();
		fresh->transfer = core->new_request(std::move(target), operation == NIXL_WRITE);
		int status = fill(*fresh->transfer, local, remote);
		if (status < 0)
			return status;
		fresh->transfer->warm_up();
		out = fresh.release();
		return 0;
	});
}

nixl_status_t backend::postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
				const std::string &, nixlBackendReqH *&out, const nixl_opt_b_args_t *options) const
{
	return guarded([&] {
		const std::string *notice = options && options->hasNotif ? &options->notifMsg : nullptr;
		return static_cast<handle *>(out)->transfer->post(notice);
	});
}

nixl_status_t backend::checkXfer(nixlBackendReqH *posted) const
{
	return guarded([&] { return static_cast<handle *>(posted)->transfer->check(); });
}

nixl_status_t backend::releaseReqH(nixlBackendReqH *posted) const
{
	return guarded([&] {
		int status = static_cast<handle *>(posted)->transfer->release();
		if (status == 0)
			delete static_cast<handle *>(posted);
		return status;
	});
}

nixl_status_t backend::getNotifs(notif_list_t &list)
{
	return guarded([&] {
		core->take_notices(list);
		return 0;
	});
}

nixl_status_t backend::genNotif(const std::string &agent, const std::string &msg) const
{
	return guarded([&] {
		auto target = core->find_agent(agent);
		return target ? target->send(msg) : -ENOENT;
	});
}

nixlBackendEngine *create_engine(const nixlBackendInitParams *params)
{
	try {
		return new backend(params);
	} catch (const std::exception &problem) {
		warn("cannot create the engine: %s", problem.what());
		return nullptr;
	}
}

void destroy_engine(nixlBackendEngine *gone)
{
	delete gone;
}

nixlBackendPlugin table = {
	NIXL_PLUGIN_API_VERSION,
	create_engine,
	destroy_engine,
	[] { return "PEERLANE"; },
	[] { return PLUGIN_VERSION " for NIXL " PLUGIN_NIXL_VERSION; },
	[] { return nixl_b_params_t(parameter_names()); },
	[] {
		return nixl_mem_list_t{ DRAM_SEG, VRAM_SEG };
	},
};

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
	return &table;
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
}
