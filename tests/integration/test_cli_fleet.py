# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane fleet check` and `topo`: simulated fleets with planted defects, hosts that do not answer, launchers, signals."""
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import termios
import time

import jsonschema
import pytest
from cli_support import DEADLINE, PEERLANE, environment, read_terminal, run, wait_exited
from fleet_hosts import DEFECTS, HOSTS, Fleet, captured, gpu, name, on_host, server, slim, spoil, told, write_dump

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / 'docs/fleet.schema.json').read_text())
# Hosts with each defect of a machine, and with each defect of an answer.
PLANTED = {'lost-gpu': [17], 'half-width': [42, 43], 'old-firmware': [61, 62, 63, 150], 'wrong-mtu': [99], 'port-down': [5],
           'slow-port': [120], 'other-driver': [77], 'other-kernel': [180, 181]}
SILENT = {'unreachable': [3, 88, 89], 'no-program': [90, 91], 'timeout': [1], 'too-long': [102], 'truncated': [103], 'other-format': [104, 105],
          'no-document': [106], 'failed': [107], 'repeated': [110]}
CLOCK, SAME_NAME, NOISE, LINGERING = 130, [140, 141], [160, 161, 162], 2
LIMITS = 15, 60, 240  # seconds of a host; one hangs for so long, and all others end before, those of a busy machine with a later limit
BANNER = 'Welcome to {gpu}!\n* "quota": {"used": 1}\n{"level":"info","format":"text"}\n{\n{"format": 1, "kind": \nlast login: '


def fleet_json(fleet, *arguments, command='check', **options):
    done = run('fleet', command, *fleet.arguments, *arguments, '--json', **{'expect': None, **options})
    shown = json.loads(done.stdout)
    assert [f'{list(error.path)}: {error.message}' for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(shown)] == []
    return shown


def found(shown):
    """Rows of a fleet's document as (id, status, object, text): hosts."""
    return {(row['id'], row['status'], one['object'], one['found']): row['hosts']
            for row in shown['rows'] for one in row['findings']}


@pytest.fixture(scope='module')
def documents(tmp_path_factory):
    return captured(tmp_path_factory.mktemp('machines') / 'machines')


@pytest.fixture
def small(documents, tmp_path):
    """Six hosts that are well."""
    fleet = Fleet(tmp_path / 'fleet')
    for number in range(1, 7):
        fleet.answer(name(number), on_host(documents['well'], name(number), number))
    return fleet


def plant(documents, folder):
    """A fleet of 200 hosts with all defects."""
    fleet = Fleet(folder)
    kinds = {number: kind for kind, numbers in PLANTED.items() for number in numbers}
    for number in range(1, HOSTS + 1):
        shown = on_host(documents[kinds.get(number, 'well')], name(number), number, number % 10 == 0)
        if number in SAME_NAME:
            shown['host'] = 'template'
        if number in SILENT['repeated']:
            shown.update(host=name(109), boot_id=on_host(documents['well'], '', 109)['boot_id'])
        if number in SILENT['other-format']:
            shown.update(format=2, version='9.1.0')
        fleet.answer(name(number), f'{BANNER}{json.dumps(shown, indent=2)}\nlogout "{{\n' if number in NOISE else shown)
    fleet.act(name(CLOCK), 'now=$((EPOCHSECONDS - 3600))\n')
    for number in SILENT['unreachable']:
        fleet.act(name(number), 'echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255\n')
    for number, status in zip(SILENT['no-program'], (127, 126)):
        fleet.act(name(number), f'echo "bash: peerlane: command not found" >&2; exit {status}\n')
    fleet.act(name(1), 'sleep 1000\n').act(name(102), 'exec cat /dev/zero\n')
    fleet.act(name(103), '(give $1) | head -c 20000; exit 0\n').act(name(106), 'echo "nothing here"; exit 0\n')
    fleet.act(name(107), 'echo \'{"error": {"code": -2, "id": "SYSROOT-OPEN", "call": null, "object": "/x", "message": '
              '"No such file", "hint": null}}\'; exit 1\n')
    # The answer is whole; the launcher hangs, and ignores SIGTERM.
    fleet.act(name(LINGERING), 'trap "" TERM; (give $1); sleep 1000\n')
    return fleet


def test_hint_follows_long_messages(small):
    small.act(name(2), 'printf %0300d 0 >&2; exit 127\n')
    shown = fleet_json(small)
    assert [hosts for key, hosts in found(shown).items() if key[0] == 'no-program' and key[3].startswith('000') and
            key[3].endswith(': the command cannot start there: install Peerlane or its libraries, or name it with --program')] == [[name(2)]]


