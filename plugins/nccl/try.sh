#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# try.sh [PLUGIN]: builds the plugin if no path is given, and measures NCCL over its sockets and over the plugin, on two
# GPUs, in at most 4 minutes. See try.py for the columns.
set -eu
cd "$(dirname "$0")/../.."
if [ $# -eq 0 ]; then
	tools/configure build
	ninja -C build plugins/nccl/libnccl-net-peerlane.so
	set -- build/plugins/nccl/libnccl-net-peerlane.so
fi
exec timeout 250 python3 plugins/nccl/try.py "$@"
