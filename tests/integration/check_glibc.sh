#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_glibc.sh FILE...: checks that the files need no function that is newer than glibc 2.34, which RHEL 9 has.
# Functions named __isoc23_... come from the headers of glibc 2.38 and later, in place of older functions.
set -eu
export LC_ALL=C
for file; do
	nm -D --undefined-only "$file" | sed -n 's/.* \([A-Za-z0-9_]*\)@GLIBC_2\.\([0-9]*\).*/\1 \2/p' | awk -v file="$file" '
		$1 ~ /^__isoc23_/ { next }
		{ count++ }
		$2 > 34 { print file " needs " $1 "() of glibc 2." $2; newer = 1 }
		END {
			if (!count)
				print "nm names no functions of glibc for " file
			exit newer || !count
		}'
done