# -- 200 hosts -------------------------------------------------------------------------------------------------------

def test_all_planted_defects_are_found_and_nothing_else(documents, tmp_path):
    fleet = plant(documents, tmp_path / 'fleet')
    for limit in LIMITS:
        folder = tmp_path / f'saved{limit}'
        done = run('fleet', 'check', f'gpu[001-{HOSTS}]', *fleet.arguments[1:], '--timeout', limit, '--parallel', 32, '--output',
                   tmp_path / 'all.json', '--save', folder, expect=1)
        shown = json.loads((tmp_path / 'all.json').read_text())
        if sum(host['outcome'] == 'timeout' for host in shown['hosts']) == len(SILENT['timeout']):
            break
    assert [*jsonschema.Draft202012Validator(SCHEMA).iter_errors(shown)] == []
    rows = found(shown)
    expected = []
    for kind, numbers in PLANTED.items():
        for row, status, thing, text in DEFECTS[kind][1]:
            here = [key for key, hosts in rows.items() if key[:2] == (row, status) and text in key[3] and
                    (thing is None or key[2] == thing) and hosts == [name(number) for number in numbers]]
            assert len(here) == 1, (kind, row, rows)
            expected += here
    for outcome, numbers in SILENT.items():
        here = [key for key in rows if key[:2] == (outcome, 'NONE')]
        assert sum((rows[key] for key in here), []) == [name(number) for number in numbers], (outcome, rows)
        expected += here
    assert rows.pop(('clock', 'DIFFERS', None, next(key[3] for key in rows if key[0] == 'clock'))) == [name(CLOCK)]
    assert sorted(sum((rows.pop(key) for key in [*rows] if key[0] == 'name'), [])) == [name(number) for number in SAME_NAME]
    assert rows.pop(('end', 'DIFFERS', None, f'the launcher did not end in {limit} s')) == [name(LINGERING)]
    # A driver that does not fit its libraries is a failure of the check, too.
    assert [rows.pop(key) for key in [*rows] if key[:2] == ('driver-loaded', 'FAIL')] == [[name(77)]]
    assert set(rows) == set(expected)
    bad = {number for numbers in [*PLANTED.values(), *SILENT.values(), [CLOCK, LINGERING], SAME_NAME] for number in numbers}
    assert {host['host'] for host in shown['hosts'] if host['status'] != 'OK'} == {name(number) for number in bad}
    assert shown['counts'] == {'hosts': HOSTS, 'answered': HOSTS - sum(map(len, SILENT.values())), 'ok': HOSTS - len(bad),
                               'none': sum(map(len, SILENT.values())), 'unknown': 0, 'fail': 1, 'warn': 4,
                               'differs': len(bad) - sum(map(len, SILENT.values())) - 5}
    check_table(done.stdout, len(bad))
    again = json.loads(run('fleet', 'show', tmp_path / 'all.json', '--json', expect=1).stdout)
    # A launcher that does not end is a matter of its run.
    assert found(again) == {key: hosts for key, hosts in found(shown).items() if key[0] != 'end'}
    saved = {host['host'] for host in shown['hosts'] if host['outcome'] in ('document', 'repeated')}
    assert {path.name for path in folder.iterdir()} == {f'{host}.json' for host in saved}
    assert json.loads((folder / 'gpu160.json').read_text()) == \
        next(host['document'] for host in shown['hosts'] if host['host'] == 'gpu160')


def check_table(text, bad):
    lines = text.splitlines()
    assert re.fullmatch(r'HOSTS +STATUS +ROW +WHAT', lines[0])
    status = [line.split()[1] for line in lines[1:-2]]
    order = ['FAIL', 'WARN', 'DIFFERS', 'UNKNOWN', 'NONE']
    assert status == sorted(status, key=order.index) and lines[1].startswith('gpu077 ')
    assert any(re.match(r'gpu\[061-063,150\] +DIFFERS +firmware +mlx5_3: 28\.36\.1010, where \d+ hosts have 28\.39\.1002$', line)
               for line in lines)
    assert any(re.match(r'gpu\[003,088-089\] +NONE +unreachable +ssh: connect to host HOST port 22: No route to host \(exit status 255\)$',
                        line) for line in lines)
    assert lines[-2] == f'{HOSTS - bad} hosts are well and alike'
    assert re.fullmatch(rf'{HOSTS - sum(map(len, SILENT.values()))} of {HOSTS} hosts answered in [0-9.]+ s, .*', lines[-1])


