#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_plugin.sh PLUGIN: checks that the plugin exports NCCL's tables and its judgement of settings only, and depends on the C library alone.
set -eu
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort | tr '\n' ' ')
wanted="ncclNetPlugin_v10 ncclNetPlugin_v11 ncclNetPlugin_v12 ncclNetPlugin_v8 ncclNetPlugin_v9 peerlane_nccl_settings "
if [ "$exported" != "$wanted" ]; then
	echo "failed  the plugin exports: $exported"
	exit 1
fi
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux.*|libpthread|libdl)\.so\.' || true)
if [ -n "$needed" ]; then
	echo "failed  the plugin depends on: $needed"
	exit 1
fi
echo "passed  exports and dependencies"
