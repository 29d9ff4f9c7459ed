/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that share the state of the local fabric: the gates of a connection, its access paths, and the state of a
 * context. ThreadSanitizer reports an access without the lock, and memory that a gate does not guard.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/remote.h"
#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/environment.h"

#define SIZE 4096
#define GATE_ROUNDS 300
#define READERS 2
#define NUMBER 5
#define CONNECTIONS 5
#define BATCHES 8
#define BATCH 50
#define STATES 20

/* -- gates -------------------------------------------------------------------------------------------------------- */

struct gate_rig {
	struct local_gates *gates;
	struct pl_key key;
	int sockets[2];
	uint64_t memory[2]; /* the gate guards it: the owner changes it while the gate is shut */
	atomic_bool done;
};

static void check_memory(const struct gate_rig *rig)
{
	check_number(rig->memory[0], rig->memory[1]);
}

/* Uses the memory through the gate, as a slot's holder and as a counted one in turn. */
static void *read_through_gate(void *argument)
{
	struct gate_rig *rig = argument;
	struct local_gate *gate = &rig->gates->gates[0];

	while (!atomic_load(&rig->done)) {
		_Atomic uint32_t *slot = local_gate_enter(gate, NUMBER);

		if (slot) {
			check_memory(rig);
			local_gate_leave(gate, slot);
		}
		if (local_gate_hold(gate, NUMBER)) {
			check_memory(rig);
			local_gate_release(gate);
		}
	}
	return NULL;
}

/* Replaces the socket of the gates, as a connection that opens and closes does. */
static void *change_socket(void *argument)
{
	struct gate_rig *rig = argument;

	while (!atomic_load(&rig->done)) {
		local_gates_set_fd_socket(rig->gates, rig->sockets[0]);
		sched_yield();
		local_gates_set_fd_socket(rig->gates, -1);
	}
	return NULL;
}

/* Opens the gate of a revoked key, so that the owner reports the revocation when it shuts the gate. */
static void open_gate(struct gate_rig *rig)
{
	int rc;

	/* A reader that tries the shut gate is a holder for a moment. */
	while ((rc = local_gate_open(rig->gates, &rig->key, NUMBER, true)) == -EBUSY)
		sched_yield();
	check_number(rc, 0);
}

static void shut_gate(struct gate_rig *rig)
{
	struct pl_list ended;

	pl_list_init(&ended);
	pl_registrations_release(&rig->key.registrations, &ended);
	pl_registrations_finish(&ended);
}

static void use_gate_in_threads(void *argument)
{
	struct gate_rig rig = { .key = { .id = 0 } };
	pthread_t threads[READERS + 1];
	char record[64];

	(void)argument;
	rig.gates = local_gates_new(&pl_system_allocator, LOCAL_GATES_LEAST, NULL);
	check(rig.gates);
	check_number(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, rig.sockets), 0);
	pl_list_init(&rig.key.registrations);
	atomic_init(&rig.key.revoked, true);
	for (unsigned i = 0; i <= READERS; i++)
		check_number(pthread_create(&threads[i], NULL, i < READERS ? read_through_gate : change_socket, &rig),
			     0);
	for (unsigned i = 0; i < GATE_ROUNDS; i++) {
		open_gate(&rig);
		usleep(100);
		shut_gate(&rig);
		rig.memory[0]++;
		rig.memory[1]++;
		while (recv(rig.sockets[1], record, sizeof(record), 0) > 0)
			;
	}
	atomic_store(&rig.done, true);
	for (unsigned i = 0; i <= READERS; i++)
		check_number(pthread_join(threads[i], NULL), 0);
	local_gates_put(rig.gates);
	close(rig.sockets[0]);
	close(rig.sockets[1]);
}

/* -- access paths ------------------------------------------------------------------------------------------------- */

/* Remote regions whose peer is closed at this end: any thread may end their access paths. */
struct orphans {
	struct pl_remote *remotes[BATCH];
	bool slowly; /* so that the end of the peer comes between two releases */
	pthread_t thread;
};

static void *release_orphans(void *argument)
{
	struct orphans *orphans = argument;

	for (unsigned i = 0; i < BATCH; i++) {
		pl_remote_release(orphans->remotes[i]);
		if (orphans->slowly)
			usleep(20);
	}
	return NULL;
}

/* Imports regions, and takes their peer from them, as the end of the peer does. */
static void import_orphans(struct scenario_environment *environment, const uint8_t *token, size_t length,
			   struct orphans *orphans)
{
	for (unsigned i = 0; i < BATCH; i++)
		orphans->remotes[i] = import_token(environment, environment->near_peer, token, length);
	pthread_mutex_lock(&environment->near->lock);
	for (unsigned i = 0; i < BATCH; i++)
		orphans->remotes[i]->peer = NULL;
	pthread_mutex_unlock(&environment->near->lock);
}

/* Learns of the end of a key that no remote region has. */
static void receive_revocations(struct pl_peer *peer)
{
	for (unsigned i = 0; i < BATCH; i++) {
		pl_engine_lock(peer->home);
		local_key_revoked(local_endpoint_of(peer->endpoint), UINT64_MAX);
		pl_engine_unlock(peer->home);
	}
}

