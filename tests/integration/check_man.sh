#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_man.sh MAP HEADERS PAGES: checks the manual pages.  Each exported function is in the NAME and the SYNOPSIS of
# exactly one page of section 3, and a NAME has nothing else.  Each structure and constant of the public headers is on a
# page.  Pages refer to existing pages only.  Examples double each backslash: scdoc drops a single one.
set -eu
export LC_ALL=C
map=$1 headers=$2 pages=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complain()
{
	[ -n "$2" ] || return 0
	echo "$1:" $2
	failed=1
}

# Prints a section of all given pages.
section()
{
	title=$1
	shift
	awk -v title="# $title" 'FNR == 1 { on = 0 } /^# / { on = $0 == title; next } on' "$@"
}

sed -n 's/^[[:space:]]*\(pl_[a-z0-9_]*\);$/\1/p' "$map" | sort -u >"$work/exported"
section NAME "$pages"/*.3.scd | sed 's/ - .*//' | tr ',' '\n' | tr -d ' ' | grep . | sort >"$work/entries"
sort -u "$work/entries" >"$work/named"
section SYNOPSIS "$pages"/*.3.scd | grep -oE '\bpl_[a-z0-9_]+\(' | tr -d '(' | sort >"$work/prototypes"
complain "exported, but in no NAME" "$(comm -23 "$work/exported" "$work/named")"
complain "in a NAME, but not exported" "$(comm -13 "$work/exported" "$work/named")"
complain "in more than one NAME" "$(uniq -d "$work/entries")"
complain "in a NAME, but not once in a SYNOPSIS" "$(comm -3 "$work/named" "$work/prototypes")"

cat "$headers"/*.h | sed 's,/\*.*\*/,,' >"$work/headers"
{
	sed -nE 's/^(struct|enum) (pl_[a-z_]+) \{.*/\2/p' "$work/headers"
	sed -nE 's/^(#define|	)[[:space:]]*(PL_[A-Z0-9_]+)([ ,].*)?$/\2/p' "$work/headers"
} | sort -u >"$work/declared"
grep -ohE '\b(pl|PL)_[A-Za-z0-9_]+' "$pages"/*.3.scd | sed 's/_$//' | sort -u >"$work/mentioned"
complain "declared, but on no page" "$(comm -23 "$work/declared" "$work/mentioned")"

{
	cat "$work/named"
	ls "$pages" | sed 's/\.[0-9]\.scd$//'
} | sort -u >"$work/there"
grep -ohE '\*(pl_|peerlane)[a-z_-]*\*\([0-9]\)' "$pages"/*.scd | sed 's/^\*//; s/\*.*//' | sort -u >"$work/referred"
complain "referred to, but no such page exists" "$(comm -23 "$work/referred" "$work/there")"
complain "an example that loses its backslash" "$(
	awk 'FNR == 1 { on = 0 } /^```/ { on = !on; next } on { gsub(/\\\\/, "") } on && /\\/ { print FILENAME ":" FNR }' "$pages"/*.scd
)"
[ -s "$work/exported" ] && [ -s "$work/declared" ] || complain "nothing found in" "$map $headers"
exit $failed
