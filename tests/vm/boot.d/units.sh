# SPDX-License-Identifier: BSD-2-Clause
# Prints what the units of the package peerlane do once a client, or a person, starts them.
export HOME=/root LC_ALL=C.UTF-8
state()
{
	systemctl is-active "$1"
}

mkdir -p /srv/peerlane /etc/peerlane
echo hello >/srv/peerlane/file
peerlane key group /etc/peerlane/bench.key
peerlane key generate /etc/peerlane/identity.pem
peerlane key generate /root/me.pem
echo "$(peerlane key show /root/me.pem | grep -o 'SHA256:[A-Za-z0-9+/=]*' | head -n 1) read" >/etc/peerlane/authorized
systemctl start peerlane-bench.socket peerlane.socket
echo "before clients: $(state peerlane-bench.service) $(state peerlane.service)"
peerlane bench --key /etc/peerlane/bench.key --size 4K --iterations 20 --json 127.0.0.1:19877 | grep -o '"operations": *20,'
peerlane get --identity /root/me.pem --trust-new --quiet --output /tmp 127.0.0.1 file && echo "fetched: $(cat /tmp/file)"
echo "after clients: $(state peerlane-bench.service) $(state peerlane.service)"
echo "users: $(ps -o user= -C peerlane | grep -vc '^root')"
echo PEERLANE_TEXTFILE=/run/peerlane/check.prom >/etc/peerlane/check.env
systemctl start peerlane-check.service
peerlane check --cached /run/peerlane/check.prom | grep -o 's ago: .* UNKNOWN' | sed 's/[0-9]/N/g;s/^/checked /'
echo 'ignore no-such-check reason' >/etc/peerlane/check.conf
systemctl start peerlane-check.service 2>/dev/null
journalctl -b -o cat -p err -u peerlane-check.service | grep -o 'CHECK-UNKNOWN'
