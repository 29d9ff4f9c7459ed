#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_symbols.sh LIBRARY HEADERS MAP: checks that the public headers, the shared library and the version script have the
# same functions, and that the soname is right.
set -eu
library=$1 headers=$2 map=$3
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Comments go first: they name functions too.  Members that are function pointers read "(*name)(".
cat "$headers"/*.h "$headers"/sys/*.h | tr '\n' ' ' | sed 's,/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/, ,g' |
	grep -oE '\bpl_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort -u >"$work/versioned"
sed 's/@.*//' "$work/versioned" | grep -vE '^(__asan_|__ubsan_|__odr_asan)' >"$work/exported" || true
sed -n 's/^[[:space:]]*\(pl_[a-z0-9_]*\);$/\1/p' "$map" | sort -u >"$work/listed"

differ()
{
	names=$(comm -23 "$work/$1" "$work/$2")
	[ -n "$names" ] || return 0
	echo "$1, but not $2:" $names
	failed=1
}
differ declared exported
differ exported declared
differ declared listed
differ listed declared

if grep -v '@@PEERLANE_0$' "$work/versioned" | grep '^pl_'; then
	echo "the functions above have no version"
	failed=1
fi
if ! readelf -d "$library" | grep -q 'SONAME.*\[libpeerlane\.so\.0\]'; then
	echo "the soname is not libpeerlane.so.0"
	failed=1
fi
[ -s "$work/declared" ] || failed=1
exit $failed
