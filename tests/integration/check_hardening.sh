#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check_hardening.sh FILE...: checks that programs and libraries have the protections that meson.build asks for.
set -eu
export LC_ALL=C
failed=0

complain()
{
	echo "$1: $2"
	failed=1
}

for file; do
	readelf -hldW "$file" >/tmp/peerlane-hardening.$$
	symbols=$(readelf --dyn-syms -W "$file")
	grep -q 'Type: *DYN' /tmp/peerlane-hardening.$$ || complain "$file" "no position-independent executable"
	grep -q 'GNU_RELRO' /tmp/peerlane-hardening.$$ || complain "$file" "no read-only relocations"
	grep -qE 'BIND_NOW|FLAGS.*NOW' /tmp/peerlane-hardening.$$ || complain "$file" "symbols are bound late"
	grep -q 'GNU_STACK.* RW ' /tmp/peerlane-hardening.$$ || complain "$file" "the stack is executable"
	echo "$symbols" | grep -q '__stack_chk_fail' || complain "$file" "no canaries on the stack"
	echo "$symbols" | grep -qE '_chk(@|$)' || complain "$file" "no checked library calls"
	rm -f /tmp/peerlane-hardening.$$
done
exit $failed
