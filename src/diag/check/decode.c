/* SPDX-License-Identifier: BSD-2-Clause */
/* Names and numbers of errors; decode_table.c has the table of causes. */
#include "diag/check/decode.h"

#include <stdlib.h>

#include "diag/check/decode_table.h"

/* Number of the kernel that user space has no name for. */
#define KERNEL_ENOTSUPP 524

struct symbol {
	int number;
	const char *name, *meaning;
};

static const struct symbol cuda_symbols[] = {
	{ 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
	{ 800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized" },
	{ 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination" },
	{ 999, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

/* enum ibv_wc_status. */
static const struct symbol completion_symbols[] = {
	{ 1, "IBV_WC_LOC_LEN_ERR", "local length error" },
	{ 2, "IBV_WC_LOC_QP_OP_ERR", "local QP operation error" },
	{ 3, "IBV_WC_LOC_EEC_OP_ERR", "local EE context operation error" },
	{ 4, "IBV_WC_LOC_PROT_ERR", "local protection error" },
	{ 5, "IBV_WC_WR_FLUSH_ERR", "Work Request Flushed Error" },
	{ 6, "IBV_WC_MW_BIND_ERR", "memory bind operation error" },
	{ 7, "IBV_WC_BAD_RESP_ERR", "bad response error" },
	{ 8, "IBV_WC_LOC_ACCESS_ERR", "local access error" },
	{ 9, "IBV_WC_REM_INV_REQ_ERR", "remote invalid request error" },
	{ 10, "IBV_WC_REM_ACCESS_ERR", "remote access error" },
	{ 11, "IBV_WC_REM_OP_ERR", "remote operation error" },
	{ 12, "IBV_WC_RETRY_EXC_ERR", "transport retry counter exceeded" },
	{ 13, "IBV_WC_RNR_RETRY_EXC_ERR", "RNR retry counter exceeded" },
	{ 19, "IBV_WC_FATAL_ERR", "fatal error" },
	{ 20, "IBV_WC_RESP_TIMEOUT_ERR", "response timeout error" },
	{ 21, "IBV_WC_GENERAL_ERR", "general error" },
};

/* Other names of calls, with the same causes. */
static const struct {
	const char *name, *known;
} aliases[] = {
	{ "ibv_reg_mr_iova", "ibv_reg_mr" },
	{ "ibv_reg_mr_iova2", "ibv_reg_mr" },
	{ "rdma_reg_msgs", "ibv_reg_mr" },
	{ "rdma_reg_read", "ibv_reg_mr" },
	{ "rdma_reg_write", "ibv_reg_mr" },
	{ "mlx5dv_reg_dmabuf_mr", "ibv_reg_dmabuf_mr" },
	{ "rdma_create_qp", "ibv_create_qp" },
	{ "ibv_create_qp_ex", "ibv_create_qp" },
	{ "ibv_create_cq", "ibv_create_qp" },
	{ "ibv_create_srq", "ibv_create_qp" },
	{ "ibv_get_device_list", "ibv_open_device" },
	{ "rdma_resolve_route", "rdma_resolve_addr" },
	{ "rdma_bind_addr", "rdma_resolve_addr" },
	{ "rdma_listen", "rdma_resolve_addr" },
	{ "rdma_create_event_channel", "rdma_resolve_addr" },
	{ "rdma_create_id", "rdma_resolve_addr" },
	{ "nvidia_p2p_get_pages_persistent", "nvidia_p2p_get_pages" },
	{ "nvidia_p2p_dma_map_pages", "nvidia_p2p_get_pages" },
	{ "gdr_pin_buffer", "nvidia_p2p_get_pages" },
	{ "rdma_accept", "rdma_connect" },
	{ "cudaMemGetHandleForAddressRange", "cuMemGetHandleForAddressRange" },
	{ "cudaMalloc", "cuMemAlloc" },
	{ "cudaMallocAsync", "cuMemAlloc" },
	{ "cuMemCreate", "cuMemAlloc" },
	{ "cudaSetDevice", "cuInit" },
	{ "cudaGetDeviceCount", "cuInit" },
	{ "init_module", "modprobe" },
	{ "wc", "ibv_poll_cq" },
};

const char *pl_decode_call_at(size_t index)
{
	for (size_t i = 0; i < pl_decode_entry_count; i++)
		if ((i == 0 || strcmp(pl_decode_entries[i].call, pl_decode_entries[i - 1].call)) && !index--)
			return pl_decode_entries[i].call;
	return NULL;
}

int pl_decode_kind_of(const char *call, const char **known)
{
	const char *name;

	for (size_t i = 0; i < PL_ARRAY_SIZE(aliases); i++)
		if (!strcmp(call, aliases[i].name))
			call = aliases[i].known;
	for (size_t i = 0; (name = pl_decode_call_at(i)); i++) {
		if (strcmp(call, name))
			continue;
		*known = name;
		if (!strcmp(name, "ibv_poll_cq"))
			return PL_DECODE_COMPLETION;
		return !strncmp(name, "cu", 2) ? PL_DECODE_CUDA : PL_DECODE_ERRNO;
	}
	return -ENOENT;
}

static const struct symbol *symbols_of(enum pl_decode_kind kind, size_t *count)
{
	*count = kind == PL_DECODE_CUDA ? PL_ARRAY_SIZE(cuda_symbols) : PL_ARRAY_SIZE(completion_symbols);
	return kind == PL_DECODE_CUDA ? cuda_symbols : completion_symbols;
}

/* True if the letters are equal: cudaErrorNotSupported is CUDA_ERROR_NOT_SUPPORTED. */
static bool same_letters(const char *a, const char *b)
{
	while (*a || *b) {
		if (*a == '_')
			a++;
		else if (*b == '_')
			b++;
		else if ((*a++ | 0x20) != (*b++ | 0x20))
			return false;
	}
	return true;
}

static int by_name(enum pl_decode_kind kind, const char *text)
{
	const struct symbol *symbols;
	size_t count;

	if (kind == PL_DECODE_ERRNO) {
		for (int i = 1; i < 4096; i++) {
			const char *name = strerrorname_np(i), *meaning = strerrordesc_np(i);

			if (name && (!strcmp(name, text) || (meaning && !strcmp(meaning, text))))
				return i;
		}
		/* Names that share a number, and a number that the kernel should not expose. */
		if (!strcmp(text, "ENOTSUP") || !strcmp(text, "EOPNOTSUPP") || !strcmp(text, "ENOTSUPP"))
			return EOPNOTSUPP;
		return !strcmp(text, "EWOULDBLOCK") ? EAGAIN : -EINVAL;
	}
	symbols = symbols_of(kind, &count);
	for (size_t i = 0; i < count; i++)
		if (same_letters(symbols[i].name, text) || !strcmp(symbols[i].meaning, text))
			return symbols[i].number;
	return -EINVAL;
}

int pl_decode_number(enum pl_decode_kind kind, const char *text)
{
	long number;
	char *end;

	errno = 0;
	number = strtol(text, &end, 10);
	if (end != text && !*end && !errno && number > -4096 && number < 4096)
		return kind == PL_DECODE_ERRNO && labs(number) == KERNEL_ENOTSUPP ? EOPNOTSUPP : (int)labs(number);
	return by_name(kind, text);
}

const char *pl_decode_symbol(enum pl_decode_kind kind, int number)
{
	const struct symbol *symbols;
	size_t count;

	if (kind == PL_DECODE_ERRNO)
		return strerrorname_np(number);
	symbols = symbols_of(kind, &count);
	for (size_t i = 0; i < count; i++)
		if (symbols[i].number == number)
			return symbols[i].name;
	return NULL;
}

const char *pl_decode_meaning(enum pl_decode_kind kind, int number)
{
	const struct symbol *symbols;
	const char *text;
	size_t count;

	if (kind == PL_DECODE_ERRNO) {
		text = strerrordesc_np(number);
		return text ? text : "unknown error";
	}
	symbols = symbols_of(kind, &count);
	for (size_t i = 0; i < count; i++)
		if (symbols[i].number == number)
			return symbols[i].meaning;
	return "unknown error";
}

const struct pl_decode_entry *pl_decode_find(const char *call, int number)
{
	const struct pl_decode_entry *other = NULL;

	for (size_t i = 0; i < pl_decode_entry_count; i++) {
		const struct pl_decode_entry *entry = &pl_decode_entries[i];

		if (strcmp(entry->call, call))
			continue;
		if (entry->error == number)
			return entry;
		other = entry->error ? other : entry;
	}
	return other;
}
