/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shares a text in this process's memory with one reader: serve ADDRESS TEXT
 *
 * Prints the address and the token, which are the arguments of read.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void print_invitation(const struct pl_listener *listener, const unsigned char *token, size_t length)
{
	char address[80];

	pl_listener_address(listener, address, sizeof(address));
	printf("%s ", address);
	for (size_t i = 0; i < length; i++)
		printf("%02x", token[i]);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned char token[PL_TOKEN_MAX];
	size_t token_length = sizeof(token);
	struct pl_operation *done;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_region *region;
	struct pl_peer *peer;
	struct pl_error error;

	if (argc != 3 || !argv[2][0]) {
		fprintf(stderr, "usage: serve ADDRESS TEXT\n");
		return 2;
	}
	check(pl_open(&context, NULL, &error), &error);
	check(pl_region_register(context, argv[2], strlen(argv[2]), PL_ACCESS_READ, &region, &error), &error);
	check(pl_region_share(region, NULL, token, &token_length, &error), &error);
	check(pl_listen(context, argv[1], &listener, &error), &error);
	print_invitation(listener, token, token_length);
	check(pl_accept(listener, UINT64_MAX, &peer, &error), &error);
	/* Reads need no action here.  The reader's empty message announces that all reads are over. */
	check(pl_receive(peer, 0, 0, NULL, NULL, &done, &error), &error);
	check(pl_wait(done, UINT64_MAX, NULL, &error), &error);
	pl_close(context);
	return 0;
}
