/* SPDX-License-Identifier: BSD-2-Clause */
/* Sentences about effects. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/effects/effects.h"
#include "cmd/fleet/host_list.h"

#define NEARLY 0.01 /* difference of logarithms that needs no second number */
#define NAME_TEXT 80   /* bytes of a name */
#define NAMES_TEXT 140 /* bytes of the hosts of a group */

double *effects_logarithms(const double *values, size_t count, enum effects_unit unit)
{
	double *logarithms = malloc((count * count + 1) * sizeof(*logarithms));

	for (size_t i = 0; logarithms && i < count * count; i++)
		logarithms[i] = !(values[i] > 0) ? NAN : unit == EFFECTS_LATENCY ? -log(values[i]) : log(values[i]);
	return logarithms;
}

const char *effects_cut(char *buffer, size_t size, const char *text)
{
	size_t length = strnlen(text, size);

	if (length == size) {
		length = size - 1;
		while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
			length--;
	}
	memcpy(buffer, text, length);
	buffer[length] = '\0';
	return buffer;
}

void effects_fold_hosts(const struct effects_ranks *ranks, const size_t *hosts, size_t count, char *text, size_t size)
{
	const char **names = malloc((count + 1) * sizeof(*names));
	char *folded = NULL;

	for (size_t i = 0; names && i < count; i++)
		names[i] = ranks->host_names[hosts[i]];
	if (names)
		folded = host_list_fold(names, count);
	if (folded) {
		effects_cut(text, strlen(folded) < size ? size : size - 3, folded);
		strcat(text, strlen(folded) < size ? "" : "...");
	} else {
		snprintf(text, size, "%zu hosts", count);
	}
	free(folded);
	free(names);
}

void effects_value_text(double value, enum effects_unit unit, char text[32])
{
	double shown = exp(unit == EFFECTS_LATENCY ? -value : value);

	if (unit == EFFECTS_LATENCY)
		snprintf(text, 32, shown < 1e3 ? "%.3g us" : "%.3g ms", shown < 1e3 ? shown : shown / 1e3);
	else
		snprintf(text, 32, shown < 1e9 ? "%.3g MB/s" : "%.3g GB/s", shown < 1e9 ? shown / 1e6 : shown / 1e9);
}

/* Writes "rank 12 (gpu003)", or "gpu003" if each host has one rank. */
static void describe_rank(const struct effects_ranks *ranks, size_t rank, char *text, size_t size)
{
	char name[NAME_TEXT];

	effects_cut(name, sizeof(name), ranks->host_names[ranks->host[rank]]);
	if (ranks->count > ranks->host_count)
		snprintf(text, size, "rank %zu (%s)", rank, name);
	else
		snprintf(text, size, "%s", name);
}

/* Writes "host gpu017", "group leaf3 (20 hosts: gpu[041-060])", "rank 12 (gpu003)" or "gpu101 to gpu151". */
static void describe_subject(const struct effects_ranks *ranks, const struct effect *effect, char *text, size_t size)
{
	char hosts[NAMES_TEXT], name[NAME_TEXT], from[NAME_TEXT + 32], to[NAME_TEXT + 32];

	switch (effect->kind) {
	case EFFECT_GROUP:
		effects_fold_hosts(ranks, effect->members, effect->member_count, hosts, sizeof(hosts));
		if (effect->at == EFFECTS_NONE)
			snprintf(text, size, "group %s of %zu hosts", hosts, effect->member_count);
		else
			snprintf(text, size, "group %s (%zu hosts: %s)",
				 effects_cut(name, sizeof(name), ranks->group_names[effect->at]), effect->member_count,
				 hosts);
		break;
	case EFFECT_HOST:
		snprintf(text, size, "host %s", effects_cut(name, sizeof(name), ranks->host_names[effect->at]));
		break;
	case EFFECT_RANK:
		snprintf(text, size, "rank %zu (number %zu of host %s)", effect->at, ranks->rank_on_host[effect->at],
			 effects_cut(name, sizeof(name), ranks->host_names[ranks->host[effect->at]]));
		break;
	case EFFECT_PAIR:
		describe_rank(ranks, effect->at, from, sizeof(from));
		describe_rank(ranks, effect->to, to, sizeof(to));
		snprintf(text, size, "%s to %s", from, to);
		break;
	}
}

const char *effects_percent_text(double part, char text[32])
{
	/* Three digits, and no exponent. */
	snprintf(text, 32, part < 1 ? "%.3g %%" : "%.0f %%", 100 * part);
	return text;
}

/* Writes "48 %", or for changes "7.1 % less". */
static void describe_factor(double effect, enum effects_unit unit, bool changes, char text[48])
{
	/* Latencies have the opposite sign: more is worse. */
	double factor = exp(unit == EFFECTS_LATENCY ? -effect : effect);
	char percent[32];

	if (changes)
		snprintf(text, 48, "%s %s", effects_percent_text(fabs(factor - 1), percent),
			 unit == EFFECTS_LATENCY ? (factor > 1 ? "longer" : "shorter")
						 : (factor > 1 ? "more" : "less"));
	else
		effects_percent_text(factor, text);
}

/* Writes "receives at 48 %", or "sends at 80 % and receives at 79 %". */
static void describe_directions(const struct effect *effect, enum effects_unit unit, bool changes, char *text,
				size_t size)
{
	char sending[48], receiving[48];
	const char *at = changes ? "" : "at ";

	describe_factor(effect->sending, unit, changes, sending);
	describe_factor(effect->receiving, unit, changes, receiving);
	if (effect->sends && effect->receives && fabs(effect->sending - effect->receiving) < NEARLY)
		snprintf(text, size, "sends and receives %s%s", at, sending);
	else if (effect->sends && effect->receives)
		snprintf(text, size, "sends %s%s and receives %s%s", at, sending, at, receiving);
	else
		snprintf(text, size, "%s %s%s", effect->sends ? "sends" : "receives", at,
			 effect->sends ? sending : receiving);
}

static void describe_pair(const struct effect *effect, enum effects_unit unit, bool changes, char *text, size_t size)
{
	char there[48], back[48];

	describe_factor(effect->sending, unit, changes, there);
	describe_factor(effect->receiving, unit, changes, back);
	snprintf(text, size, "%s%s%s%s%s", changes ? "" : "at ", there, changes ? "" : " of the usual value",
		 effect->receives      ? ", and back "
		 : effect->unconfirmed ? ", in this direction only"
				       : "",
		 effect->receives ? back : "");
}

void effects_describe(const struct effects *effects, const struct effect *effect, enum effects_unit unit, bool changes,
		      char text[EFFECTS_TEXT])
{
	char subject[280], what[180], value[32], usual[32], numbers[80] = "";
	const char *of = changes ? "" : " of the others";

	describe_subject(effects->ranks, effect, subject, sizeof(subject));
	effects_value_text(effect->value, unit, value);
	effects_value_text(effect->usual, unit, usual);
	if (!changes)
		snprintf(numbers, sizeof(numbers), " (%s, usual %s)", value, usual);
	if (effect->kind == EFFECT_PAIR) {
		describe_pair(effect, unit, changes, what, sizeof(what));
		snprintf(text, EFFECTS_TEXT, "%s: %s%s", subject, what, numbers);
		return;
	}
	describe_directions(effect, unit, changes, what, sizeof(what));
	snprintf(text, EFFECTS_TEXT, "%s %s%s%s%s", subject, what, of, numbers,
		 effect->kind != EFFECT_GROUP ? ""
		 : effect->outside            ? "; pairs within are usual, so check its links to the others"
		 : effect->inside             ? "; pairs within as well"
					      : "");
}
