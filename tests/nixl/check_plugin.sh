#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_plugin.sh PLUGIN: checks that the plugin exports NIXL's two functions only, and which libraries it needs.
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
echo "passed  exports and dependencies"
