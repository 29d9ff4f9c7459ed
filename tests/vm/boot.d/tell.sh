# SPDX-License-Identifier: BSD-2-Clause
# What came of the start.  Whatever is wrong, the last lines switch the machine off.
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
echo end
echo o >/proc/sysrq-trigger
