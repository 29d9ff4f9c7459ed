/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State of the plugin. NCCL's tables have no context before version 11, so the state belongs to the process. One lock
 * protects everything but the copy threads' queue.
 */
#ifndef PLUGIN_STATE_H
#define PLUGIN_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "copy_threads.h"
#include "core.h"
#include "mailbox.h"
#include "message.h"

#define DEVICES_MAX 32
#define ID_LENGTH 16

/* IP interface or port of an RDMA card: a device of NCCL. Listens as soon as NCCL does. */
struct plugin_device {
	char name[80];
	char port[80];      /* RDMA port as pl_options.devices names it, "mlx5_0:1"; "": an IP interface */
	char pci_path[256]; /* "": not of a PCI device */
	char address[80];   /* numeric, with port 0; of a card: that of the first interface */
	int speed;          /* Mbit/s */
	uint64_t guid;
	int port_number;
	int pointers;               /* kinds of memory: NET_POINTER_... */
	struct pl_context *context; /* interfaces share one; a card's uses that port alone */
	bool used;                  /* the context may have completions */
	struct pl_listener *listener;
	char bound[80]; /* numeric, with the port of the listener */
};

/* Settings from the environment. */
struct plugin_settings {
	struct pl_options options;
	uint8_t key[PL_KEY_MAX];
	unsigned copy_threads;
	int speed;               /* Mbit/s; 0: that of the interface */
	bool gpu_memory;         /* NCCL's buffers may be in GPU memory with interfaces, too */
	uint64_t accept_timeout; /* nanoseconds */
	char wrong[400];         /* reason why a value was refused; else empty */
};

enum link_state { LINK_CONNECTING, LINK_UP, LINK_LOST };

/* Connection to another process, or to this one, shared by all comms. */
struct plugin_link {
	struct pl_list link; /* of the plugin */
	struct pl_list comms;
	enum link_state state;
	struct plugin_device *device;
	int gpu;               /* to this process, with GPU memory: the GPU whose rank connected; else -1 */
	bool self;             /* both ends are this process: no peer */
	bool incoming;         /* the other end connected */
	bool local;            /* this process's threads copy the bytes of pl_write() */
	uint8_t id[ID_LENGTH]; /* of the other process, if this end connected */
	char address[80];
	struct pl_peer *peer; /* NULL: none yet, or closed */
	struct mailbox *mailbox; /* NULL: messages are notifications */
	unsigned running;     /* requests that may use the peer */
	bool connecting;      /* a completion of pl_connect_start() will come */
	bool gone;            /* the library has lost the peer, and ends its operations */
	bool staged;          /* the log has the reason why bytes are staged */
	bool gpu_path_told;   /* the log has the path of bytes that a GPU copies */
	uint64_t events;      /* number of the last event of the peer that was read */
	char path[208];       /* to the other end's memory, as the library describes it; "": not known yet */
};

/* NCCL's communicator, for tables of version 11 and later. */
struct plugin_owner {
	struct pl_list listeners, comms;
};

/* Greeting that waits for plugin_accept(). */
struct greeting {
	struct pl_list link;
	struct plugin_link *from; /* NULL: it was lost */
	uint32_t comm;
};

struct plugin_listener {
	struct pl_list link; /* of the owner */
	struct pl_list all;  /* of the plugin */
	struct plugin_owner *owner;
	uint32_t id;
	uint64_t nonce;
	uint64_t first_accept; /* time of the first plugin_accept(); 0: none */
	struct pl_list greetings;
	unsigned greeting_count;
};

/* Registered memory of this end. */
struct plugin_memory {
	struct pl_list link; /* of the comm */
	uint8_t *address;
	size_t length;
	uint32_t id;
	bool on_gpu;              /* the processor does not reach it */
	bool ending;              /* no thread begins to use it */
	unsigned opening;         /* threads that open remotes for it, without the lock */
	struct pl_region *region; /* NULL: the other end is this process */
};

/* Memory of the other end, to which this end sends. */
struct plugin_remote {
	struct pl_list link;      /* of the comm */
	struct plugin_comm *comm; /* NULL: closed while the import runs */
	uint32_t id;
	uint64_t length;
	bool on_gpu;              /* the other end's processor does not reach it */
	uint8_t *address;         /* the other end is this process */
	struct pl_remote *remote; /* else; NULL: the import runs, or failed */
	struct pl_error failure;  /* of the import; code 0: none */
	unsigned running;         /* requests that write to it, and threads that open it */
	bool dropped;             /* released after these */
	struct pl_list unopened;  /* of the plugin, until a thread opens it for the comm's memory */
	unsigned opening;         /* threads that will open it, or do; requests wait */
	uint64_t opened;          /* bits of this end's GPUs for which a thread opened it, or does */
};

enum request_state { REQUEST_FREE, REQUEST_RUNNING, REQUEST_DONE };

struct plugin_request {
	struct plugin_comm *comm;
	enum request_state state;
	uint32_t slot;
	size_t size;
	uint8_t *data;
	struct plugin_memory *memory; /* NULL: none, or deregistered meanwhile */

