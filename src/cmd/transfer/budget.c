/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/budget.h"

/* Time between two looks at the rates of clients, and between two reports of a client. */
#define LOOK_TIME CLI_NS_PER_S
#define REPORT_TIME (60 * CLI_NS_PER_S)
/* Reports of progress that a client may send a second, and for each request: `put` sends up to 50 a second. */
#define REPORTS 100u
#define REPORTS_OF_REQUEST 4u

static void report_limit(struct client *client, const char *limit)
{
	const struct server_event_report report = { .event = SERVER_LIMITED, .client = client, .limit = limit };
	uint64_t now = cli_now();

	if (client->limit_reported && now - client->limit_reported < REPORT_TIME)
		return;
	client->limit_reported = now;
	client->server->report_event(client->server->user, &report);
}

/* -- requests ------------------------------------------------------------------------------------ */

uint64_t budget_take(uint64_t paced, unsigned rate, uint64_t now)
{
	uint64_t oldest = now > CLI_NS_PER_S ? now - CLI_NS_PER_S : 0;

	return CLI_MAX(paced, oldest) + CLI_NS_PER_S / rate;
}

void budget_count_request(struct client *client)
{
	if (client->rights.requests)
		client->paced = budget_take(client->paced, client->rights.requests, cli_now());
}

void budget_count_report(struct client *client)
{
	unsigned requests = CLI_MIN(client->rights.requests, CLI_NS_PER_S / REPORTS_OF_REQUEST);
	uint64_t now = cli_now();

	if (!requests)
		return;
	client->reports_paced = budget_take(client->reports_paced, REPORTS + REPORTS_OF_REQUEST * requests, now);
	if (client->reports_paced > now)
		client->paced = CLI_MAX(client->paced, client->reports_paced);
}

bool budget_pauses(struct client *client)
{
	if (client->paced <= cli_now())
		return false;
	client->paused = true;
	client->server->pace_check = CLI_MIN(client->server->pace_check, client->paced);
	report_limit(client, "requests");
	return true;
}

void budget_resume(struct server *server, void (*receive)(struct client *client))
{
	uint64_t now = cli_now();
	struct client *next;

	if (now < server->pace_check)
		return;
	server->pace_check = UINT64_MAX;
	for (struct client *client = server->clients; client; client = next) {
		next = client->next;
		if (!client->paused || !client->peer)
			continue;
		if (client->paced > now) {
			server->pace_check = CLI_MIN(server->pace_check, client->paced);
			continue;
		}
		client->paused = false;
		receive(client);
	}
}

/* -- rates --------------------------------------------------------------------------------------- */

void budget_watch_rate(struct client *client)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	if (pl_peer_query(client->peer, &info) == 0 && info.rate)
		client->server->limit_check = CLI_MIN(client->server->limit_check, cli_now() + LOOK_TIME);
}

void budget_report_rates(struct server *server)
{
	uint64_t now = cli_now();

	if (now < server->limit_check)
		return;
	server->limit_check = UINT64_MAX;
	for (struct client *client = server->clients; client; client = client->next) {
		struct pl_peer_info info = PL_PEER_INFO_INIT;

		if (!client->peer || pl_peer_query(client->peer, &info) < 0 || !info.rate)
			continue;
		server->limit_check = now + LOOK_TIME;
		if (info.rate_waits != client->rate_waits)
			report_limit(client, "rate");
		client->rate_waits = info.rate_waits;
	}
}
