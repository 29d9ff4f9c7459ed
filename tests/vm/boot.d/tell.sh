# SPDX-License-Identifier: BSD-2-Clause
# Prints the state of the service and the module after the boot.  The last line switches the machine off in any case.
module()
{
	if [ -e /proc/driver/peerlane_peermem ]; then
		echo "loaded"
	else
		echo "not there"
	fi
}

echo "service: $(systemctl is-active peerlane-peermem.service)"
echo "module: $(module)"
journalctl -b -o cat -u peerlane-peermem.service
cat /proc/driver/peerlane_peermem
peerlane-peermem stop 2>&1
[ "$(module)" = loaded ] || echo "stopped: gone"
peerlane-peermem start 2>&1
echo "by hand: $(module)"
[ ! -e /etc/peerlane/test-units ] || sh /usr/local/sbin/units.sh 2>&1
echo end
echo o >/proc/sysrq-trigger
