/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdma/data_direct.h"

#include <dlfcn.h>
#include <pthread.h>

#include "rdma/vendor.h"

#define LIBMLX5 "libmlx5.so.1"
#define VERSION "MLX5_1.25"
/* MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT. Headers of most systems are older. */
#define ACCESS_DATA_DIRECT 1

const char rdma_data_direct_reason[] =
	"verbs: the network card reads and writes the GPU's memory itself, by its Data Direct function";

/* Written once, by the first caller. */
static struct {
	pthread_once_t once;
	int (*path)(struct ibv_context *context, char *path, size_t length);
	struct ibv_mr *(*reg)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
			      int mlx5_access);
} mlx5 = { .once = PTHREAD_ONCE_INIT };

static void mlx5_load(void)
{
	/* The driver that libibverbs has loaded is this file. It is never unloaded: see library.h. */
	void *handle = dlopen(LIBMLX5, RTLD_NOW | RTLD_LOCAL);
	void *path = handle ? dlvsym(handle, "mlx5dv_get_data_direct_sysfs_path", VERSION) : NULL;
	void *reg = handle ? dlvsym(handle, "mlx5dv_reg_dmabuf_mr", VERSION) : NULL;

	if (!path || !reg)
		return;
	memcpy(&mlx5.path, &path, sizeof(path));
	memcpy(&mlx5.reg, &reg, sizeof(reg));
}

int rdma_data_direct_path(const struct verbs_library *library, struct ibv_context *context,
			  char path[RDMA_DATA_DIRECT_PATH])
{
	struct ibv_device_attr attributes = { .vendor_id = 0 };

	/* Other drivers' devices have no members behind those of ibv_device, which libmlx5 reads. */
	if (!library->ibv_query_device || library->ibv_query_device(context, &attributes) ||
	    attributes.vendor_id != RDMA_VENDOR_MELLANOX)
		return -EOPNOTSUPP;
	pthread_once(&mlx5.once, mlx5_load);
	if (!mlx5.path)
		return -EOPNOTSUPP;
	path[0] = '\0';
	return verbs_result(mlx5.path(context, path, RDMA_DATA_DIRECT_PATH));
}

bool rdma_data_direct_has(const struct verbs_library *library, struct ibv_context *context)
{
	char path[RDMA_DATA_DIRECT_PATH];

	return rdma_data_direct_path(library, context, path) == 0;
}

int rdma_data_direct_register(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, unsigned access,
			      struct ibv_mr **mr)
{
	*mr = mlx5.reg(pd, offset, length, iova, fd, (int)access, ACCESS_DATA_DIRECT);
	return verbs_made(*mr);
}
