# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane serve --metrics`: the text, its counters, and the HTTP server."""
import contextlib
import json
import pathlib
import re
import socket
import threading
import time

import pytest
from cli_support import DEADLINE, GPU, content, make_key, run, serving, start, write
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def measured(*arguments, metrics='0', **options):
    """A server with metrics; `web` is the port."""
    with serving(*arguments, '--metrics', metrics, '--json', **options) as server:
        server.web = int(json.loads(server.first)['metrics'].rsplit(':', 1)[1])
        yield server


def connect(server):
    return socket.create_connection(('127.0.0.1', server.web), timeout=DEADLINE)


def receive(connection):
    """Returns all bytes until the server closes the connection."""
    data = b''
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    return data


def ask(server, request):
    """Returns status, headers and body of the answer."""
    with connect(server) as connection:
        connection.sendall(request)
        head, _, body = receive(connection).partition(b'\r\n\r\n')
    status, *headers = head.decode().split('\r\n')
    assert status.startswith('HTTP/1.1 '), status
    return int(status.split()[1]), dict(header.split(': ', 1) for header in headers), body.decode()


def get(server, target='/metrics', method='GET'):
    return ask(server, f'{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n'.encode())


def samples(server):
    """Parses the metrics as Prometheus does, and checks the rules of `promtool check metrics`."""
    status, headers, text = get(server)
    assert status == 200 and headers['Content-Type'] == 'text/plain; version=0.0.4; charset=utf-8' and text.endswith('\n')
    found = {}
    for family in text_string_to_metric_families(text):
        counter = family.type == 'counter'
        assert family.documentation.endswith('.') and family.type in ('counter', 'gauge', 'histogram'), family
        for sample in family.samples:
            assert re.fullmatch('(peerlane|process)_[a-z_]+', sample.name) and sample.timestamp is None
            assert sample.name.endswith('_total') == counter, sample
            assert bool(re.search('_(bucket|sum|count)$', sample.name)) == (family.type == 'histogram'), sample
            key = sample.name.removeprefix('peerlane_'), *sample.labels.values()
            assert key not in found, key
            found[key] = sample.value
    names = {re.sub('_(bucket|sum|count)$', '', key[0]) if 'seconds' in key[0] else key[0] for key in found}
    assert text.count('# HELP ') == text.count('# TYPE ') == len(names | {'operation_seconds'})
    return found


def wait_samples(server, key, value):
    end = time.monotonic() + DEADLINE
    while (found := samples(server)).get(key) != value:
        assert time.monotonic() < end, (key, value, found.get(key))
        time.sleep(0.01)
    return found


def grown(before, after):
    """Samples that are not what they were, without those of the library."""
    return {key: value - before.get(key, 0) for key, value in after.items()
            if value != before.get(key, 0) and not re.match('operation|regions', key[0])}


@pytest.fixture
def tree(tmp_path):
    write(tmp_path / 'pub/model', content(3_000_001))
    (tmp_path / 'inbox').mkdir()
    return tmp_path


def test_counters_are_those_of_transfers(tree):
    with measured(tree / 'pub', '--upload', tree / 'inbox', '--memory', 'frames=1M', '--clients', '9', '--allow-delete') as server:
        first = samples(server)
        assert abs(first['process_start_time_seconds',] - time.time()) < DEADLINE
        assert first['build_info', run('--version').stdout.split()[1]] == 1
        assert (first['published_names', 'file'], first['published_names', 'memory']) == (1, 1)
        assert (first['published_bytes',], first['clients_limit',]) == (3_000_001 + (1 << 20), 9)
        assert first['uploads',] == 0, 'a block of memory is no upload'
        assert not any(value for key, value in first.items() if key[0].endswith('_total'))
        names = {key[0] for key in first}
        manual, page = ((ROOT / path).read_text() for path in ['man/peerlane-serve.1.scd', 'docs/metrics.md'])
        assert [name for name in names if re.search(rf'\b{name}\b', manual) is None] == []
        assert [name for name in names if re.search(rf'`(peerlane_)?{name}`', page) is None] == []
        assert set(re.findall(r'\bpeerlane_(\w+)', page)) - names == {'operation_seconds'}, 'of operations, which are none yet'

        run('get', server.address, 'model', '--fabric', 'tcp', '-o', tree / 'copy')
        second = wait_samples(server, ('clients', 'tcp'), 0)
        changes = grown(first, second)
        assert {changes.pop(key) for key in list(changes) if key[0] == 'requests_total' and key[-1] == 'ok'} >= {1}
        assert changes == {('connections_total', 'tcp'): 1, ('opened_names_total', 'tcp'): 1,
                           ('opened_bytes_total', 'tcp'): 3_000_001, ('read_bytes_total', 'tcp'): 3_000_001,
                           ('routed_bytes_total', 'tcp', 'read', 'direct'): 3_000_001}

        write(tree / 'new', content(2_000_003))
        run('put', server.address, tree / 'new', '--fabric', 'tcp')
        third = wait_samples(server, ('clients', 'tcp'), 0)
        changes = grown(second, third)
        assert (changes['requests_total', 'create', 'ok'], changes['requests_total', 'commit', 'ok']) == (1, 1)
        assert changes['stored_bytes_total', 'tcp'] == 2_000_003 and changes['stored_names_total', 'tcp'] == 1
        assert changes['written_bytes_total', 'tcp'] == 2_000_003
        assert {key[1:]: value for key, value in changes.items() if key[0] == 'routed_bytes_total'} == {
            ('tcp', 'write', 'direct'): 2_000_003}
        assert ('opened_bytes_total', 'tcp') not in changes and ('read_bytes_total', 'tcp') not in changes

        run('get', server.address, 'none', '--fabric', 'local', '-o', tree / 'copy', expect=1)
        changes = grown(third, wait_samples(server, ('clients', 'local'), 0))
        assert changes['connections_total', 'local'] >= 1
        refused = {key[1]: value for key, value in changes.items() if key[0] == 'refused_requests_total'}
        assert sum(refused.values()) == sum(value for key, value in changes.items() if key[-1] == 'error') == 1
        assert refused == {'NOT-PUBLISHED': 1}

        run('delete', server.address, 'new')
        assert wait_samples(server, ('clients', 'local'), 0)['deleted_names_total',] == 1