	/* Members of sends that write to the other end's memory. */
	struct copy_job job;
	struct plugin_remote *remote;
	uint64_t offset;    /* in the remote memory */
	size_t buffer_size; /* of the receive */
	bool notifies;      /* the write itself tells the other end */
	bool by_gpu;        /* a GPU copies between processes of this host */
	size_t piece;       /* bytes of a piece, the last one has the rest */
	atomic_uint pending;
	atomic_int status;
};

/* Receive that the other end has posted. */
struct posted_receive {
	bool valid;
	uint32_t memory;
	uint64_t offset, size;
};

enum comm_state { COMM_NEW, COMM_GREETED, COMM_READY, COMM_FAILED };

struct plugin_comm {
	struct pl_list link;  /* of the link */
	struct pl_list owned; /* of the owner */
	struct plugin_link *at;
	enum comm_state state;
	enum net_result failure;
	bool sends;
	bool joined; /* the other end has a comm for this one, and must learn of its end: true after a failure, too */
	bool closed_there; /* the other end posts no more */
	uint32_t id, remote_id;
	uint64_t nonce; /* of a pending connection */
	uint64_t begun; /* time of the first plugin_connect() */
	uint64_t next;  /* number of the next request */
	uint32_t next_memory, remote_count;
	struct pl_list memory, remotes;
	struct plugin_request requests[SLOTS];
	struct posted_receive posted[SLOTS]; /* of sends */
};

struct plugin {
	pthread_mutex_t lock;
	_Atomic pid_t pid; /* of the process that opened it; 0: none */
	net_log_function log;
	unsigned opened;
	uint8_t id[ID_LENGTH];
	struct plugin_settings settings;
	struct copy_threads copy_threads;
	struct plugin_device devices[DEVICES_MAX];
	int device_count;
	bool reopened; /* no call used a device since all communicators had ended */
	bool cards; /* all devices are ports of RDMA cards; else all are IP interfaces */
	bool gpu_memory; /* devices that are IP interfaces promise GPU memory */
	uint64_t proven_gpus; /* bits of the GPUs whose proof succeeded: later communicators need not wait for one */
	struct pl_list links, listeners, mailboxes;
	struct pl_list unopened;     /* remotes */
	struct plugin_owner forever; /* of tables before version 11 */
	struct plugin_comm **comms;  /* by identifier */
	uint32_t next_comm, next_listener;
	unsigned lost_links;
	atomic_uint gpu_copies;          /* running requests whose bytes a GPU copies; read without the lock, too */
	_Atomic uint64_t lock_poll_time; /* nanoseconds that a thread polls before it sleeps for the lock */
	uint64_t notifications, imports; /* that were begun and did not complete */
	uint64_t bytes_sent, bytes_received;
};

extern struct plugin plugin;

/* process.c: takes plugin.lock. */
void plugin_lock(void);

/* process.c: true in a child of the process that opened the plugin, which must leave the state alone. */
bool plugin_is_of_parent(void);

/* log.c */
void plugin_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void plugin_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void plugin_warn_error(const char *action, const struct pl_error *error);
/* Writes an error as one line. */
void plugin_format_error(const struct pl_error *error, char *text, size_t size);

/* settings.c: reads the environment. Returns false, and settings->wrong, if it refuses a value. */
bool settings_read(struct plugin_settings *settings);
/* The same for `peerlane check`, which loads the plugin and calls this function alone. */
__attribute__((visibility("default"))) bool peerlane_nccl_settings(char *wrong, size_t size);

/* name_list.c: true if a list of NCCL's form selects a name and port (0: names have no ports). */
bool name_list_selects(const char *list, const char *name, unsigned port);
/* True if a list of PEERLANE_DEVICES, of whole names, has a name and port. */
bool name_list_has(const char *list, const char *name, unsigned port);

/* interface.c: finds IP interfaces. Returns their number. */
int interfaces_find(struct plugin_device devices[DEVICES_MAX]);
#define GPUS_MAX 64
/* gpu_used.c: finds the GPUs whose CUDA context exists. Returns their number, at most `most`. */
int gpus_used(int *numbers, int most);
/* Returns the GPU of this thread's CUDA context; -1: it has none. */
int gpu_current(void);
/* gpu_fabric.c: proves that bytes go from GPU to GPU with IP interfaces. Logs the reason and returns false if not. */
bool interfaces_prove_gpus(const char *address);
struct verbs_library;
struct ibv_device;
/* gpu_proof.c: returns NET_POINTER_... flags for the memory of all GPUs that the program uses; 0: one is not reached. */
int gpus_prove(const struct verbs_library *library, struct ibv_device *card);
/* card.c: finds usable ports of RDMA cards. Returns their number. */
int cards_find(struct plugin_device devices[DEVICES_MAX]);
/* Speed of devices that tell none, as NCCL assumes. */
#define SPEED_UNKNOWN 10000

