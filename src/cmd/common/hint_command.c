/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands that hints name, with the options of this command's key and identities. */
#include <string.h>

#include "cmd/common/cli.h"

/* Characters that a shell takes as they are. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+=-"

/*
 * Writes a command with the values of its options, or with placeholders. Returns false if the command does not fit, or if a
 * shell would not take a value as it is.
 */
static bool write_hint_command(struct cli_hint_command *hint, const char *name, const struct cli_options *options,
			       const char *address, bool values)
{
	const struct {
		const char *option, *value, *placeholder;
	} proofs[] = {
		{ "--key", options->key_file, "FILE" },     { "--identity", options->identity, "FILE" },
		{ "--peer", options->peer, "FINGERPRINT" }, { "--known-hosts", options->known_hosts, "FILE" },
		{ "--ca", options->authority, "FILE" },
	};
	const size_t size = sizeof(hint->text);
	size_t length = (size_t)snprintf(hint->text, size, "peerlane %s", name);
	bool plain = true;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(proofs) && length < size; i++) {
		if (!proofs[i].value)
			continue;
		plain = plain && !proofs[i].value[strspn(proofs[i].value, PLAIN)];
		length += (size_t)snprintf(hint->text + length, size - length, " %s %s", proofs[i].option,
					   values ? proofs[i].value : proofs[i].placeholder);
	}
	if (length < size)
		length += (size_t)snprintf(hint->text + length, size - length, " %s", address);
	return length < size && plain;
}

const char *cli_hint_command(struct cli_hint_command *hint, const char *name, const struct cli_options *options,
			     const char *address)
{
	if (!write_hint_command(hint, name, options, address, true))
		write_hint_command(hint, name, options, address, false);
	return hint->text;
}