def test_staged_bytes_of_clients(tree):
    """The GPU of the stand-in driver cannot reach the mapping of a file."""
    source = write(tree / 'frames', content(70_001))
    with measured('--memory=frames=70001@cuda:1', '--writable', **GPU) as server:
        for fabric in ('tcp', 'local'):
            run('put', server.address, source, '--fabric', fabric, expect=3, **GPU)
            run('get', server.address, 'frames', '-o', tree / 'copy', '--fabric', fabric, expect=3, **GPU)
        after = wait_samples(server, ('clients', 'local'), 0)
    routed = {key[1:]: value for key, value in after.items() if key[0] == 'routed_bytes_total'}
    assert 0 < after['staging_locked_bytes',] <= after['staging_limit_bytes',] and after['staging_used_bytes',] == 0
    assert len(routed) == 12 and {key[2] for key in routed} == {'direct', 'staged'}
    assert {key: value for key, value in routed.items() if value} == {
        (fabric, direction, 'staged'): 70_001 for fabric in ('tcp', 'local') for direction in ('read', 'write')}


def test_operations_of_the_library(tree):
    write(tree / 'many' / 'one', content(100))
    write(tree / 'many' / 'two', content(200))
    with measured(tree / 'pub', '--upload', tree / 'inbox') as server:
        before = samples(server)
        assert {key[0] for key in before if key[0].startswith('operation_seconds')} == set()
        assert before['operation_errors_total', 'other'] == 0
        run('get', server.address, 'model', '--fabric', 'tcp', '-o', tree / 'copy')
        run('put', server.address, tree / 'many', '-r', '--fabric', 'local')
        after = wait_samples(server, ('clients', 'local'), 0)
    # The client reads the file; the server only receives requests and sends answers.
    for fabric in ('tcp', 'local'):
        received, sent = (after['operations_total', kind, fabric, 'ok'] for kind in ('receive', 'send'))
        assert received >= 2 and sent >= 2 and after['operations_total', 'read', 'tcp', 'ok'] == 0
        assert after['operation_bytes_total', 'receive', fabric, 'direct'] > 0
        assert after['operation_bytes_total', 'receive', fabric, 'staged'] == 0
        bounds = [(float(key[-1]), value) for key, value in after.items()
                  if key[:3] == ('operation_seconds_bucket', 'send', fabric)]
        assert len(bounds) == 15 and bounds == sorted(bounds), 'bounds and their counts grow'
        assert bounds[-1] == (float('inf'), sent) == (float('inf'), after['operation_seconds_count', 'send', fabric])
        assert 0 < after['operation_seconds_sum', 'send', fabric] < 2 * DEADLINE
    assert after['operations_total', 'send', 'verbs', 'ok'] == 0
    assert after['operation_errors_total', 'other'] == 0
    # A receive waits for the next request of each client, until the client leaves.
    failed = sum(value for key, value in after.items() if key[0] == 'operations_total' and key[-1] == 'error')
    assert failed == sum(value for key, value in after.items() if key[0] == 'operation_errors_total')


def test_clients_and_uploads_of_now(tree):
    with measured('--upload', tree / 'inbox', '--rate', '1M') as server:
        write(tree / 'big', content(8 << 20))
        put = start('put', server.address, tree / 'big')
        found = wait_samples(server, ('uploads',), 1)
        assert found['clients', 'tcp'] == 1 and found['stored_bytes_total', 'tcp'] == 0
        put.kill()
        put.communicate()
        assert wait_samples(server, ('clients', 'tcp'), 0)['uploads',] == 0


