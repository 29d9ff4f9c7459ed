# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane fleet bench`: ranks on hosts that a launcher reaches, hosts that it does not reach, results, wrong lines."""
import json
import pathlib
import signal

import pytest
from cli_support import PEERLANE, free_port, make_key, run, start, wait_exited, children
from fleet_hosts import told

# Ranks use no loopback interface by default. A host without another one has no route.
NETWORK = [] if pathlib.Path('/proc/net/route').read_text().count('\n') > 1 else ['--network', 'lo']
LAUNCHER = """#!/bin/sh
host=$1
shift
case $host in
dead) echo "ssh: connect to host dead port 22: No route to host" >&2; exit 255 ;;
slow) sleep 1000 ;;
large) head -c 5M /dev/zero | tr '\\0' x; printf '\\033[31mred\\n' >&2; exit ;;
huge) head -c 300M /dev/zero; exit ;;
well) exit ;;
talks|*@talks) seq -f 'line %g' 2000 >&2; printf 'peerlane: cannot \\033[31mread\\r\\n  hint: look\\r\\n\\n' >&2; exit 1 ;;
brief) echo 'only line' >&2; exit 1 ;;
esac
echo "$host $*" >>"$(dirname "$0")/lines"
exec "$@"
"""


@pytest.fixture
def fleet(tmp_path):
    launcher = tmp_path / 'launcher'
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)

    def bench(hosts, *words, options=(), **others):
        return run('fleet', 'bench', hosts, '--launch', f'{launcher} {{host}}', '--program', PEERLANE, '--rendezvous',
                   f'127.0.0.1:{free_port()}', *options, '--', '--duration', '0.01', '--key', key, *NETWORK, *words, **others)
    key = make_key(tmp_path)
    bench.folder, bench.launcher = tmp_path, launcher
    return bench


def test_document_and_table(fleet):
    shown = json.loads(fleet('root@n[1-3]', '--schedule', 'ring', options=['--json']).stdout)
    assert shown['complete'] and shown['schedule'] == 'ring' and [rank['host'] for rank in shown['ranks']] == ['n1', 'n2', 'n3']
    assert sum(rate is not None for row in shown['bytes_per_second'] for rate in row) == 3
    lines = (fleet.folder / 'lines').read_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == ['root@n1', 'root@n2', 'root@n3']
    text = fleet('n[1-2]').stdout
    assert text.startswith('2 ranks, messages of 1M') and 'GB/s, from row to column' in text and '{' not in text


def test_output_beside_the_table(fleet):
    file = fleet.folder / 'run.json'
    text = fleet('n[1-2]', options=['-o', file]).stdout
    assert text.startswith('2 ranks, messages of 1M') and 'GB/s, from row to column' in text and '{' not in text
    assert json.loads(file.read_text())['complete']
    shown = fleet('n[1-2]', options=['-o', file, '--json']).stdout
    assert json.loads(shown) == json.loads(file.read_text())
    # The judgement of --min-rate fails the run, and does not lose its results.
    done = fleet('n[1-2]', '--min-rate', '100TB', options=['-o', file], expect=1)
    assert 'from row to column' in done.stdout and json.loads(file.read_text())['error']['id'] == 'RATE-TOO-LOW'
    file.write_text('earlier')
    assert '[FLEET-NO-DOCUMENT]' in fleet('well,brief', options=['-o', file], expect=1).stderr
    assert file.read_text() == 'earlier'


def test_unreachable_hosts_are_left_out(fleet):
    # Two ranks of a busy machine may not join in time.
    for seconds in 1, 5, 25, 125:
        done = fleet('n1,dead,n2', '--join-timeout', seconds, options=['--json'], expect=None)
        shown = json.loads(done.stdout or '{}')
        # A run that fails for that reason has no hosts.
        if len(shown.get('left_out', [])) == 1:
            break
    assert done.returncode == 3 and [(one['rank'], one['host']) for one in shown['left_out']] == [(1, 'dead')]
    assert [rank['host'] for rank in shown['ranks']] == ['n1', 'dead', 'n2'] and 'rank 1 (dead) is left out' in done.stderr
    assert 'rank 1, dead: exit status 255: ssh: connect to host dead port 22: No route to host' in done.stderr
    done = fleet('dead,n1', '--join-timeout', '1', expect=None)
    assert done.returncode == 1 and 'rank 0, dead' in done.stderr and done.stdout == ''


def test_failures_keep_earlier_results(fleet):
    (fleet.folder / 'run.json').write_text('earlier')
    done = fleet('n[1-2]', '--no-such-option', options=['-o', fleet.folder / 'run.json'], expect=2)
    assert 'rank 0, n1: exit status 2' in done.stderr and (fleet.folder / 'run.json').read_text() == 'earlier'
    done = fleet('n1,slow', '--join-timeout', '1', options=['--timeout', '2'], expect=None)
    assert 'rank 1, slow: no end within 2 s' in done.stderr and done.returncode in (1, 3)


def test_large_documents_and_messages(fleet):
    """With rails apart a document is larger than the answers of other commands; messages cannot change the terminal."""
    done = fleet('large,well')
    assert done.stdout == 'x' * (5 << 20) and told(done) == '?[31mred\n'
    # The output of other ranks is dropped, however long it is.
    assert told(fleet('well,huge')) == ''


def test_the_last_lines_of_failed_ranks_are_shown(fleet):
    done = fleet('well,talks,brief', expect=3)
    lines = told(done).splitlines()
    at = lines.index('peerlane: warning: rank 1, talks: exit status 1: peerlane: cannot ?[31mread')
    assert lines[at + 1:at + 9] == [*(f'  talks: line {i}' for i in range(1995, 2001)),
                                    '  talks: peerlane: cannot ?[31mread', '  talks:   hint: look']
    assert len(lines) == 10 and 'peerlane: warning: rank 2, brief: exit status 1: only line' in lines
    # Many ranks that fail have a line each.
    lines = told(fleet(f'well,{",".join(f"u{i}@talks" for i in range(10))}', expect=3)).splitlines()
    assert len(lines) == 10 + 8 * 8


def test_wrong_lines(fleet):
    for arguments in [], ['n1'], ['n1,n2', '--timeout', '0'], ['n[1-300]'], ['--hosts', '/nonexistent']:
        assert run('fleet', 'bench', '--launch', 'false', *arguments, expect=2).stderr


def test_an_interrupt_ends_all_ranks(fleet):
    bench = start('fleet', 'bench', 'slow,n2', '--launch', f'{fleet.launcher} {{host}}', '--program', PEERLANE, '--rendezvous',
                  f'127.0.0.1:{free_port()}', '--', '--join-timeout', '60', *NETWORK)
    while not (fleet.folder / 'lines').exists():
        assert bench.poll() is None
    ranks = children(bench.pid)
    bench.send_signal(signal.SIGINT)
    bench.communicate()
    assert bench.returncode != 0
    wait_exited(ranks)
