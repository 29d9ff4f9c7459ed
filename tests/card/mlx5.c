/* SPDX-License-Identifier: BSD-2-Clause */
/* libmlx5.so.1 of the stand-in: its two functions for Data Direct, for cards whose character has it. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"

#define DATA_DIRECT (1 << 0)

/* STANDIN_DATA_DIRECT=NUMBER: only the card of this number has the function. */
static bool has(const struct ibv_context *context)
{
	const char *only = getenv("STANDIN_DATA_DIRECT");

	return card_character()->data_direct &&
	       (!only || !isdigit((unsigned char)*only) || strtoul(only, NULL, 10) == card_number(context));
}

static bool refused(void)
{
	const char *text = getenv("STANDIN_DATA_DIRECT");

	return text && !strcmp(text, "refused");
}

int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *path, size_t length)
{
	int written;

	if (!has(context))
		return ENODEV;
	written = snprintf(path, length, "/sys/devices/pci0000:80/0000:80:0%u.1", card_number(context));
	return written < 0 || (size_t)written >= length ? ENOSPC : 0;
}

/* STANDIN_DATA_DIRECT=refused: the kernel has no such registration, although the card has the function. */
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
				    int mlx5_access)
{
	if (mlx5_access != DATA_DIRECT || !has(pd->context) || refused()) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return card_reg_dmabuf(pd, offset, length, iova, fd, access, true);
}