def test_refused_connections(tree):
    key, other = make_key(tree), make_key(tree, 'other', b'fedcba98765432100123456789abcdef\n')
    with measured(tree / 'pub', '--key', key) as server:
        for _ in range(2):
            run('list', server.address, '--key', other, expect=1)
        found = wait_samples(server, ('refused_connections_total', 'AUTH-KEY-MISMATCH'), 2)
        refused = {key[1]: value for key, value in found.items() if key[0] == 'refused_connections_total' and value}
        assert refused == {'AUTH-KEY-MISMATCH': 2} and found['connections_total', 'tcp'] == 0


def test_answers(tree):
    with measured(tree / 'pub') as server:
        status, headers, body = get(server, method='HEAD')
        assert (status, body) == (200, '') and int(headers['Content-Length']) > 1000
        assert get(server, '/metrics?name[]=up')[0] == 200
        assert ask(server, b'GET /metrics HTTP/1.0\n\n')[0] == 200
        for target in ['/', '/metrics/', '/metricsx', '/../metrics', '*']:
            assert get(server, target)[0] == 404, target
        status, headers, _ = get(server, method='POST')
        assert (status, headers['Allow']) == (405, 'GET, HEAD')
        for request in [b'\n\n', b'GET\r\n\r\n', b'GET /metrics\r\n\r\n', b'GET /metrics HTTP/2.0\r\n\r\n',
                        b'GET /metrics HTTP/1.\r\n\r\n', b'GET /metrics HTTP/1.11\r\n\r\n',
                        b' /metrics HTTP/1.1\r\n\r\n', b'\x16\x03\x01\0\xff\r\n\r\n', b'GET  /metrics HTTP/1.1\r\n\r\n']:
            assert ask(server, request)[0] == 400, request
        # The longest request, and one byte more.
        start_line = b'GET /metrics HTTP/1.1\r\nX: '
        assert ask(server, start_line + b'x' * (4095 - 4 - len(start_line)) + b'\r\n\r\n')[0] == 200
        assert ask(server, start_line + b'x' * (4095 - len(start_line)))[0] == 431


@contextlib.contextmanager
def crowded(server, requests):
    """Clients that connect again as soon as the server closes them; yields a semaphore of closed connections."""
    def disturb(request):
        while not over.is_set():
            with contextlib.suppress(OSError), connect(server) as connection:
                connections.append(connection)
                connection.sendall(request)
                receive(connection)
                closed.release()
            time.sleep(0.01)

    connections, over, closed = [], threading.Event(), threading.Semaphore(0)
    threads = [threading.Thread(target=disturb, args=[request]) for request in requests]
    for thread in threads:
        thread.start()
    try:
        yield closed
    finally:
        over.set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def test_hostile_clients_do_not_disturb(tree):
    """A client gets a file while slow, silent, many, huge and binary requests hold all places of the HTTP server."""
    refused = [b'GET /' + b'a' * (1 << 20), b'\0\xff' * 5000, b'\r' * 4000]
    silent = [b'GET /met'] + [b''] * 16
    with measured(tree / 'pub') as server:
        began = time.monotonic()
        with crowded(server, refused), crowded(server, silent) as closed:
            run('get', server.address, 'model', '-o', tree / 'copy')
            assert (tree / 'copy').read_bytes() == (tree / 'pub/model').read_bytes()
            assert closed.acquire(timeout=DEADLINE)
            assert time.monotonic() - began > 1.5
        assert samples(server)['opened_names_total', 'local'] + samples(server)['opened_names_total', 'tcp'] == 1


def test_addresses(tree):
    with socket.create_server(('127.0.0.1', 0)) as busy:
        taken = busy.getsockname()[1]
        for address in [f'{taken}', f':{taken}', f'127.0.0.1:{taken}']:
            assert 'LISTEN-IN-USE' in run('serve', '127.0.0.1:0', tree / 'pub', '--metrics', address, expect=1).stderr
    for address in ['', 'x', '65536', '1.2.3.4', '127.0.0.1:', ':x', '::1:80', '[::1:80', '127.0.0.1:-1', '[]']:
        done = run('serve', '127.0.0.1:0', tree / 'pub', '--metrics', address, '--for', '1', expect=1)
        assert 'ADDRESS-SYNTAX' in done.stderr, (address, done.stderr)
    key = make_key(tree)
    for address in ['0.0.0.0:0', '192.0.2.1:0', '[::]:0', '[2001:db8::1]:0']:
        # --insecure is about clients.
        refused = run('serve', '127.0.0.1:0', tree / 'pub', '--insecure', '--metrics', address, expect=1)
        assert 'INSECURE-ADDRESS' in refused.stderr, address
    with measured(tree / 'pub', '--key', key, '--metrics-open', metrics='0.0.0.0:0') as server:
        assert get(server)[0] == 200
    with measured(tree / 'pub', metrics='localhost:0') as server:
        assert json.loads(server.first)['metrics'].startswith(('127.0.0.1:', '[::1]:'))
    with serving(tree / 'pub', '--metrics', ':0') as server:
        assert server.line().startswith('serving ')
        assert re.fullmatch(r'metrics at http://127\.0\.0\.1:\d+/metrics', server.line())