static void use_accesses_in_threads(void *argument)
{
	const struct setting setting = {
		.name = "threads",
		.fabric = "local",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_THREAD,
		.lanes = 1,
	};

	(void)argument;
	for (unsigned connection = 0; connection < CONNECTIONS; connection++) {
		struct scenario_environment environment;
		struct orphans orphans[BATCHES];
		uint8_t token[PL_TOKEN_MAX];
		size_t length = sizeof(token);
		struct buffer far;

		environment_open(&environment, &setting);
		buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
		check_ok(pl_region_share(far.region, NULL, token, &length, NULL), NULL);
		for (unsigned i = 0; i < BATCHES; i++) {
			import_orphans(&environment, token, length, &orphans[i]);
			orphans[i].slowly = i == BATCHES - 1;
			check_number(pthread_create(&orphans[i].thread, NULL, release_orphans, &orphans[i]), 0);
			receive_revocations(environment.near_peer);
		}
		pl_peer_close(environment.near_peer);
		environment.near_peer = NULL;
		for (unsigned i = 0; i < BATCHES; i++)
			check_number(pthread_join(orphans[i].thread, NULL), 0);
		buffer_close(&far);
		environment_close(&environment);
	}
}

/* -- completions of closed peers ----------------------------------------------------------------------------------- */

struct writer {
	struct scenario_environment *environment;
	struct pl_transfer transfer;
	atomic_bool done;
};

static struct pl_operation *write_to(struct pl_peer *peer, const struct pl_transfer *transfer)
{
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_write(peer, transfer, NULL, &operation, &error), &error);
	return operation;
}

static void check_peer(struct pl_operation *operation, const struct pl_peer *peer)
{
	struct pl_completion completion;
	struct pl_error error;

	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check(completion.peer == peer);
}

/* Its operations belong to a peer that stays, while other peers are closed. */
static void *write_often(void *argument)
{
	struct writer *writer = argument;
	struct pl_peer *peer = writer->environment->near_peer;

	while (!atomic_load(&writer->done))
		check_peer(write_to(peer, &writer->transfer), peer);
	return NULL;
}

static void close_peers_of_completions(void *argument)
{
	const struct setting setting = { .name = "completions",
					 .fabric = "local",
					 .host = "127.0.0.1",
					 .progress = PL_PROGRESS_THREAD,
					 .lanes = 1 };
	struct scenario_environment environment;
	struct writer writer = { .environment = &environment };
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct buffer near, far;
	pthread_t thread;

	(void)argument;
	environment_open(&environment, &setting);
	buffer_open(&near, environment.near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, SIZE, PL_ACCESS_ALL);
	check_ok(pl_region_share(far.region, NULL, token, &length, NULL), NULL);
	writer.transfer.region = near.region;
	writer.transfer.length = 8;
	writer.transfer.remote = import_token(&environment, environment.near_peer, token, length);
	check_number(pthread_create(&thread, NULL, write_often, &writer), 0);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct pl_transfer transfer = writer.transfer;
		struct pl_operation *operation;
		struct pl_peer *peer;

		check_ok(pl_connect(environment.near, environment.address, 0, &peer, NULL), NULL);
		transfer.remote = import_token(&environment, peer, token, length);
		operation = write_to(peer, &transfer);
		pl_peer_close(peer);
		check_peer(operation, NULL);
	}
	atomic_store(&writer.done, true);
	check_number(pthread_join(thread, NULL), 0);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* -- the state of a context --------------------------------------------------------------------------------------- */

struct state_rig {
	struct pl_context *context;
	pthread_barrier_t together;
};

static void *get_state(void *argument)
{
	struct state_rig *rig = argument;
	struct pl_error error;

	pthread_barrier_wait(&rig->together);
	return local_state_get(rig->context, &error);
}

static void get_state_in_threads(void *argument)
{
	struct pl_options options = PL_OPTIONS_INIT;

	(void)argument;
	for (unsigned i = 0; i < STATES; i++) {
		struct state_rig rig = { .context = context_open_with(&options) };
		void *states[2];
		pthread_t threads[2];

		check_number(pthread_barrier_init(&rig.together, NULL, 2), 0);
		for (unsigned j = 0; j < 2; j++)
			check_number(pthread_create(&threads[j], NULL, get_state, &rig), 0);
		for (unsigned j = 0; j < 2; j++)
			check_number(pthread_join(threads[j], &states[j]), 0);
		check(states[0] && states[0] == states[1]);
		pthread_barrier_destroy(&rig.together);
		pl_close(rig.context);
	}
}

static const struct test_case cases[] = {
	{ "gate", use_gate_in_threads, NULL, 30 },
	{ "accesses", use_accesses_in_threads, NULL, 30 },
	{ "state", get_state_in_threads, NULL, 30 },
	{ "completions", close_peers_of_completions, NULL, 30 },
};

int main(void)
{
	return cases_run("local-threads", cases, PL_ARRAY_SIZE(cases));
}
