#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Prolog of Slurm: `Prolog=/etc/slurm/prolog.d/*` in slurm.conf.  A prolog that fails drains the node, and Slurm starts the job
# elsewhere.  It must be short and must not call scontrol, so it reads the result that peerlane-check.service wrote.
set -u
result=${PEERLANE_TEXTFILE:-/run/peerlane/check.prom}
answer=$(timeout 5 peerlane check --cached "$result" --max-age 900 --fail-on fail 2>&1)
status=$?
case $status in
0) ;;
1)
	echo "peerlane: $answer" >&2
	logger -t peerlane-prolog "job ${SLURM_JOB_ID:-?} not started: $answer" || true
	exit 1
	;;
*)
	# No result, or an old one, says nothing about the node: an alert on the age of the result finds that.
	logger -t peerlane-prolog "no result of the check: $answer" || true
	;;
esac
exit 0