def test_fleet_without_defects(small):
    done = run('fleet', 'check', *small.arguments)
    assert re.fullmatch(r'6 hosts are well and alike\n6 of 6 hosts answered in [0-9.]+ s\n', done.stdout) and told(done) == ''
    assert fleet_json(small, expect=0)['rows'] == []


def test_schema_is_a_schema(small):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    good = fleet_json(small)
    for change in [{'format': 2}, {'kind': 'check'}, {'command': 'bench'}, {'counts': {}}, {'rows': [{}]}, {'hosts': [{}]}]:
        assert [*jsonschema.Draft202012Validator(SCHEMA).iter_errors({**good, **change})], change


# -- what most hosts have --------------------------------------------------------------------------------------------

def test_failures_of_most_hosts_come_after_outliers(documents, tmp_path):
    fleet = Fleet(tmp_path)
    for number in range(1, 11):
        shown = on_host(documents['well'], name(number), number)
        if number != 4:
            spoil(shown, 'port-address', 'FAIL', 'no subnet manager')
        if number == 7:
            spoil(shown, 'port-gid', 'WARN', 'no address', 'mlx5_0/1')
        fleet.answer(name(number), shown)
    done = run('fleet', 'check', *fleet.arguments, expect=1)
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines()[1:4]]
    assert [line[:3] for line in lines] == [['gpu007', 'WARN', 'port-gid'], ['gpu004', 'DIFFERS', 'port-address'],
                                            ['gpu[001-003,005-010]', 'FAIL', 'port-address']]
    assert lines[0][3] == 'mlx5_0/1: no address (9 hosts have OK)' and lines[1][3] == 'OK, where 9 hosts have FAIL'
    assert lines[2][3] == 'no subnet manager'
    rows = fleet_json(fleet)['rows']
    assert [(row['outlier'], row['usual'], row['usual_hosts']) for row in rows] == \
        [(True, 'OK', 9), (True, 'FAIL', 9), (False, 'FAIL', 9)]


def test_two_kinds_of_hosts_are_no_outliers(documents, tmp_path):
    fleet = Fleet(tmp_path)
    for number in range(1, 11):
        fleet.answer(name(number), on_host(documents['other-kernel' if number > 6 else 'well'], name(number), number))
    done = run('fleet', 'check', *fleet.arguments, expect=0)
    assert done.stdout.splitlines()[0] == 'kernel has no usual value: 6.5.0-14-generic (gpu[007-010]), ' \
        '6.8.0-45-generic (gpu[001-006])'
    mixed, = fleet_json(fleet)['mixed']
    assert mixed['id'] == 'kernel' and [value['folded'] for value in mixed['values']] == ['gpu[007-010]', 'gpu[001-006]']


def test_one_host_alone_is_not_compared(documents, tmp_path):
    fleet = Fleet(tmp_path).answer('a', on_host(documents['lost-gpu'], 'a', 1))
    assert fleet_json(fleet, expect=0)['rows'] == []
    fleet.answer('b', on_host(documents['well'], 'b', 2))
    assert [mixed['id'] for mixed in fleet_json(fleet, expect=0)['mixed']] == ['gpus']


def test_unknown_counts_where_others_know(documents, tmp_path):
    fleet = Fleet(tmp_path)
    for number in range(1, 6):
        shown = spoil(on_host(documents['well'], name(number), number), 'path-acs', 'UNKNOWN', 'only root sees this')
        if number == 2:
            spoil(shown, 'path-payload', 'UNKNOWN', 'only root sees these')
        fleet.answer(name(number), shown)
    assert [(row['id'], row['status'], row['folded']) for row in fleet_json(fleet, expect=3)['rows']] == \
        [('path-payload', 'UNKNOWN', 'gpu002')]
    rows = fleet_json(fleet, '--fail-on', 'unknown', expect=1)['rows']
    assert [(row['id'], row['folded']) for row in rows] == [('path-payload', 'gpu002'), ('path-acs', 'gpu[001-005]')]


def test_counters_do_not_divide_groups(documents, tmp_path):
    fleet = Fleet(tmp_path)
    for number in range(1, 11):
        fleet.answer(name(number), spoil(on_host(documents['well'], name(number), number), 'port-congestion', 'WARN',
                                         f'{number * 37} packets were lost', 'mlx5_0/1'))
    row, = fleet_json(fleet, expect=0)['rows']
    assert row['folded'] == 'gpu[001-010]' and row['numbers_differ']
    text = run('fleet', 'check', *fleet.arguments).stdout
    assert 'packets were lost (numbers differ)\n' in text


# -- policies --------------------------------------------------------------------------------------------------------

