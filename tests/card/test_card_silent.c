/* SPDX-License-Identifier: BSD-2-Clause */
/* Drivers that never answer: the end of a context does not wait for them, and uses nothing that they use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/card.h"
#include "card/settings.h"
#include "diag/check/probe.h"
#include "fabric/verbs/verbs.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 60 /* seconds, times slowness() */
#define LENGTH 4096u
/* Limit of the end for a driver. Other calls may exceed it, too, and are given up then. */
#define SILENCE (50 * MS)

static struct verbs_state *state_of(struct pl_context *context)
{
	struct verbs_state *state;
	struct pl_error error;

	state = verbs_state_get(context, &error);
	check(state);
	state->silence = SILENCE;
	return state;
}

/* Closes a context that gives up a driver. */
static void close_gives_up(struct pl_context *context)
{
	errno = 0;
	pl_close(context);
	check_number(errno, ETIMEDOUT);
}

/* All calls of a function that ends objects never return. Both contexts end all the same, with all else that they have. */
static void end_hangs(void *argument)
{
	struct pl_context *contexts[2];
	struct pair pair;

	pair_open(&pair, &card_threads, LENGTH);
	contexts[0] = pair.environment.near;
	contexts[1] = pair.environment.far;
	/* An engine of the other end may end objects as soon as the first end closes. */
	for (unsigned i = 0; i < 2; i++) {
		state_of(contexts[i]);
		atomic_store(&contexts[i]->closing, true);
	}
	card_hold_calls(argument);
	for (unsigned i = 0; i < 2; i++)
		close_gives_up(contexts[i]);
	check_number(card_counts_now().contexts, 2);
	/* The objects that stay are meant to. */
	_exit(0);
}

/* All drivers answer: the end of a context keeps errno, although calls of the system fail meanwhile. */
static void errno_stays(void *argument)
{
	struct pl_context *contexts[2];
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	contexts[0] = pair.environment.near;
	contexts[1] = pair.environment.far;
	for (unsigned i = 0; i < 2; i++) {
		errno = EDOM;
		pl_close(contexts[i]);
		check_number(errno, EDOM);
	}
	buffer_close_bare(&pair.near);
	buffer_close_bare(&pair.far);
}

/* Opens a context that has looked at one card, and shows a second one. Looks wait only briefly for drivers. */
static struct pl_context *open_before_card(void)
{
	struct pl_context *context;
	struct verbs_state *state;

	setenv("STANDIN_CARDS", "2", 1);
	context = context_open(&card_manual);
	state = state_of(context);
	context->options.connect_timeout = MS;
	card_show(1);
	verbs_ports_look_now(state);
	card_show(2);
	return context;
}

/* A call of a look never returns, for a device that is open, or that is not. */
static void look_hangs(void *argument)
{
	struct pl_context *context;
	struct verbs_state *state;

	context = open_before_card();
	state = state_of(context);
	check_number(atomic_load(&state->place_count), 1);
	card_hold_calls(argument);
	check(!verbs_ports_look_now(state));
	check_text(state->silent, !strcmp(argument, "ibv_query_device") ? "mlx5_1" : "mlx5_0");
	close_gives_up(context);
	_exit(0);
}

/* A device is renamed while its driver opens it: no look opens it again. */
static void renamed_while_opened(void *argument)
{
	struct pl_context *context;
	struct verbs_state *state;

	(void)argument;
	context = open_before_card();
	state = state_of(context);
	card_hold_opens(1u << 1);
	check(!verbs_ports_look_now(state));
	card_rename(1);
	check(!verbs_ports_look_now(state));
	card_hold_opens(0);
	while (!verbs_ports_look_now(state))
		sleep_ms(1);
	check_number(card_counts_now().contexts, 2);
	check_number(atomic_load(&state->place_count), 2);
	pl_close(context);
}

