/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requirements of a machine for GPUDirect RDMA, as data: rows, each with a requirement, the reason, a probe and a
 * remedy. From the results follows the verdict: the paths on which this machine can move data.
 *
 * Nothing here prints, and only pl_check_action_run() changes the machine.
 */
#ifndef PL_DIAG_CHECK_CHECK_H
#define PL_DIAG_CHECK_CHECK_H

#include "base/base.h"

struct pl_sysroot;
struct pl_facts;
struct pl_check_machine;
struct pl_check_policy;
struct pl_check_acceptance;
struct pl_inventory;
struct pl_nccl;

enum pl_check_status {
	PL_CHECK_NONE, /* the row does not apply to this machine */
	PL_CHECK_OK,
	PL_CHECK_UNKNOWN,
	PL_CHECK_WARN,
	PL_CHECK_FAIL,
};

/* Returns "none", "OK", "UNKNOWN", "WARN" or "FAIL". */
const char *pl_check_status_name(enum pl_check_status status);

/* Findings of one result at most: a machine has fewer devices, ports and links. */
#define PL_CHECK_FINDINGS_MAX 4096u

/* Finding on one object, or on the machine if object is empty. */
struct pl_check_finding {
	enum pl_check_status status;
	char object[48];
	char text[240];
	const struct pl_check_acceptance *accepted; /* of the policy; NULL: the finding counts */
};

struct pl_check_result {
	const struct pl_check_row *row;
	enum pl_check_status status; /* the worst status of its findings that count */
	size_t count, left_out;      /* findings, and those for which memory lacked */
	char remedy[320];            /* empty: nothing to do */
	char reveal[160];            /* UNKNOWN: command that would tell */
	struct pl_check_finding *findings;
};

/* Remedy without risk, for pl_check_action_run(). */
enum pl_check_action_kind {
	PL_CHECK_LOAD_MODULE, /* modprobe(8) `argument` */
	PL_CHECK_RESCAN,      /* removes the PCI device `argument`, which has no driver, and rescans the bus */
	PL_CHECK_WRITE_FILE,  /* writes `content` to the new file `argument` */
};

struct pl_check_action {
	enum pl_check_action_kind kind;
	char argument[96];
	char content[160];
	char command[320]; /* the same as a shell command */
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
	const char *requirement; /* condition that must hold */
	const char *how;         /* source of the fact, for a check by hand */
	const char *reason;      /* consequence if it does not hold */
	const char *remedy;      /* command; a sentence where no command helps */
	unsigned rank;           /* of two failed rows the lower rank is mended first */
	/* NULL: a row of `peerlane routes`, which tests more than files can tell. */
	void (*probe)(const struct pl_check_machine *machine, struct pl_check_result *result);
	/* Adds remedies without risk; NULL if there are none. */
	void (*plan)(const struct pl_check_machine *machine, struct pl_check_plan *plan);
};

/* Returns the rows in the order of output; rows of a group are adjacent. */
const struct pl_check_row *pl_check_row_at(size_t index); /* NULL at the end */
const struct pl_check_row *pl_check_row_find(const char *id);

/* -- paths of data ---------------------------------------------------------------------------------- */

enum pl_check_way {
	PL_CHECK_WAY_NO,
	PL_CHECK_WAY_UNKNOWN,
	PL_CHECK_WAY_YES,
};

/* Returns "no", "unknown" or "yes". */
const char *pl_check_way_name(enum pl_check_way way);

/* Path from one GPU to one card. */
struct pl_check_route {
	char gpu[24]; /* PCI address; empty: host memory */
	char gpu_model[64];
	char card[24];   /* PCI address, or the name of a device without one; empty: no card */
	char device[64]; /* name in libibverbs, such as mlx5_0 */
	char class[8];   /* PIX, PXB, PHB, NODE, SYS; empty: unknown */
	bool best;       /* the best card for this GPU */
	enum pl_check_way dmabuf, peer, staged;
	char dmabuf_reason[200], peer_reason[200], staged_reason[200];
};

enum pl_check_verdict {
	PL_CHECK_READY,    /* a card reaches every GPU directly, and no row fails */
	PL_CHECK_DEGRADED, /* RDMA works, with limits */
	PL_CHECK_NO_RDMA,  /* no card can be used */
};

/* Returns "ready", "degraded" or "no-rdma". */
const char *pl_check_verdict_name(enum pl_check_verdict verdict);

struct pl_check_report {
	struct pl_check_result *results;
	size_t count;
	struct pl_check_route *routes;
	size_t route_count;
	enum pl_check_verdict verdict;
	char summary[400];
	const struct pl_check_result *first; /* row to mend first; NULL: none */
};

/* Counts of a report. */
struct pl_check_counts {
	size_t results[PL_CHECK_FAIL + 1]; /* rows with each status */
	size_t accepted;                   /* findings that do not count */
	enum pl_check_status worst;        /* PL_CHECK_OK, unless a row is UNKNOWN, WARN or FAIL */
};

struct pl_check_counts pl_check_count(const struct pl_check_report *report);

struct pl_check_options {
	bool ask;         /* asks the kernel, libibverbs and libcuda, if the root is this machine */
	uint64_t timeout; /* nanoseconds for these questions */
	const struct pl_check_policy *policy; /* stays in use by machine and report; NULL: none */
};

/* Reads a machine, which uses `root` until it is closed. */
int pl_check_machine_open(struct pl_check_machine **ret, struct pl_sysroot *root,
			  const struct pl_check_options *options, struct pl_error *error);
void pl_check_machine_close(struct pl_check_machine *machine);
const struct pl_inventory *pl_check_machine_inventory(const struct pl_check_machine *machine);
const struct pl_nccl *pl_check_machine_nccl(const struct pl_check_machine *machine);
/* Returns the answers, for a dump. */
const struct pl_facts *pl_check_machine_facts(const struct pl_check_machine *machine);

int pl_check_run(struct pl_check_report *report, const struct pl_check_machine *machine, struct pl_error *error);
void pl_check_report_free(struct pl_check_report *report);
/* Accepts findings by the policy, and chooses the row to mend first.  For reports that pl_check_run() did not fill. */
void pl_check_settle(struct pl_check_report *report, const struct pl_check_policy *policy);
/* Removes the results of all rows that are not wanted. */
void pl_check_report_keep(struct pl_check_report *report, bool (*wanted)(const struct pl_check_row *row));

/* Collects remedies without risk for all rows that are not OK. */
void pl_check_plan(const struct pl_check_machine *machine, const struct pl_check_report *report,
		   struct pl_check_plan *plan);
/* Runs an action on this machine. */
int pl_check_action_run(const struct pl_check_action *action, struct pl_error *error);

#endif