def test_exit_statuses(small, documents):
    small.answer(name(3), spoil(on_host(documents['well'], name(3), 3), 'port-gid', 'WARN', 'no address', 'mlx5_0/1'))
    assert fleet_json(small, expect=3)['counts']['warn'] == 1
    fleet_json(small, '--fail-on', 'warn', expect=1)
    assert fleet_json(small, '--ignore', 'port-gid=known', '--fail-on', 'unknown', expect=0)['ignored'] == \
        [{'id': 'port-gid', 'object': None, 'reason': 'known', 'used': 1}]
    fleet_json(small, '--ignore', 'port-gid:mlx5_0/1', expect=0)
    done = run('fleet', 'check', *small.arguments, '--ignore', 'port-gid:mlx5_1/1,firmware', expect=3)
    assert told(done) == ('peerlane: warning: nothing to ignore of port-gid:mlx5_1/1\n'
                          'peerlane: warning: nothing to ignore of firmware\n')
    small.act(name(5), 'exit 1\n')
    assert fleet_json(small, '--ignore', 'port-gid', expect=3)['counts']['none'] == 1
    small.answer(name(4), spoil(on_host(documents['well'], name(4), 4), 'port-gid', 'FAIL', 'no address', 'mlx5_0/1'))
    fleet_json(small, expect=1)


def test_differences_are_accepted(small, documents):
    small.answer(name(2), on_host(documents['old-firmware'], name(2), 2))
    fleet_json(small, expect=3)
    fleet_json(small, '--ignore', 'firmware:mlx5_3', expect=0)
    fleet_json(small, '--ignore', 'firmware:mlx5_2', expect=3)


@pytest.mark.parametrize('arguments, message', [
    ([], 'HOSTS are missing'), (['gpu[1-'], 'a bracket has no end'), (['gpu[3-1]'], 'not understood'), (['a;b'], 'next character'),
    (['--', '-oProxyCommand'], 'cannot begin'), (['gpu[1-20000]'], 'more than 16384'), (['a', '--launch', 'ssh host'], 'has no {host}'),
    (['a', '--launch', "ssh '{host}"], 'quote has no end'), (['a', '--parallel', '0'], '--parallel'), (['a', '--parallel', '257'], '--parallel'),
    (['a', '--timeout', '0'], '--timeout'), (['a', '--fail-on', 'ok'], '--fail-on'), (['a', '--expect', 'gpu=8'], 'unknown expectation'),
    (['a', '--ignore', ':x'], 'empty or too long'), (['a', '--hosts', '/no/such/file'], 'No such file'), (['a', '-x', 'a'], 'no host is left'),
    (['a', '--launch', ' '], 'empty')])
def test_wrong_usage(arguments, message):
    done = run('fleet', 'check', *arguments, expect=2)
    assert message in done.stderr and done.stdout == ''


def test_subcommands_are_checked():
    assert '--expect' in run('fleet', 'topo', 'a', '--expect', 'gpus=8', expect=2).stderr
    assert "'test' is no subcommand" in run('fleet', 'test', expect=2).stderr
    assert 'subcommand is missing' in run('fleet', expect=2).stderr


# -- launchers -------------------------------------------------------------------------------------------------------

def test_the_command_reaches_the_hosts(tmp_path):
    """Launchers like srun get words, ssh one text for the shell of the host; each host runs the real check."""
    write_dump(server(), tmp_path / 'machine')
    (tmp_path / 'peer lane').write_text(f'#!/bin/sh\nfirst=$1; shift\nexec {PEERLANE} $first --sysroot {tmp_path}/machine --host "$HOST" "$@"\n')
    (tmp_path / 'ssh').write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{tmp_path}/words\nfor last; do :; done\n'
                                  'case $* in *node1*) HOST=node1;; *) HOST=node2;; esac; export HOST\n'
                                  'echo "profile of $HOST"; exec sh -c "$last"\n')
    for script in 'peer lane', 'ssh':
        (tmp_path / script).chmod(0o755)
    path = f'{tmp_path}:{os.environ["PATH"]}'
    common = ['node[1-2]', '--program', tmp_path / 'peer lane', '--expect', 'gpus=9,driver=57*', '--json']
    for launch in [[], ['--launch', 'env HOST={host}'], ['--launch', "env HOST={host} sh -c '{command}'"]]:
        shown = json.loads(run('fleet', 'check', *common, *launch, PATH=path, expect=1).stdout)
        row, = shown['rows']
        assert (row['id'], row['hosts']) == ('gpu-count', ['node1', 'node2'])
        assert shown['hosts'][0]['document']['policy']['expected'] | {'gpus': 9, 'driver': '57*'} == \
            shown['hosts'][0]['document']['policy']['expected']
    words = (tmp_path / 'words').read_text().splitlines()
    assert {'-n', '-T', 'BatchMode=yes', 'ConnectTimeout=10', 'LogLevel=ERROR', 'node1', 'node2'} <= set(words)
    assert f"'{tmp_path}/peer lane' check --json --expect 'gpus=9,driver=57*'" in words
    (tmp_path / 'words').unlink()
    run('fleet', 'check', 'node1', '--launch', 'ssh -o connecttimeout=3 -p 22 {host}', PATH=path, expect=3)
    words = (tmp_path / 'words').read_text().splitlines()
    assert 'connecttimeout=3' in words and 'ConnectTimeout=10' not in words


