/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that fill results and plans. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "diag/check/row.h"

const char *pl_check_status_name(enum pl_check_status status)
{
	static const char *const names[] = { "none", "OK", "UNKNOWN", "WARN", "FAIL" };

	return names[status];
}

const char *pl_check_way_name(enum pl_check_way way)
{
	static const char *const names[] = { "no", "unknown", "yes" };

	return names[way];
}

const char *pl_check_verdict_name(enum pl_check_verdict verdict)
{
	static const char *const names[] = { "ready", "degraded", "no-rdma" };

	return names[verdict];
}

/* Makes room for one more finding. The room is a power of two. */
static bool reserve_finding(struct pl_check_result *result)
{
	size_t room = result->count ? result->count * 2 : 4;
	struct pl_check_finding *findings;

	if (result->count >= PL_CHECK_FINDINGS_MAX)
		return false;
	if (result->count && (result->count < 4 || result->count & (result->count - 1)))
		return true;
	findings = realloc(result->findings, room * sizeof(*findings));
	if (!findings)
		return false;
	result->findings = findings;
	return true;
}

static void add_finding(struct pl_check_result *result, enum pl_check_status status, const char *object,
			const char *format, va_list arguments)
{
	struct pl_check_finding *finding;

	result->status = PL_MAX(result->status, status);
	if (!reserve_finding(result)) {
		result->left_out++;
		return;
	}
	finding = &result->findings[result->count++];
	*finding = (struct pl_check_finding){ .status = status };
	snprintf(finding->object, sizeof(finding->object), "%.47s", object ? object : "");
	vsnprintf(finding->text, sizeof(finding->text), format, arguments);
}

void pl_check_note(struct pl_check_result *result, enum pl_check_status status, const char *object, const char *format,
		   ...)
{
	va_list arguments;

	va_start(arguments, format);
	add_finding(result, status, object, format, arguments);
	va_end(arguments);
}

void pl_check_unknown(struct pl_check_result *result, const char *object, const char *reveal, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add_finding(result, PL_CHECK_UNKNOWN, object, format, arguments);
	va_end(arguments);
	pl_check_reveal(result, reveal);
}

void pl_check_reveal(struct pl_check_result *result, const char *text)
{
	if (!result->reveal[0])
		snprintf(result->reveal, sizeof(result->reveal), "%s", text);
}

void pl_check_remedy(struct pl_check_result *result, const char *format, ...)
{
	va_list arguments;

	if (result->remedy[0])
		return;
	va_start(arguments, format);
	vsnprintf(result->remedy, sizeof(result->remedy), format, arguments);
	va_end(arguments);
}

/* -- plans ----------------------------------------------------------------------------------------- */

static struct pl_check_action *plan_action(struct pl_check_plan *plan, enum pl_check_action_kind kind,
					   const char *argument)
{
	struct pl_check_action *action;

	for (size_t i = 0; i < plan->count; i++)
		if (plan->actions[i].kind == kind && !strcmp(plan->actions[i].argument, argument))
			return NULL;
	if (plan->count == PL_CHECK_ACTIONS)
		return NULL;
	action = &plan->actions[plan->count++];
	*action = (struct pl_check_action){ .kind = kind };
	snprintf(action->argument, sizeof(action->argument), "%s", argument);
	return action;
}

void pl_check_plan_module(struct pl_check_plan *plan, const char *module)
{
	struct pl_check_action *action = plan_action(plan, PL_CHECK_LOAD_MODULE, module);

	if (action)
		snprintf(action->command, sizeof(action->command), "modprobe %s", module);
}

void pl_check_plan_rescan(struct pl_check_plan *plan, const char *address)
{
	struct pl_check_action *action = plan_action(plan, PL_CHECK_RESCAN, address);

	if (action)
		snprintf(action->command, sizeof(action->command),
			 "echo 1 > /sys/bus/pci/devices/%s/remove; echo 1 > /sys/bus/pci/rescan", address);
}

void pl_check_plan_file(struct pl_check_plan *plan, const char *path, const char *content)
{
	struct pl_check_action *action = plan_action(plan, PL_CHECK_WRITE_FILE, path);

	if (!action)
		return;
	snprintf(action->content, sizeof(action->content), "%s", content);
	snprintf(action->command, sizeof(action->command), "printf '%%s' '%s' > %s", content, path);
}
