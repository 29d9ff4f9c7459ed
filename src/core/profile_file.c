/* SPDX-License-Identifier: BSD-2-Clause */
/* The profile of routes that a context uses: the one that the program names, or that of the machine. */
#include "core/context.h"

int pl_routes_open(struct pl_context *context, const char *file, struct pl_error *error)
{
	if (!file)
		return 0;
	context->routes_known = true;
	/* An empty name asks for none. */
	return *file ? pl_profile_load(&context->routes, file, error) : 0;
}

const struct pl_profile *pl_routes_get(struct pl_context *context)
{
	char path[4096];

	/* What nobody asked for by name does without a reason where it cannot be read. */
	if (!context->routes_known && pl_profile_path(path, sizeof(path)))
		pl_profile_load(&context->routes, path, NULL);
	context->routes_known = true;
	if (context->routes.count && !context->routes.here[0])
		pl_profile_machine(context->routes.here);
	return context->routes.count ? &context->routes : NULL;
}

void pl_routes_close(struct pl_context *context)
{
	pl_profile_free(&context->routes);
}
