#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_plugin.sh PLUGIN: checks that the plugin exports NIXL's two functions only, and which
# libraries it needs. Needs a build without sanitizers.
set -eu
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort | tr '\n' ' ')
if [ "$exported" != "nixl_plugin_fini nixl_plugin_init " ]; then
	echo "failed  the plugin exports: $exported"
	exit 1
fi
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
	grep -vE '^(libc|ld-linux.*|libpthread|libdl|libm|libgcc_s|libstdc\+\+|libssl|libcrypto)\.so\.' || true)
if [ -n "$needed" ]; then
	echo "failed  the plugin depends on: $needed"
	exit 1
fi
# RHEL 9 has this version of libstdc++.
newest=$(nm -D "$1" | grep -oE 'GLIBCXX_[0-9.]+' | sort -uV | tail -n 1)
if [ "$(printf '%s\n' "$newest" GLIBCXX_3.4.29 | sort -V | tail -n 1)" != GLIBCXX_3.4.29 ]; then
	echo "failed  the plugin needs $newest: $(nm -D "$1" | grep "$newest")"
	exit 1
fi
echo "passed  exports and dependencies"