def test_hosts_come_from_files(small, tmp_path):
    path = tmp_path / 'hosts'
    path.write_text('# the fleet\ngpu[001-003]  # first rack\n\ngpu004,gpu005\tgpu001\n')
    shown = json.loads(run('fleet', 'check', '--hosts', path, 'gpu006', '-x', 'gpu[002-003]', *small.arguments[1:], '--json').stdout)
    assert [host['host'] for host in shown['hosts']] == ['gpu006', 'gpu001', 'gpu004', 'gpu005']
    done = subprocess.run([PEERLANE, 'fleet', 'check', '--hosts', '-', *small.arguments[1:]], input='gpu001\ngpu001\n', text=True,
                          capture_output=True, timeout=DEADLINE, env=environment())
    assert done.stdout.startswith('1 host is well\n1 of 1 hosts answered') and 'named more than once' in done.stderr
    # A socket cannot be opened by its path in /proc.
    near, far = socket.socketpair()
    with near, far:
        near.sendall(b'gpu001\n')
        near.shutdown(socket.SHUT_WR)
        done = subprocess.run([PEERLANE, 'fleet', 'check', '--hosts', '-', *small.arguments[1:]], stdin=far, text=True,
                              capture_output=True, timeout=DEADLINE, env=environment())
    assert done.stdout.startswith('1 host is well\n1 of 1 hosts answered'), done.stderr
    done = subprocess.run([PEERLANE, 'fleet', 'check', '--hosts', '-', *small.arguments[1:]], input='gpu001\nbad;name\n', text=True,
                          capture_output=True, timeout=DEADLINE, env=environment())
    assert done.returncode == 2 and 'standard input:2' in done.stderr
    path.write_text('gpu001\nbad;name\n')
    assert f'{path}:2' in run('fleet', 'check', '--hosts', path, expect=2).stderr


def test_missing_launcher(small):
    row, = fleet_json(small, '--launch', '/no/such/launcher {host}', expect=3)['rows']
    assert row['folded'] == 'gpu[001-006]' and row['findings'][0]['found'] == \
        '/no/such/launcher: No such file or directory (exit status 125)'


def test_dropped_logins_are_repeated_once(small):
    """A daemon of ssh drops connections when many come at the same time."""
    drop = 'echo "kex_exchange_identification: Connection closed by remote host" >&2; exit 255\n'
    small.act(name(2), f'echo x >>tries.$1; if [ "$(cat tries.$1)" = x ]; then {drop}fi\n')
    small.act(name(4), f'echo x >>tries.$1; {drop}')
    small.act(name(5), 'echo x >>tries.$1; echo "Permission denied" >&2; exit 255\n')
    shown = fleet_json(small, expect=3)
    assert {host['host']: host['reason'] for host in shown['hosts'] if host['outcome'] != 'document'} == {
        name(4): 'kex_exchange_identification: Connection closed by remote host (exit status 255)',
        name(5): 'Permission denied (exit status 255)'}
    assert [(small.folder / f'tries.{name(number)}').read_text() for number in (2, 4, 5)] == ['x\nx\n', 'x\nx\n', 'x\n']


def test_hosts_in_parallel(small, tmp_path):
    """No more than N launchers run at the same time."""
    for host in small.names:
        small.act(host, 'echo + >>log; sleep 0.1; echo - >>log\n')
    for parallel in 1, 3:
        log = small.folder / 'log'
        log.unlink(missing_ok=True)
        fleet_json(small, '--parallel', parallel, expect=0)
        running = highest = 0
        for line in log.read_text().split():
            running += 1 if line == '+' else -1
            highest = max(highest, running)
        assert highest <= parallel and log.read_text().count('+') == 6


