/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/options_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"
#include "cmd/common/units.h"
#include "stream/ring.h"

int stream_number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || *end || *number < least || *number > most ? -EINVAL : 0;
}

int stream_patience_parse(const char *text, uint64_t *patience)
{
	if (!strcmp(text, "never")) {
		*patience = UINT64_MAX;
		return 0;
	}
	return cli_parse_seconds(text, patience) < 0 || !*patience ? -EINVAL : 0;
}

int stream_start_parse(const char *text, struct pl_subscriber_options *options)
{
	static const struct {
		const char *word;
		enum pl_start start;
		uint64_t least; /* of the number behind the word; UINT64_MAX: none */
	} words[] = {
		{ "live", PL_START_LIVE, UINT64_MAX },
		{ "latest", PL_START_LATEST, UINT64_MAX },
		{ "history:", PL_START_HISTORY, 1 },
		{ "sequence:", PL_START_SEQUENCE, 0 },
	};

	for (size_t i = 0; i < CLI_ARRAY_SIZE(words); i++) {
		size_t length = strlen(words[i].word);

		if (strncmp(text, words[i].word, length))
			continue;
		options->start = words[i].start;
		if (words[i].least == UINT64_MAX)
			return text[length] ? -EINVAL : 0;
		return stream_number_parse(text + length, words[i].least, INT64_MAX, &options->from);
	}
	return -EINVAL;
}

int stream_overflow_parse(const char *text, enum pl_overflow *overflow)
{
	static const char *const words[] = { "drop-oldest", "drop-newest", "block" };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(words); i++) {
		if (!strcmp(text, words[i])) {
			*overflow = (enum pl_overflow)i;
			return 0;
		}
	}
	return -EINVAL;
}

void stream_source_check(const struct stream_source *source, const struct argp_state *state)
{
	struct cli_hint_command list;

	if (!source->address)
		argp_error(state, "the ADDRESS of a publisher is missing");
	if (!source->name)
		argp_error(state, "the NAME of a stream is missing; `%s` lists the names",
			   cli_hint_command(&list, "streams", &source->common, source->address));
	if (!pl_stream_name_valid(source->name))
		argp_error(state, "a NAME has 1 to 63 characters of A-Z a-z 0-9 . _ -, not '%s'", source->name);
}
