/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/publishing.h"

#include <sys/select.h>
#include <unistd.h>

#include "support/check.h"
#include "support/process.h"

void publishing_open(struct publishing *publishing, const char *name, const struct pl_publisher_options *options)
{
	struct pl_error error = { 0 };

	check_ok(pl_open(&publishing->context, NULL, &error), &error);
	check_ok(pl_listen(publishing->context, "127.0.0.1:0", &publishing->listener, &error), &error);
	pl_listener_address(publishing->listener, publishing->address, sizeof(publishing->address));
	check_ok(pl_publisher_open(publishing->context, name, options, &publishing->publisher, &error), &error);
}

void publishing_close(struct publishing *publishing)
{
	pl_publisher_close(publishing->publisher);
	pl_close(publishing->context);
}

void publishing_child_start(struct publishing_child *child, void (*run)(const void *argument, int to, int from),
			    const void *argument)
{
	int up[2], down[2];

	check(pipe(up) == 0 && pipe(down) == 0);
	child->pid = process_fork();
	if (child->pid == 0)
		run(argument, up[1], down[0]);
	close(up[1]);
	close(down[0]);
	child->from = up[0];
	child->to = down[1];
	check(read(child->from, child->address, sizeof(child->address)) == sizeof(child->address));
}

bool publishing_child_is_told(int from)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(from, &set);
	return pselect(from + 1, &set, NULL, NULL, &(struct timespec){ 0 }, NULL) > 0;
}

void publishing_child_end(struct publishing_child *child)
{
	check(write(child->to, "", 1) == 1);
	check_number(process_wait(child->pid), 0);
}
