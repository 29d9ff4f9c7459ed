# SPDX-License-Identifier: BSD-2-Clause
"""Hosts of tests: network namespaces on one switch, with addresses 10.77.0.1 and up."""
import contextlib
import shutil
import subprocess

from cli_support import DEADLINE

NAMESPACES = ['unshare', '--net', '--mount']
# Ends with its standard input.  All links and namespaces end with it.
SWITCH = """set -e
mount -t tmpfs none /run
{
	echo link add switch type bridge
	echo link set switch up
	for number in $(seq "$1"); do
		echo netns add "$number"
		echo link add "port$number" type veth peer name eth0 netns "$number"
		echo link set "port$number" master switch up
	done
} | ip -batch -
for number in $(seq "$1"); do
	printf '%s\\n' "address add 10.77.0.$number/16 dev eth0" 'link set eth0 up' 'link set lo up' | ip -n "$number" -batch -
done
echo ready
exec cat
"""


class Hosts:
    """Hosts by number, from 1 on."""

    def __init__(self, process):
        self.process = process

    def inside(self, number, *command):
        """Returns the command line that runs a command on a host."""
        return ['nsenter', f'--net=/proc/{self.process.pid}/root/run/netns/{number}', *map(str, command)]

    def limit(self, number, rate):
        """Limits the bytes that a host receives, such as '8mbit'.  Returns False if the kernel has no tbf."""
        return subprocess.run(['nsenter', f'--net=/proc/{self.process.pid}/ns/net', 'tc', 'qdisc', 'add', 'dev',
                               f'port{number}', 'root', 'tbf', 'rate', rate, 'burst', '8k', 'latency', '100ms'],
                              timeout=DEADLINE, stderr=subprocess.DEVNULL).returncode == 0


def can_make_hosts():
    """True if this user may create the namespaces, which needs root."""
    return bool(shutil.which('ip')) and subprocess.run(
        [*NAMESPACES, 'sh', '-c', SWITCH, 'sh', '1'], stdin=subprocess.DEVNULL, capture_output=True,
        timeout=DEADLINE).returncode == 0


@contextlib.contextmanager
def hosts(count):
    process = subprocess.Popen([*NAMESPACES, 'sh', '-c', SWITCH, 'sh', str(count)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == 'ready\n'
        yield Hosts(process)
    finally:
        process.communicate(timeout=DEADLINE)
