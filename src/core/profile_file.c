/* SPDX-License-Identifier: BSD-2-Clause */
/* Profile of routes of a context: named by the program, or that of the machine. */
#include "core/context.h"

int pl_routes_open(struct pl_context *context, const char *file, struct pl_error *error)
{
	if (!file)
		return 0;
	context->routes_known = true;
	/* An empty name asks for no profile. */
	return *file ? pl_profile_load(&context->routes, file, error) : 0;
}

const struct pl_profile *pl_routes_get(struct pl_context *context)
{
	char path[4096];

	/* The machine's profile is optional: an unreadable one is ignored without an error. */
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
