/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What must be true of a machine for GPUDirect RDMA, as data: rows, each with the question, the reason, a probe and a
 * remedy; and the answer to the question behind all of them: which ways this machine can move data.
 *
 * Nothing here prints, and nothing changes the machine but pl_check_action_run().
 */
#ifndef PL_DIAG_CHECK_CHECK_H
#define PL_DIAG_CHECK_CHECK_H

#include "base/base.h"

struct pl_sysroot;
struct pl_facts;
struct pl_check_machine;

enum pl_check_status {
	PL_CHECK_NONE, /* the question does not arise here */
	PL_CHECK_OK,
	PL_CHECK_UNKNOWN,
	PL_CHECK_WARN,
	PL_CHECK_FAIL,
};

/* "none", "OK", "UNKNOWN", "WARN", "FAIL". */
const char *pl_check_status_name(enum pl_check_status status);

#define PL_CHECK_FINDINGS 20

/* What was found on one object, or of the machine where object is empty. */
struct pl_check_finding {
	enum pl_check_status status;
	char object[48];
	char text[240];
};

struct pl_check_result {
	const struct pl_check_row *row;
	enum pl_check_status status; /* the worst of its findings */
	size_t count, left_out;      /* findings; how many had no room */
	char remedy[320];            /* empty: nothing to do */
	char reveal[160];            /* UNKNOWN: what would tell */
	struct pl_check_finding findings[PL_CHECK_FINDINGS];
};

/* Something that can be done without risk: pl_check_action_run(). */
enum pl_check_action_kind {
	PL_CHECK_LOAD_MODULE, /* modprobe(8) `argument` */
	PL_CHECK_RESCAN,      /* remove the PCI device `argument`, which has no driver, and look for it again */
	PL_CHECK_WRITE_FILE,  /* `content` into the file `argument`, which was not there */
};

struct pl_check_action {
	enum pl_check_action_kind kind;
	char argument[96];
	char content[160];
	char command[320]; /* the same for a shell */
};

#define PL_CHECK_ACTIONS 16

struct pl_check_plan {
	struct pl_check_action actions[PL_CHECK_ACTIONS];
	size_t count;
};

struct pl_check_row {
	const char *id; /* stable */
	const char *group;
	const char *title;
	const char *requirement; /* what must be true */
	const char *how;         /* where it is read, to see it by hand */
	const char *reason;      /* what happens otherwise */
	const char *remedy;      /* a command, and where a command does not help, a sentence */
	unsigned rank;           /* of two that fail, the lower is mended first */
	void (*probe)(const struct pl_check_machine *machine, struct pl_check_result *result);
	/* Adds what can be done without risk; NULL if nothing can. */
	void (*plan)(const struct pl_check_machine *machine, struct pl_check_plan *plan);
};

/* All rows, in the order in which they are shown; those of a group are together. */
const struct pl_check_row *pl_check_row_at(size_t index); /* NULL at the end */
const struct pl_check_row *pl_check_row_find(const char *id);

/* -- the ways that data can go ---------------------------------------------------------------------- */

enum pl_check_way {
	PL_CHECK_WAY_NO,
	PL_CHECK_WAY_UNKNOWN,
	PL_CHECK_WAY_YES,
};

/* "no", "unknown", "yes". */
const char *pl_check_way_name(enum pl_check_way way);

/* From one GPU to one card. */
struct pl_check_route {
	char gpu[24]; /* PCI address; empty: memory of the host */
	char gpu_model[64];
	char card[24];   /* PCI address, or the name of a device that has none; empty: no card */
	char device[64]; /* of libibverbs, such as mlx5_0 */
	char class[8];   /* PIX, PXB, PHB, NODE, SYS; empty: not known */
	bool best;       /* the card to use for this GPU */
	enum pl_check_way dmabuf, peer, staged;
	char dmabuf_reason[200], peer_reason[200], staged_reason[200];
};

enum pl_check_verdict {
	PL_CHECK_READY,    /* every GPU can be reached by a card directly, and nothing is amiss */
	PL_CHECK_DEGRADED, /* RDMA works, not as well as it should */
	PL_CHECK_NO_RDMA,  /* no card can be used */
};

struct pl_check_report {
	struct pl_check_result *results;
	size_t count;
	struct pl_check_route *routes;
	size_t route_count;
	enum pl_check_verdict verdict;
	char summary[400];
	const struct pl_check_result *first; /* to mend first; NULL: nothing */
};

struct pl_check_options {
	bool ask;         /* the kernel, libibverbs and libcuda, where the root is this machine */
	uint64_t timeout; /* of what is asked, in nanoseconds */
};

/* Reads a machine; it uses root until it is closed. */
int pl_check_machine_open(struct pl_check_machine **ret, struct pl_sysroot *root,
			  const struct pl_check_options *options, struct pl_error *error);
void pl_check_machine_close(struct pl_check_machine *machine);
/* What was asked, for a dump. */
const struct pl_facts *pl_check_machine_facts(const struct pl_check_machine *machine);

int pl_check_run(struct pl_check_report *report, const struct pl_check_machine *machine, struct pl_error *error);
void pl_check_report_free(struct pl_check_report *report);

/* What can be done without risk about the rows that are not OK. */
void pl_check_plan(const struct pl_check_machine *machine, const struct pl_check_report *report,
		   struct pl_check_plan *plan);
/* Does it, on this machine. */
int pl_check_action_run(const struct pl_check_action *action, struct pl_error *error);

#endif