/* A device cannot be used, and its driver does not return from closing it either. The look goes on, and the context ends. */
static void failed_open_hangs(void *argument)
{
	struct pl_context *context;
	struct verbs_state *state;

	(void)argument;
	context = open_before_card();
	state = state_of(context);
	card_fail_calls("ibv_query_device");
	card_hold_calls("ibv_close_device");
	check(!verbs_ports_look_now(state));
	check_text(state->silent, "mlx5_1");
	close_gives_up(context);
	_exit(0);
}

/* A driver opens a device late, when no look takes it any more, and does not return from closing it. */
static void late_open_hangs(void *argument)
{
	struct pl_context *context;
	struct verbs_state *state;
	struct verbs_probe *probe;

	(void)argument;
	context = open_before_card();
	state = state_of(context);
	card_hold_calls("ibv_query_device");
	check(!verbs_ports_look_now(state));
	probe = pl_list_first(&state->probes, struct verbs_probe, link);
	card_hold_calls("ibv_close_device");
	check(rdma_call_await(&probe->call, UINT64_MAX));
	close_gives_up(context);
	_exit(0);
}

/* The library never returns the list of devices. */
static void list_hangs(void *argument)
{
	struct pl_context *context = context_open(&card_manual);
	struct verbs_state *state = state_of(context);

	(void)argument;
	card_hold_looks(true);
	verbs_ports_look(state, pl_now() + MS);
	check(atomic_load(&state->port_look.busy));
	close_gives_up(context);
}

/* A driver that answers when the context is gone: what its thread opened is closed, and its memory freed. */
static void late_answer(void *argument)
{
	struct pl_context *context = context_open(&card_manual);
	struct verbs_state *state = state_of(context);

	(void)argument;
	card_hold_calls("ibv_query_device");
	verbs_ports_look(state, pl_now() + MS);
	while (!card_counts_now().contexts)
		sleep_ms(1);
	pl_close(context);
	card_hold_calls(NULL);
	while (card_counts_now().contexts)
		sleep_ms(1);
}

/* `peerlane check` names a device whose driver never answers, and asks the other one. */
static void check_names(void *argument)
{
	char *text = NULL;
	size_t length;
	FILE *to = open_memstream(&text, &length);
	struct pl_error error;

	(void)argument;
	setenv("STANDIN_CARDS", "2", 1);
	check(to);
	check(verbs_library_get(&error));
	card_hold_opens(1u << 0);
	pl_probe_verbs(to, NULL);
	fclose(to);
	check(strstr(text, "verbs.device.mlx5_0.open 110\n"));
	check(strstr(text, "verbs.device.mlx5_1.open 0\n"));
	free(text);
	_exit(0);
}

int main(void)
{
	const struct test_case cases[] = {
		{ "qp-work", end_hangs, "ibv_modify_qp to ERR", LIMIT },
		{ "qp", end_hangs, "ibv_destroy_qp", LIMIT },
		{ "cq", end_hangs, "ibv_destroy_cq", LIMIT },
		{ "srq", end_hangs, "ibv_destroy_srq", LIMIT },
		{ "channel", end_hangs, "ibv_destroy_comp_channel", LIMIT },
		{ "mr", end_hangs, "ibv_dereg_mr", LIMIT },
		{ "pd", end_hangs, "ibv_dealloc_pd", LIMIT },
		{ "device", end_hangs, "ibv_close_device", LIMIT },
		{ "errno", errno_stays, NULL, LIMIT },
		{ "query-port", look_hangs, "ibv_query_port", LIMIT },
		{ "query-device", look_hangs, "ibv_query_device", LIMIT },
		{ "renamed", renamed_while_opened, NULL, LIMIT },
		{ "failed-open", failed_open_hangs, NULL, LIMIT },
		{ "late-open", late_open_hangs, NULL, LIMIT },
		{ "list", list_hangs, NULL, LIMIT },
		{ "late-answer", late_answer, NULL, LIMIT },
		{ "check", check_names, NULL, LIMIT },
	};

	return cases_run("silent", cases, sizeof(cases) / sizeof(cases[0]));
}
