/* SPDX-License-Identifier: BSD-2-Clause */
/* Accounts of `peerlane subscribe`, over all instances of a stream. */
#include "cmd/stream/subscribe.h"

void subscribe_look(struct subscribe *subscribe)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	if (pl_subscriber_query(subscribe->subscriber, &info) == 0)
		subscribe->info = info;
}

static void add_accounts(struct pl_accounts *sum, const struct pl_accounts *accounts)
{
	sum->delivered += accounts->delivered;
	sum->lapped += accounts->lapped;
	sum->dropped += accounts->dropped;
	sum->rejected += accounts->rejected;
	sum->aborted += accounts->aborted;
	sum->missed += accounts->missed;
	sum->unwanted += accounts->unwanted;
	sum->pending += accounts->pending;
}

void subscribe_keep_accounts(struct subscribe *subscribe)
{
	add_accounts(&subscribe->earlier, &subscribe->info.accounts);
	subscribe->info.accounts = (struct pl_accounts){ 0 };
}

/* Returns the sequences from `begin` to `end - 1` that --every leaves out. */
static uint64_t count_unwanted(const struct subscribe *subscribe, uint64_t begin, uint64_t end)
{
	uint64_t every = CLI_MAX(subscribe->options->stream.every, 1u), first = subscribe->info.accounts.first;
	uint64_t wanted = (end - first + every - 1) / every - (begin - first + every - 1) / every;

	return end - begin - wanted;
}

static void take_off(uint64_t *account, uint64_t *excess)
{
	uint64_t part = CLI_MIN(*account, *excess);

	*account -= part;
	*excess -= part;
}

/* Leaves out the sequences behind the last frame that was taken. */
static void cut_accounts(const struct subscribe *subscribe, struct pl_accounts *accounts)
{
	uint64_t begin = subscribe->last == UINT64_MAX ? accounts->first : subscribe->last + 1, excess, unwanted;

	if (accounts->next <= begin)
		return;
	unwanted = count_unwanted(subscribe, begin, accounts->next);
	excess = accounts->next - begin - CLI_MIN(accounts->next - begin, unwanted + accounts->pending);
	accounts->unwanted -= CLI_MIN(accounts->unwanted, unwanted);
	accounts->pending = 0;
	accounts->next = begin;
	/* Frames that are left out were lost for the reason that the choice of --overflow gives. */
	take_off(&accounts->dropped, &excess);
	take_off(&accounts->rejected, &excess);
	take_off(&accounts->lapped, &excess);
	take_off(&accounts->missed, &excess);
	take_off(&accounts->aborted, &excess);
}

struct pl_accounts subscribe_accounts(const struct subscribe *subscribe, bool goes_on)
{
	uint64_t every = CLI_MAX(subscribe->options->stream.every, 1u), gone = (subscribe->gone + every - 1) / every;
	struct pl_accounts accounts = subscribe->info.accounts;

	if (goes_on)
		cut_accounts(subscribe, &accounts);
	add_accounts(&accounts, &subscribe->earlier);
	accounts.missed += gone;
	accounts.unwanted += subscribe->gone - gone;
	if (!subscribe->restarts)
		accounts.first -= subscribe->gone;
	return accounts;
}

uint64_t subscribe_lost(const struct pl_accounts *accounts)
{
	return accounts->lapped + accounts->dropped + accounts->rejected + accounts->missed;
}
