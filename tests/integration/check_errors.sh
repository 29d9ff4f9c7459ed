#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_errors.sh PAGE SOURCES...: checks that peerlane-errors(7) explains exactly the error ids that the sources produce, and
# that the ids fit into struct pl_error.
set -eu
export LC_ALL=C
page=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Finds ids: the first string of a call of a function named *fail*, if in capitals; and all strings like "WORD-WORD".
find "$@" \( -name '*.c' -o -name '*.cc' \) -exec cat {} + | tr '\n\t' '  ' >"$work/text"
{
	grep -oE '[a-z_]*fail[a-z_]*\([^";{}]*"[A-Z]+"' "$work/text" || true
	grep -oE '"[A-Z]+(-[A-Z]+)+"' "$work/text" || true
} | grep -oE '"[A-Z-]+"$' | tr -d '"' | sort -u >"$work/produced"
grep -oE '^\*[A-Z]+(-[A-Z]+)*\*' "$page" | tr -d '*' | sort >"$work/entries"
sort -u "$work/entries" >"$work/explained"

complain()
{
	[ -n "$2" ] || return 0
	echo "$1:" $2
	failed=1
}
complain "produced, but not on the page" "$(comm -23 "$work/produced" "$work/explained")"
complain "on the page, but not produced" "$(comm -13 "$work/produced" "$work/explained")"
complain "more than once on the page" "$(uniq -d "$work/entries")"
complain "too long for struct pl_error" "$(grep -E '.{24}' "$work/produced" || true)"
[ "$(wc -l <"$work/produced")" -gt 50 ] || complain "the sources have too few" "$(wc -l <"$work/produced")"
exit $failed