def test_endless_output_is_bounded(small):
    """Output, messages and noise without end take bounded memory."""
    small.act(name(1), 'exec yes \'{"format": 1, "kind": "check", "x": "\'\n').act(name(2), 'yes message | head -c 3000000 >&2; exit 1\n')
    small.act(name(3), '(give $1); exec cat /dev/zero\n')
    with (small.folder / 'output').open('wb') as output:
        process = subprocess.Popen([PEERLANE, 'fleet', 'check', *small.arguments, '--json'], stdout=output, env=environment())
        most = 0
        while process.poll() is None:
            most = max(most, most_memory(process.pid))
            time.sleep(0.01)
    shown = json.loads((small.folder / 'output').read_text())
    assert process.returncode == 3 and [host['outcome'] for host in shown['hosts']][:4] == \
        ['too-long', 'unreachable', 'too-long', 'document']
    # A sanitizer has memory of its own.
    assert 0 < most and ('ASAN_OPTIONS' in os.environ or 'TSAN_OPTIONS' in os.environ or most < 60_000), most


def most_memory(pid):
    """Kilobytes of memory that a process had at most; 0 if it is gone."""
    try:
        return int(re.search(r'VmHWM:\s*(\d+) kB', pathlib.Path(f'/proc/{pid}/status').read_text())[1])
    except (OSError, TypeError):
        return 0


# -- processes and signals -------------------------------------------------------------------------------------------