/* device.c */
bool devices_find(void);
/* Opens the contexts of all devices. Logs a failure and returns false. */
bool devices_open(void);
void devices_close(void);
/* Forgets contexts and listeners: they were closed, or are those of the parent process. */
void devices_forget(void);
/* Keeps the target of a link of sysfs up to its last PCI device: a virtio device, for example, lies below one. */
void device_keep_pci_path(struct plugin_device *device, const char *link);
/* Begins to listen on a device, if it does not. */
bool device_listen(struct plugin_device *device);
/* Waits for the next process that connects. */
void device_accept(struct plugin_device *device);

/* nccl_variables.c: sets variables of NCCL for the devices that were found, unless the user has set them. */
void nccl_variables_set(void);

/* link.c */
struct plugin_link *link_find_or_connect(struct plugin_device *device, const uint8_t id[ID_LENGTH],
					 const char *address);
void link_connected(struct plugin_link *link, const struct pl_completion *completion);
void link_accepted(struct plugin_device *device, const struct pl_completion *completion);
void link_lost(struct plugin_link *link, const char *reason);
/*
 * Logs what the library noted since the last call: the path to memory of the other end, unless it is that of other
 * memory, and limits that were reached.
 */
void link_log_events(struct plugin_link *link);
/* Closes lost connections that nothing uses. */
void links_reap(void);
/* Closes the peers of all connections, which are lost, 64 at the same time. */
void links_close_peers(void);
/* Frees all of them; the context is closed afterwards. */
void links_free(void);
/*
 * Writes by this thread. Returns 0 or a negative errno: -ECANCELED if the write was not done at once, and -ETIMEDOUT. Its
 * bytes may be there then.
 */
int link_write_now(struct plugin_link *link, const struct pl_transfer *transfer);
/* Sends a message, or handles it at once if both ends are this process. */
void link_send(struct plugin_link *link, const struct message *message);

/* progress.c: takes completions and finished copies, for all comms. */
void plugin_progress(void);
/* Begins a call of NCCL: takes the lock, completions and finished copies, and opens GPU memory without the lock. */
void plugin_begin(void);
/* Begins a call that ends the use of memory: opens none, because a driver that hangs would hold up the end for nothing. */
void plugin_begin_end(void);
void plugin_drain_notifications(uint64_t deadline);

/* dispatch.c: handles a message of the other end. */
void message_handle(struct plugin_link *link, const struct message *message);

/* comm.c */
struct plugin_comm *comm_new(struct plugin_owner *owner, struct plugin_link *link, bool sends);
/* Returns the comm of a message; NULL if there is none with that link and direction. */
struct plugin_comm *comm_find(const struct plugin_link *link, uint32_t id, bool sends);
void comm_fail(struct plugin_comm *comm, enum net_result result);
/* The comm is connected to a comm of the other end. */
void comm_join(struct plugin_comm *comm, uint32_t remote_id);
/* Ends all requests, tells the other end, and frees the comm. */
void comm_free(struct plugin_comm *comm);

/* rendezvous.c */
void listener_free(struct plugin_listener *listener);

/* memory.c */
/* Ends a registration: nothing touches the memory any more. */
void memory_end(struct plugin_comm *comm, struct plugin_memory *memory);
void remote_add(struct plugin_comm *comm, const struct message *message);
void remote_imported(struct plugin_remote *remote, const struct pl_completion *completion);
struct plugin_remote *remote_find(const struct plugin_comm *comm, uint32_t id);
/* Opens imported GPU memory for the memory of its comm. Gives the lock up meanwhile. */
void remotes_open(void);
/* Releases it if no request uses it. */
void remote_drop(struct plugin_remote *remote);

/* send.c */
/* A piece of a request ended, in a thread without the lock or with it. */
void request_piece_done(struct plugin_request *request, int status);
/* The same for a piece that the library moved, with the lock: logs its failure, or why its bytes were staged. */
void request_piece_completed(struct plugin_request *request, const struct pl_completion *completion);
/* All pieces ended. */
void request_finish(struct plugin_request *request);
/* Writes one piece, on any thread. */
void request_write_piece(struct plugin_request *request, size_t piece);
/* Cancels the running sends of a comm that use both memories (NULL: any), and waits until they ended. */
void sends_cancel(struct plugin_comm *comm, const struct plugin_memory *memory, const struct plugin_remote *remote);

/* user_data of completions: an aligned pointer, and the kind of object in its low bits. */
enum user_kind {
	USER_REQUEST,
	USER_NOTIFICATION,
	USER_LINK,
	USER_DEVICE,
	USER_REMOTE,
	USER_MAILBOX,
};
#define USER_KIND_MASK 7u

static inline uint64_t user_data(const void *object, enum user_kind kind)
{
	return (uint64_t)(uintptr_t)object | kind;
}

static inline void *user_object(uint64_t data)
{
	return (void *)(uintptr_t)(data & ~(uint64_t)USER_KIND_MASK);
}

#endif
