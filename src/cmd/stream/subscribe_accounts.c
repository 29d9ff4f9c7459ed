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
	subscribe->used = (struct stream_used){ 0 };
	subscribe->earlier_frames = 0;
}

struct pl_accounts subscribe_accounts(const struct subscribe *subscribe, bool goes_on)
{
	uint64_t every = CLI_MAX(subscribe->options->source.stream.every, 1u),
		 gone = (subscribe->gone + every - 1) / every;
	struct pl_accounts accounts = subscribe->info.accounts;

	if (goes_on)
		stream_accounts_cut(&accounts, &subscribe->used, every);
	add_accounts(&accounts, &subscribe->earlier);
	accounts.missed += gone;
	accounts.unwanted += subscribe->gone - gone;
	if (!subscribe->restarts)
		accounts.first -= subscribe->gone;
	return accounts;
}
