/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/stream_accounts.h"

void stream_used_add(struct stream_used *used, const struct pl_frame_info *frame)
{
	used->frames++;
	used->next = frame->sequence + 1;
	used->lost += frame->lost_before - frame->absent_before;
}

uint64_t stream_accounts_lost(const struct pl_accounts *accounts)
{
	return accounts->lapped + accounts->dropped + accounts->rejected + accounts->missed;
}

/* Returns the sequences from `begin` to `end` - 1 that `every` leaves out. */
static uint64_t count_unwanted(uint64_t first, uint64_t every, uint64_t begin, uint64_t end)
{
	uint64_t wanted = (end - first + every - 1) / every - (begin - first + every - 1) / every;

	return end - begin - wanted;
}

static void take_off_account(uint64_t *account, uint64_t *excess)
{
	uint64_t part = CLI_MIN(*account, *excess);

	*account -= part;
	*excess -= part;
}

void stream_accounts_cut(struct pl_accounts *accounts, const struct stream_used *used, uint64_t every)
{
	uint64_t *const kinds[] = { &accounts->dropped, &accounts->rejected, &accounts->lapped, &accounts->missed };
	uint64_t end = CLI_MIN(CLI_MAX(used->next, accounts->first), accounts->next);
	uint64_t lost = stream_accounts_lost(accounts), excess = lost - CLI_MIN(lost, used->lost);
	uint64_t behind = count_unwanted(accounts->first, every, end, accounts->next), fates;

	for (unsigned i = 0; i < CLI_ARRAY_SIZE(kinds); i++)
		take_off_account(kinds[i], &excess);
	accounts->next = end;
	accounts->delivered = used->frames;
	accounts->unwanted -= CLI_MIN(accounts->unwanted, behind);
	accounts->pending = 0;
	fates = accounts->delivered + accounts->unwanted + stream_accounts_lost(accounts);
	accounts->aborted = end - accounts->first - CLI_MIN(end - accounts->first, fates);
}