def session_pids(folder):
    return [int(pid) for path in folder.glob('pid.*') for pid in path.read_text().split()]


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_after_a_signal(small, tmp_path, how):
    """Launchers, their children, and those that ignore SIGTERM are gone when the command is."""
    for host in small.names:
        small.act(host, 'trap "" TERM; sleep 1000 & echo $$ $! >new.$1; mv new.$1 pid.$1; wait\n')
    process = subprocess.Popen([PEERLANE, 'fleet', 'check', *small.arguments, '--parallel', '4', '--save', tmp_path / 'saved'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    end = time.monotonic() + DEADLINE
    while len(session_pids(small.folder)) < 8:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(how)
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == -how and output == '' and 'interrupted after 0 of 6 hosts' in errors
    pids = session_pids(small.folder)
    assert len(pids) == 8
    wait_exited(pids)


def test_answers_before_an_interrupt_are_kept(small, tmp_path):
    """A new run is compared with what an interrupted one has saved; hosts that it did not wait for are named."""
    for host in small.names[3:]:
        small.act(host, 'echo $$ >new.$1; mv new.$1 pid.$1; exec sleep 1000\n')
    saved = tmp_path / 'saved'
    process = subprocess.Popen([PEERLANE, 'fleet', 'check', *small.arguments, '--timeout', '1000', '--save', saved, '-o', tmp_path / 'all'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    end = time.monotonic() + DEADLINE
    while len(session_pids(small.folder)) < 3 or not saved.exists() or len([*saved.glob('*.json')]) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGINT and output == '' and not (tmp_path / 'all').exists()
    assert 'interrupted after 3 of 6 hosts' in errors and f'peerlane fleet show {saved}\n' in errors
    assert '3 of 3 hosts answered' in run('fleet', 'show', saved).stdout
    for host in small.names[3:]:
        (small.folder / f'{host}.sh').unlink()
    run('fleet', 'check', *small.arguments, '--save', tmp_path / 'whole')
    done = json.loads(run('fleet', 'compare', saved, tmp_path / 'whole', '--json', expect=1).stdout)
    assert (done['changes'], done['added'], done['counts']['compared']) == ([], small.names[3:], 3)


def test_no_process_is_left_after_a_result(small):
    """Children that a launcher leaves in the background end with it."""
    for host in small.names:
        small.act(host, 'sleep 1000 & echo $! >pid.$1\n')
    assert fleet_json(small, expect=0)['counts']['ok'] == 6
    assert len(session_pids(small.folder)) == 6
    wait_exited(session_pids(small.folder))


def test_ignored_signals_do_not_interrupt(small):
    """Ctrl-C does not reach a job that a script started with &, which ignores SIGINT."""
    small.act(name(1), 'touch started; sleep 0.3\n')
    process = subprocess.Popen([PEERLANE, 'fleet', 'check', *small.arguments], stdout=subprocess.PIPE, text=True, env=environment(),
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    end = time.monotonic() + DEADLINE
    while not (small.folder / 'started').exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert '6 hosts are well' in process.communicate(timeout=DEADLINE)[0] and process.returncode == 0


@pytest.mark.parametrize('most', [14, 15, 16])
def test_few_descriptors(small, most):
    """Hosts wait for descriptors that others have, and the processes of launchers need no more than this one."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    done = subprocess.run([PEERLANE, 'fleet', 'check', *small.arguments], capture_output=True, text=True, preexec_fn=limit,
                          timeout=DEADLINE, env=environment())
    assert done.returncode == 0 and '6 hosts are well' in done.stdout, done


def test_progress_on_a_terminal(small):
    small.act(name(1), 'while [ ! -f go ]; do sleep 0.05; done\n').act(name(2), 'exit 1\n')
    main, terminal = pty.openpty()
    process = subprocess.Popen([PEERLANE, 'fleet', 'check', *small.arguments], stdout=subprocess.PIPE, stderr=terminal, env=environment())
    os.close(terminal)
    shown = b''
    while b'5/6 ended, 1 failed, 1 running (gpu001)' not in shown:
        assert select.select([main], [], [], DEADLINE)[0], shown
        shown += os.read(main, 65536)
    (small.folder / 'go').touch()
    shown += read_terminal(main)
    assert shown.endswith(b'\r\033[K')
    process.communicate(timeout=DEADLINE)
    assert told(run('fleet', 'check', *small.arguments, expect=3)) == ''


# -- saved runs ------------------------------------------------------------------------------------------------------

def test_saved_runs_are_shown(small, documents, tmp_path):
    small.answer(name(2), on_host(documents['old-firmware'], name(2), 2))
    run('fleet', 'check', *small.arguments, '--save', tmp_path / 'saved', expect=3)
    shown = json.loads(run('fleet', 'show', tmp_path / 'saved', '--json', '-o', tmp_path / 'all.json', expect=3).stdout)
    assert [*jsonschema.Draft202012Validator(SCHEMA).iter_errors(shown)] == []
    assert [(row['id'], row['folded']) for row in shown['rows']] == [('firmware', name(2))] and shown['command'] == 'check'
    assert json.loads((tmp_path / 'all.json').read_text())['rows'] == shown['rows']
    done = run('fleet', 'show', tmp_path / 'saved', '--ignore', 'firmware')
    assert done.stdout == '6 hosts are well and alike\n6 of 6 hosts answered\n'
    # A file of the run that became a pipe: nothing waits for its other end.
    (tmp_path / 'saved' / f'{name(1)}.json').unlink()
    os.mkfifo(tmp_path / 'saved' / f'{name(1)}.json')
    assert 'it is no regular file' in run('fleet', 'show', tmp_path / 'saved', expect=None).stdout
    assert 'RUN is missing' in run('fleet', 'show', expect=2).stderr
    assert 'there is a RUN already' in run('fleet', 'show', 'a', 'b', expect=2).stderr
    assert 'No such file' in run('fleet', 'show', tmp_path / 'none', expect=2).stderr


def test_many_hosts_fit_a_terminal(small, documents, tmp_path):
    """On a terminal hosts take several lines, so that the other columns keep their room; in a pipe they take one."""
    (tmp_path / 'run').mkdir()
    for number in range(1, 101):
        kind = 'old-firmware' if number < 40 and number % 2 else 'well'
        (tmp_path / f'run/{name(number)}.json').write_text(json.dumps(on_host(slim(documents[kind]), name(number), number)))
    odd = ','.join(f'{number:03d}' for number in range(1, 40, 2))
    line = run('fleet', 'show', tmp_path / 'run', expect=3).stdout.splitlines()[1]
    assert line.split()[:3] == [f'gpu[{odd}]', 'DIFFERS', 'firmware']
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 80, 0, 0))
    process = subprocess.Popen([PEERLANE, 'fleet', 'show', tmp_path / 'run'], stdout=terminal, env=environment())
    os.close(terminal)
    lines = read_terminal(main).decode().splitlines()
    assert process.wait(DEADLINE) == 3 and max(map(len, lines)) <= 80
    hosts = [line.split(' ')[0] for line in lines[1:-2]]
    assert ','.join(hosts) == f'gpu[{odd}]' and max(map(len, hosts)) < 32
    assert re.search(r'DIFFERS +firmware +mlx5_3: 28\.36\.1010, where 80 h', lines[1])


def test_documents_that_hosts_wrote_are_shown(tmp_path):
    """One job step on all hosts writes into a shared folder."""
    write_dump(server(), tmp_path / 'machine')
    (tmp_path / 'run').mkdir()
    for host in 'n1', 'n2':
        run('check', '--sysroot', tmp_path / 'machine', '--host', host, '--json', '-o', tmp_path / f'run/{host}.json')
    assert '2 hosts are well and alike\n' in run('fleet', 'show', tmp_path / 'run').stdout


# -- files -----------------------------------------------------------------------------------------------------------

def test_answers_are_saved_as_they_come(small, tmp_path):
    saved = tmp_path / 'saved'
    small.act(name(6), f'while [ ! -f {saved}/gpu005.json ]; do sleep 0.05; done\n').act(name(2), 'exit 1\n')
    fleet_json(small, '--save', saved, expect=3)
    assert sorted(path.name for path in saved.iterdir()) == [f'gpu00{number}.json' for number in (1, 3, 4, 5, 6)]
    done = run('fleet', 'check', *small.arguments, '--save', saved, expect=2)
    assert 'FLEET-SAVE-EXISTS' in done.stderr and done.stdout == ''


def test_files_that_cannot_be_written(small, tmp_path):
    assert 'No such file' in run('fleet', 'check', *small.arguments, '--output', tmp_path / 'no/file', expect=1).stderr
    assert 'No such file' in run('fleet', 'check', *small.arguments, '--save', tmp_path / 'no/folder', expect=2).stderr


def test_output_and_table(small, tmp_path):
    done = run('fleet', 'check', *small.arguments, '--output', tmp_path / 'all.json')
    shown = json.loads((tmp_path / 'all.json').read_text())
    assert '6 hosts are well' in done.stdout and shown['counts']['ok'] == 6 and shown['hosts'][5]['document']['host'] == 'gpu006'


def test_hostile_texts_are_printable(small, documents):
    shown = spoil(on_host(documents['well'], name(1), 1), 'port-gid', 'FAIL', 'red \x1b[31m\u009b and\nmore', 'x\x07')
    small.answer(name(1), shown).act(name(2), 'printf "a \\033[31m \\377\\n" >&2; exit 1\n')
    done = run('fleet', 'check', *small.arguments, expect=1)
    assert not re.search('[\x00-\x09\x0b-\x1f\x7f-\x9f]', done.stdout)
    fleet_json(small)


# -- topologies ------------------------------------------------------------------------------------------------------

def test_topologies_are_compared(tmp_path):
    fleet = Fleet(tmp_path / 'fleet')
    shown = {kind: topology(tmp_path / kind, change) for kind, change in
             [('well', lambda machine: machine)] + [(kind, DEFECTS[kind][0]) for kind in ('lost-gpu', 'half-width', 'wrong-mtu')]}
    for number, kind in enumerate(['well'] * 9 + ['lost-gpu', 'half-width', 'wrong-mtu']):
        fleet.answer(name(number), {**shown[kind], 'host': name(number)})
    done = fleet_json(fleet, command='topo', expect=3)
    rows = [(row['id'], row['folded'], [one['object'] for one in row['findings']]) for row in done['rows']]
    assert sorted(rows) == [('gpus', 'gpu009', [None, '0000:63:00.0']), ('link', 'gpu010', ['0000:34:00.0']), ('mtu', 'gpu011', ['eth6'])]
    assert fleet_json(fleet, '--ignore', 'gpus,link,mtu', command='topo', expect=0)['command'] == 'topo'
    lines = run('fleet', 'topo', *fleet.arguments, expect=3).stdout.split('\n\n')[1].splitlines()
    assert lines[0].split() == ['HOSTS', 'PLATFORM', 'GPUS', 'CARDS', 'PORTS', 'FIRMWARE', *(['MEMORY'] * ('MEMORY' in lines[0]))]
    assert [(line.split()[0], line.count('7 x NVIDIA'), line.count('8 x NVIDIA')) for line in lines[1:]] == \
        [('gpu[000-008,010-011]', 0, 1), ('gpu009', 1, 0)]
    # A document of another command is no topology.
    fleet.answer(name(0), {'format': 1, 'kind': 'check', 'version': '0.1.0', 'checks': []})
    assert fleet_json(fleet, command='topo')['hosts'][0]['outcome'] == 'no-document'


def test_a_host_with_a_lost_nvlink_differs(tmp_path):
    fleet = Fleet(tmp_path / 'fleet')
    for number in range(6):
        machine = server()
        for link in range(4):
            machine.fact(f'nvml.gpu.{gpu(0)}.nvlink.{link}', 'down' if number == 4 and not link else 'up 6 switch 0000:05:00.0')
        path = write_dump(machine, tmp_path / name(number))
        fleet.answer(name(number), {**json.loads(run('topo', '--numeric', '--json', '--sysroot', path).stdout), 'host': name(number)})
    done = fleet_json(fleet, command='topo', expect=3)
    assert [(row['id'], row['folded'], [one['object'] for one in row['findings']]) for row in done['rows']] == \
        [('gpu-links', name(4), [gpu(0)])]


def topology(path, change):
    return json.loads(run('topo', '--numeric', '--json', '--sysroot', write_dump(change(server()), path)).stdout)
