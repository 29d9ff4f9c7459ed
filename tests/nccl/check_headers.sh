#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_headers.sh PLUGIN_FOLDER: compares the plugin's declarations with those of NCCL releases. NCCL_SOURCE names a
# git repository or an unpacked source of NCCL; each release of the repository from 2.20 on is compared. NCCL's packages
# contain no header of plugins. Exits with 77 without NCCL_SOURCE.
set -eu
here=$(dirname "$0")
plugin=$1
if [ -z "${NCCL_SOURCE:-}" ]; then
	echo "skipped: NCCL_SOURCE names no source of NCCL"
	exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

compare() # NAME HEADERS
{
	set -- "$1" "$2" "$(for version in 8 9 10 11 12; do
		[ ! -e "$2/net_v$version.h" ] || echo "-DHAVE_V$version"
	done)"
	# The definitions are words without blanks.
	# shellcheck disable=SC2086
	"${CC:-cc}" -std=c11 -fsyntax-only $3 -include "$2/net.h" \
		-I "$plugin/.." "$here/compare_headers.c"
	echo "passed  $1:$(echo "$3" | tr -d '\n' | sed 's/-DHAVE_/ /g')"
}

found=0
for release in $(git -C "$NCCL_SOURCE" tag 2>/dev/null | grep -E '^v2\.(2[0-9]|[3-9][0-9])\.' || true) HEAD; do
	rm -rf "$folder/nccl"
	mkdir "$folder/nccl"
	if git -C "$NCCL_SOURCE" rev-parse -q --verify "$release" >/dev/null 2>&1; then
		for path in plugins/net/example/nccl ext-net/example/nccl; do
			git -C "$NCCL_SOURCE" archive "$release" "$path" 2>/dev/null | tar -x -C "$folder/nccl" 2>/dev/null || true
		done
		headers=$(find "$folder/nccl" -type d -path '*/example/nccl')
	else
		headers=$(find "$NCCL_SOURCE" -type d -path '*/example/nccl' -path '*net*')
	fi
	[ -n "$headers" ] || continue
	compare "$release" "$headers"
	found=$((found + 1))
done
[ "$found" -gt 0 ] || { echo "no header of plugins in $NCCL_SOURCE"; exit 1; }
