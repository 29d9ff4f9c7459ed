/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory with IP interfaces, if PEERLANE_GPU_MEMORY is 1. NCCL has no other choice for a device that promises GPU
 * memory and fails, so a transfer in this process comes first, whose bytes are compared: over the fabric between
 * processes of this host, or over tcp.
 */
#include <stdio.h>
#include <stdlib.h>

#include "memory/cuda/cuda.h"
#include "state.h"

#define PROOF_BYTES ((size_t)256 << 10)
#define PROOF_TIME (30 * PL_NS_PER_S)

/* Connection of a context of this process with itself. */
struct proof {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_peer *from, *to;
};

static void proof_close(struct proof *proof)
{
	if (proof->from)
		pl_peer_close(proof->from);
	if (proof->to)
		pl_peer_close(proof->to);
	if (proof->listener)
		pl_listener_close(proof->listener);
	if (proof->context)
		pl_close(proof->context);
}

static int proof_open(struct proof *proof, const char *address, struct pl_error *error)
{
	struct pl_operation *connecting = NULL;
	struct pl_completion completion;
	char bound[80];
	int rc;

	*proof = (struct proof){ 0 };
	rc = pl_open(&proof->context, &plugin.settings.options, error);
	if (rc == 0)
		rc = pl_listen(proof->context, address, &proof->listener, error);
	if (rc == 0) {
		pl_listener_address(proof->listener, bound, sizeof(bound));
		rc = pl_connect_start(proof->context, bound, PROOF_TIME, 0, &connecting, error);
	}
	if (rc == 0)
		rc = pl_accept(proof->listener, PROOF_TIME, &proof->to, error);
	if (connecting) {
		int connected = pl_wait(connecting, PROOF_TIME, &completion, rc == 0 ? error : NULL);

		if (connected == 0)
			proof->from = completion.peer;
		rc = rc ? rc : connected;
	}
	return rc;
}

/* Memory of one GPU, which has a region of the context. */
struct proof_end {
	struct pl_memory memory;
	struct pl_region *region;
};

static int proof_end_open(struct proof_end *end, struct pl_context *context, int gpu, unsigned access,
			  struct pl_error *error)
{
	char kind[16];
	int rc;

	memset(end, 0, sizeof(*end));
	snprintf(kind, sizeof(kind), "cuda:%d", gpu);
	rc = pl_memory_allocate(&end->memory, kind, PROOF_BYTES, error);
	if (rc < 0)
		return rc;
	rc = pl_region_register(context, end->memory.address, PROOF_BYTES, access, &end->region, error);
	if (rc < 0)
		pl_memory_release(&end->memory);
	return rc;
}

static void proof_end_close(struct proof_end *end)
{
	pl_region_deregister(end->region);
	pl_memory_release(&end->memory);
}

static int proof_write(const struct proof *proof, const struct proof_end *from, const struct proof_end *to,
		       struct pl_completion *completion, struct pl_error *error)
{
	struct pl_transfer transfer = { .region = from->region, .length = PROOF_BYTES };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	int rc = pl_region_share(to->region, NULL, token, &length, error);

	if (rc == 0)
		rc = pl_remote_import(proof->from, token, length, PROOF_TIME, &transfer.remote, error);
	if (rc < 0)
		return rc;
	/* Messages have the same flag. */
	attributes.flags = PL_NO_WAIT;
	rc = pl_write(proof->from, &transfer, &attributes, &operation, error);
	if (rc == 0)
		rc = pl_wait(operation, PROOF_TIME, completion, error);
	pl_remote_release(transfer.remote);
	return rc;
}

/* Returns 0, or a negative errno with the reason. */
static int proof_compare(const struct proof *proof, const struct proof_end *from, struct proof_end *to,
			 struct pl_completion *completion, struct pl_error *error)
{
	uint8_t *sent = malloc(2 * PROOF_BYTES), *received;
	int rc;

	if (!sent)
		return pl_fail_memory(error, "proof");
	received = sent + PROOF_BYTES;
	rc = pl_random(sent, PROOF_BYTES);
	if (rc < 0)
		pl_fail_errno(error, rc, "SYSTEM", "getrandom", NULL);
	if (rc == 0)
		rc = pl_region_copy_in(from->region, 0, sent, PROOF_BYTES, error);
	if (rc == 0)
		rc = proof_write(proof, from, to, completion, error);
	if (rc == 0)
		rc = pl_region_copy_out(to->region, 0, received, PROOF_BYTES, error);
	if (rc == 0 && memcmp(sent, received, PROOF_BYTES))
		rc = pl_fail(error, -EIO, "GPU-PROOF", "pl_write", NULL, "leave PEERLANE_GPU_MEMORY unset",
			     "wrong bytes arrived");
	free(sent);
	return rc;
}

static bool prove_gpus(const struct proof *proof, int from_gpu, int to_gpu)
{
	struct pl_completion completion = { 0 };
	struct proof_end from, to;
	struct pl_error error;
	int rc = proof_end_open(&from, proof->context, from_gpu, PL_ACCESS_LOCAL, &error);

	if (rc == 0) {
		rc = proof_end_open(&to, proof->context, to_gpu, PL_ACCESS_WRITE, &error);
		if (rc == 0) {
			rc = proof_compare(proof, &from, &to, &completion, &error);
			proof_end_close(&to);
		}
		proof_end_close(&from);
	}
	if (rc == 0)
		plugin_info("GPU memory from GPU %d to GPU %d: %s", from_gpu, to_gpu,
			    completion.reason ? completion.reason : "proven");
	else
		plugin_info("GPU memory from GPU %d to GPU %d is not reached: %s", from_gpu, to_gpu, error.message);
	return rc == 0;
}

/* Each used GPU sends to the next one; a single one to itself. */
static bool prove_all(const char *address, const int *gpus, int count)
{
	struct pl_error error;
	struct proof proof;
	bool proven = true;

	if (proof_open(&proof, address, &error) < 0) {
		plugin_info("GPU memory is not used: %s", error.message);
		proven = false;
	}
	for (int i = 0; i < count && proven; i++)
		proven = prove_gpus(&proof, gpus[i], gpus[(i + 1) % count]);
	proof_close(&proof);
	return proven;
}

bool interfaces_prove_gpus(const char *address)
{
	int gpus[GPUS_MAX], count = gpus_used(gpus, GPUS_MAX);
	uint64_t used = 0;

	if (count == 0) {
		plugin_info("GPU memory is not used: the program uses no GPU yet");
		return false;
	}
	for (int i = 0; i < count; i++)
		used |= 1ull << gpus[i] % GPUS_MAX;
	if (used == plugin.proven_gpus)
		return true;
	/* NCCL's kernels wait for messages, and can hold up copies that are not a copy engine's. */
	cuda_gpus_are_occupied();
	plugin.proven_gpus = prove_all(address, gpus, count) ? used : 0;
	return plugin.proven_gpus;
}
