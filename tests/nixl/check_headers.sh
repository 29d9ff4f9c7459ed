#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_headers.sh PLUGIN_FOLDER: compares the plugin's declarations with those of NIXL releases, and compiles the plugin
# against them. NIXL_SOURCE names a git repository of NIXL, NIXL_RELEASES its tags (default: 1.0 to 1.4 and HEAD). Releases
# before 1.0 have other tables: for them the script only compiles the plugin. Exits with 77 without NIXL_SOURCE.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
plugin=$(cd "$1" && pwd)
if [ -z "${NIXL_SOURCE:-}" ]; then
	echo "skipped: NIXL_SOURCE names no repository of NIXL"
	exit 77
fi
releases=${NIXL_RELEASES:-v1.0.0 v1.0.1 v1.1.0 v1.2.0 v1.3.0 v1.3.1 v1.3.2 v1.4.0 HEAD}
older=${NIXL_OLDER:-0.6.0 0.6.1 0.7.0 0.7.1 0.8.0 0.9.0 0.10.0 0.10.1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compiler="${CXX:-c++} -std=c++20 -Wall -Wextra -Werror -Wno-invalid-offsetof"

# NIXL's headers use the log of Abseil, whose version in Debian 12 has none.
mkdir -p "$folder/stub/absl/log"
cat >"$folder/stub/absl/log/log.h" <<-END
	#include <cstdlib>
	#include <iostream>
	#define LOG(level) std::cerr
	#define VLOG(level) std::cerr
	#define DCHECK(condition) std::cerr
	#define CHECK(condition) std::cerr
END
: >"$folder/stub/absl/log/check.h"
: >"$folder/stub/absl/log/initialize.h"

headers() # RELEASE: sets $folders
{
	rm -rf "$folder/nixl"
	mkdir "$folder/nixl"
	git -C "$NIXL_SOURCE" archive "$1" src/api/cpp src/utils src/infra src/core | tar -x -C "$folder/nixl"
	folders="-DPLUGIN_NIXL_HEADERS -DPLUGIN_NIXL_VERSION=\"$1\""
	for each in api/cpp api/cpp/backend infra core core/telemetry utils; do
		folders="$folders -isystem $folder/nixl/src/$each"
	done
	folders="$folders -isystem $folder/stub"
}

compile() # RELEASE
{
	for source in "$plugin"/*.cc; do
		# shellcheck disable=SC2086 # words without blanks
		$compiler -fsyntax-only $folders '-DPLUGIN_VERSION="test"' -I"$here/../../include" "$source"
	done
}

# shellcheck disable=SC2086
$compiler -I"$plugin" -o "$folder/ours" "$here/layout.cc"
"$folder/ours" >"$folder/ours.txt"
for release in $releases; do
	headers "$release"
	# shellcheck disable=SC2086
	$compiler -O1 $folders -I"$plugin" -o "$folder/theirs" "$here/layout.cc"
	"$folder/theirs" >"$folder/theirs.txt"
	diff -u "$folder/theirs.txt" "$folder/ours.txt"
	compile "$release"
	echo "passed  $release $(git -C "$NIXL_SOURCE" rev-parse --short "$release"): same layout, compiles"
done
for release in $older; do
	headers "$release"
	compile "$release"
	echo "passed  $release $(git -C "$NIXL_SOURCE" rev-parse --short "$release"): compiles"
done
