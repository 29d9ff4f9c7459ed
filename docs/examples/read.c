/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the shared text of serve.c from the other process, and prints the text: read ADDRESS TOKEN */
#include <stdio.h>
#include <stdlib.h>

#include <peerlane/peerlane.h>

static void check(int result, const struct pl_error *error)
{
	char text[512];

	if (result >= 0)
		return;
	pl_error_format(error, text, sizeof(text));
	fprintf(stderr, "%s\n", text);
	exit(EXIT_FAILURE);
}

static size_t parse_token(const char *text, unsigned char token[PL_TOKEN_MAX])
{
	size_t length = 0;
	int used;

	for (; length < PL_TOKEN_MAX && sscanf(text, "%2hhx%n", &token[length], &used) == 1; text += used)
		length++;
	return length;
}

int main(int argc, char **argv)
{
	unsigned char token[PL_TOKEN_MAX];
	struct pl_operation *operation;
	struct pl_context *context;
	struct pl_region *region;
	struct pl_remote *remote;
	struct pl_peer *peer;
	struct pl_error error;
	size_t length;

	if (argc != 3) {
		fprintf(stderr, "usage: read ADDRESS TOKEN\n");
		return 2;
	}
	length = parse_token(argv[2], token);
	check(pl_open(&context, NULL, &error), &error);
	check(pl_connect(context, argv[1], 0, &peer, &error), &error);
	check(pl_remote_import(peer, token, length, 0, &remote, &error), &error);
	length = pl_remote_length(remote);
	check(pl_region_allocate(context, length, PL_ACCESS_LOCAL, &region, &error), &error);
	check(pl_read(peer, &(struct pl_transfer){ remote, 0, region, 0, length }, NULL, &operation, &error), &error);
	check(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
	printf("%.*s\n", (int)length, (const char *)pl_region_address(region));
	check(pl_send_copy(peer, 0, NULL, 0, NULL, &operation, &error), &error);
	check(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
	pl_close(context);
	return 0;
}
