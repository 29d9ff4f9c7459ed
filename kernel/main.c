/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Loading and unloading: registers one or two clients with IB core's peer memory interface. */
#include "peermem.h"

#include <linux/err.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

#include "nvidia_p2p.h"

/* Module parameters with the names and values of nvidia-peermem. */
static int peerdirect_support;
module_param(peerdirect_support, int, 0444);
MODULE_PARM_DESC(peerdirect_support, "interface of IB core: 0 current (default), 1 that of MLNX_OFED LTS 4.9");

static int persistent_api_support = 1;
module_param(persistent_api_support, int, 0444);
MODULE_PARM_DESC(persistent_api_support,
		 "pins that outlive the memory: 1 if the driver supports them (default), 0 never");

static char *name = "nv_mem";
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "name of the clients; programs look for nvidia-peermem's name, nv_mem (default)");

/* Suffix of the name of the client with persistent pins, which have no free callback. */
#define NO_CALLBACK "_nc"

static struct pm_client persistent;
static struct pm_client revocable;

static int acquire_persistent(unsigned long addr, size_t size, void *private, char *peer, void **context)
{
	return pm_acquire(&persistent, addr, size, context);
}

static int acquire_revocable(unsigned long addr, size_t size, void *private, char *peer, void **context)
{
	return pm_acquire(&revocable, addr, size, context);
}

static struct pm_client persistent = {
	.ex.client.acquire = acquire_persistent,
	.persistent = true,
};

/* Client with revocable pins.  IB core asks it second, for memory that has no persistent pins (GPUs with MIG). */
static struct pm_client revocable = {
	.ex.client.acquire = acquire_revocable,
	.last = true,
};

static int client_register(struct pm_client *client)
{
	struct peer_memory_client *basic = &client->ex.client;
	void *handle;
	int (*acquire)(unsigned long, size_t, void *, char *, void **) = basic->acquire;

	*basic = pm_callbacks;
	basic->acquire = acquire;
	snprintf(basic->name, sizeof(basic->name), "%s%s", name, client->persistent ? NO_CALLBACK : "");
	strscpy(basic->version, PM_VERSION, sizeof(basic->version));
	if (!peerdirect_support) {
		basic->version[IB_PEER_MEMORY_VER_MAX - 1] = 1;
		client->ex.ex_size = sizeof(client->ex);
		client->ex.flags = PEER_MEM_INVALIDATE_UNMAPS;
	}
	handle = ib_register_peer_memory_client(basic, client->persistent ? NULL : &client->invalidate);
	if (handle) {
		/* Revocation needs the handle, so pm_acquire() refuses memory before this store. */
		smp_store_release(&client->handle, handle);
		return 0;
	}
	pr_err("IB core refuses the client %s: unload nvidia_peermem, or change peerdirect_support=%d\n",
	       basic->name, peerdirect_support);
	return -EINVAL;
}

static void client_unregister(struct pm_client *client)
{
	if (client->handle)
		ib_unregister_peer_memory_client(client->handle);
	client->handle = NULL;
}

/* Checks parameters and weak symbols, which are NULL if missing.  Logs the reason: loading gives only an errno. */
static int check_interfaces(void)
{
	if (peerdirect_support < 0 || peerdirect_support > 1) {
		pr_err("peerdirect_support is 0 or 1, not %d\n", peerdirect_support);
		return -EINVAL;
	}
	if (persistent_api_support < 0 || persistent_api_support > 1) {
		pr_err("persistent_api_support is 0 or 1, not %d\n", persistent_api_support);
		return -EINVAL;
	}
	if (!*name || strchr(name, '/') || strlen(name) >= IB_PEER_MEMORY_NAME_MAX - strlen(NO_CALLBACK)) {
		pr_err("name \"%s\" cannot be the name of a folder in /sys/kernel/mm/memory_peers\n", name);
		return -EINVAL;
	}
	if (!ib_register_peer_memory_client || !ib_unregister_peer_memory_client) {
		pr_err("ib_core has no interface for peer memory: install MLNX_OFED or DOCA-OFED, or use dma-buf\n");
		return -EOPNOTSUPP;
	}
	if (!nvidia_p2p_get_pages || !nvidia_p2p_put_pages || !nvidia_p2p_dma_map_pages ||
	    !nvidia_p2p_dma_unmap_pages || !nvidia_p2p_free_page_table || !nvidia_p2p_free_dma_mapping) {
		pr_err("no NVIDIA driver with nvidia_p2p functions is loaded: load nvidia first\n");
		return -ENODEV;
	}
	return 0;
}

static bool driver_has_persistent(void)
{
	return nvidia_p2p_get_pages_persistent && nvidia_p2p_put_pages_persistent;
}

static int __init peermem_init(void)
{
	int status = check_interfaces();

	if (status)
		return status;
	status = pm_counters_create();
	if (status) {
		pr_err("cannot make /proc/driver/" KBUILD_MODNAME "\n");
		return status;
	}
	if (persistent_api_support && driver_has_persistent())
		status = client_register(&persistent);
	if (!status)
		status = client_register(&revocable);
	if (status) {
		client_unregister(&persistent);
		pm_counters_destroy();
		return status;
	}
	pr_info("version " PM_VERSION ", pins: %s, interface of IB core: %s\n",
		persistent.handle ? "persistent, else revocable" : "revocable",
		peerdirect_support ? "that of 4.9" : "current");
	return 0;
}

static void __exit peermem_exit(void)
{
	client_unregister(&revocable);
	client_unregister(&persistent);
	pm_counters_destroy();
}

module_init(peermem_init);
module_exit(peermem_exit);

MODULE_DESCRIPTION("RDMA devices reach memory of NVIDIA GPUs: a client of IB core's peer memory interface");
MODULE_AUTHOR("The Peerlane authors");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(PM_VERSION);
MODULE_SOFTDEP("pre: ib_core nvidia");
