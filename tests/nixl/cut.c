/* SPDX-License-Identifier: BSD-2-Clause */
#include "cut.h"

#include "support/proxy.h"

static struct proxy proxy;

const char *cut_start(const char *target)
{
	static const struct damage none = { .kind = DAMAGE_NONE };

	proxy_start(&proxy, target, &none);
	return proxy.address;
}

void cut_end(void)
{
	proxy_stop(&proxy);
}
