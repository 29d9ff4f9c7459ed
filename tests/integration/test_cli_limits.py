# SPDX-License-Identifier: BSD-2-Clause
"""Budgets of clients: rates, imports and requests, by options and by the file of --authorized."""
import contextlib
import json
import os
import time

from cli_support import DEADLINE, content, make_key, run, run_json, serving, start, wait_until, write
from test_cli_identity import reload, world  # noqa: F401 (fixture)

MIB = 1 << 20


@contextlib.contextmanager
def takes(least):
    """Checks that a block takes this time in seconds, or up to ten times as long and a minute, as the machine may be busy."""
    begin = time.monotonic()
    yield
    took = time.monotonic() - begin
    assert least <= took < 10 * least + 60, f'{took:.2f} s, not {least}'


def options(world, person):
    return ['--peer', world.server_print, '--identity', getattr(world, person)]


def audit_lines(world, event):
    return [line for line in map(json.loads, (world.path / 'audit').read_text().splitlines()) if line['event'] == event]


def test_a_rate_limits_its_identity_alone(world):
    """The least rate, at which the file takes 192 s, holds up no other client.  Then a higher one ends the transfer."""
    big = write(world.path / 'big', content(12 * MIB))
    authorized = world.authorize(f'{world.alice_print} read rate=64K', f'{world.bob_print} read')
    with serving(big, '--identity', world.server, '--authorized', authorized, '--audit', world.path / 'audit',
                 '--json') as server:
        with takes(0.8 * 2):
            limited = start('get', server.address, 'big', '-o', world.path / 'slow', '--json', *options(world, 'alice'))
            for i in range(3):
                other = run_json('get', server.address, 'big', '-o', world.path / f'fast{i}', *options(world, 'bob'))
                assert other['files'][0]['fabric'] == 'local'
            assert limited.poll() is None, 'the other client was not faster'
            world.authorize(f'{world.alice_print} read rate=6M', f'{world.bob_print} read')
            reload(server)
            output = json.loads(limited.communicate(timeout=DEADLINE)[0])
        assert output['files'][0]['fabric'] == 'tcp' and 'limits the rate' in output['files'][0]['reason']
        assert (world.path / 'slow').read_bytes() == big.read_bytes() == (world.path / 'fast2').read_bytes()
        wait_until(lambda: len(audit_lines(world, 'disconnect')) == 4)
    lines = audit_lines(world, 'limit')
    assert [(line['limit'], line['identity']) for line in lines] == [('rate', world.alice_print)]


def test_a_rate_for_all_clients(world):
    """Uploads and downloads, of clients without a line, and of one whose line has another rate."""
    big = write(world.path / 'pub/big', content(4 * MIB))
    write(world.path / 'pub/small', content(MIB // 2))
    upload = world.path / 'upload'
    upload.mkdir()
    for more in [['--key', make_key(world.path)], ['--key', make_key(world.path), '--encrypt']]:
        with serving(big, '--upload', upload, '--rate', '4M', *more) as server:
            with takes(0.8 * 1):
                run('put', server.address, big, *more)
            with takes(0.8 * 1):
                run('get', server.address, 'big', '-o', world.path / 'out', *more)
        assert (upload / 'big').read_bytes() == (world.path / 'out').read_bytes() == big.read_bytes()
        (upload / 'big').unlink()
        (world.path / 'out').unlink()
    authorized = world.authorize(f'{world.alice_print} all rate=1G', '* all')
    write(big, content(64 * MIB))
    with serving(world.path / 'pub', '--identity', world.server, '--authorized', authorized, '--rate', '256K') as server:
        slow = start('get', server.address, 'big', '-o', world.path / 'slow', *options(world, 'bob'))  # 256 s
        run('get', server.address, 'big', '-o', world.path / 'fast', *options(world, 'alice'))
        assert slow.poll() is None, slow.communicate()
        slow.kill()
        slow.communicate()
        with takes(0.8 * 2):
            run('get', server.address, 'small', '-o', world.path / 'slow', *options(world, 'bob'))


def test_many_small_files_within_a_rate(world):
    for i in range(150):
        write(world.path / f'many/{i}', content(20000, i))
    upload = world.path / 'upload'
    upload.mkdir()
    (world.path / 'out').mkdir()
    with serving(world.path / 'many', '--upload', upload, '--rate', '2M') as server:
        with takes(0.8 * 3e6 / (2 * MIB)):
            run('put', server.address, '-r', world.path / 'many')
        with takes(0.8 * 3e6 / (2 * MIB)):
            run('get', server.address, '-r', '-o', world.path / 'out')
    for i in range(150):
        assert (upload / f'many/{i}').read_bytes() == (world.path / f'out/{i}').read_bytes() == content(20000, i)


def test_the_least_rate_ends_no_transfer(world):
    """Operations of get and put stay below their time limit, as both adapt the size of pieces."""
    big = write(world.path / 'big', content(MIB))
    upload = world.path / 'upload'
    upload.mkdir()
    with serving(big, '--upload', upload, '--rate', '64K') as server:
        processes = [start('get', server.address, 'big', '-o', world.path / 'out'), start('put', server.address, big)]
        with takes(0.8 * 16):
            for process in processes:
                assert process.communicate(timeout=DEADLINE)[1] == b''
    assert (upload / 'big').read_bytes() == (world.path / 'out').read_bytes() == big.read_bytes()


def test_a_reload_changes_the_rate_of_connected_clients(world):
    big = write(world.path / 'big', content(64 * MIB))
    lines = [f'{world.alice_print} read rate=128K', f'{world.bob_print} read']
    authorized = world.authorize(*lines)
    with serving(big, '--identity', world.server, '--authorized', authorized) as server:
        with takes(1):  # without the reload: 512 s
            slow = start('get', server.address, 'big', '-o', world.path / 'out', *options(world, 'alice'))
            wait_until(lambda: 'reads big' in server.line())
            time.sleep(1)
            assert slow.poll() is None
            world.authorize(f'{world.alice_print} read rate=1G', lines[1])
            reload(server)
            assert slow.communicate(timeout=DEADLINE)[1] == b'' and slow.returncode == 0
    assert (world.path / 'out').read_bytes() == big.read_bytes()


def test_requests_wait(world):
    folder = world.path / 'many'
    folder.mkdir()
    for i in range(3000):
        (folder / f'{i:05d}-{"n" * 150}').touch()
    authorized = world.authorize(f'{world.alice_print} read requests=1', f'{world.bob_print} read')
    with serving(folder, '--identity', world.server, '--authorized', authorized, '--audit', world.path / 'audit',
                 '--json') as server:
        # About 66 requests, which take 65 s.
        slow = start('list', server.address, '--json', *options(world, 'alice'))
        assert len(run_json('list', server.address, *options(world, 'bob'))['entries']) == 3000
        assert slow.poll() is None, 'the other client was not faster'
        # A client that leaves while its request waits is forgotten.
        wait_until(lambda: audit_lines(world, 'limit'))
        slow.kill()
        slow.communicate()
        wait_until(lambda: len(audit_lines(world, 'disconnect')) == 2)
        # 20 of the requests need not wait.
        world.authorize(f'{world.alice_print} read requests=20', f'{world.bob_print} read')
        reload(server)
        wait_until(lambda: audit_lines(world, 'reload'))
        with takes(1.8):
            assert len(run_json('list', server.address, *options(world, 'alice'))['entries']) == 3000
        run('list', server.address, *options(world, 'bob'))
    lines = audit_lines(world, 'limit')
    assert all(line['limit'] == 'requests' and line['identity'] == world.alice_print for line in lines)
    assert 1 <= len(lines) <= 2, 'more than one line for a client'


def test_reports_of_many_files_do_not_wait(world):
    """A client reports twice for each file that it gets. Only an identity with `requests` has a limit of reports."""
    folder = world.path / 'many'
    for i in range(250):
        write(folder / f'{i}', content(256 * 1024 + 1, i))
    (world.path / 'out').mkdir()
    authorized = world.authorize(f'{world.alice_print} read', f'{world.bob_print} read requests=100000')
    with serving(folder, '--identity', world.server, '--authorized', authorized, '--audit', world.path / 'audit', '--json') as server:
        for name in ['alice', 'bob']:
            run('get', server.address, '-r', '-o', world.path / 'out', *options(world, name))
        wait_until(lambda: len(audit_lines(world, 'disconnect')) == 2)
    assert not audit_lines(world, 'limit')


def test_a_reload_changes_requests_and_names(world):
    """Rights that the server enforces count at once for connected clients."""
    authorized = world.authorize(f'{world.alice_print} read requests=1')
    folder = world.path / 'many'
    folder.mkdir()
    for i in range(20000):
        (folder / f'{i:05d}-{"n" * 150}').touch()
    with serving(folder, '--identity', world.server, '--authorized', authorized, '--json') as server:
        with takes(1):  # without the reload: more than 400 s
            slow = start('list', server.address, '--json', *options(world, 'alice'))
            wait_until(lambda: 'connected' in server.line())
            time.sleep(1)
            assert slow.poll() is None
            world.authorize(f'{world.alice_print} read requests=1000000')
            reload(server)
            assert len(json.loads(slow.communicate(timeout=DEADLINE)[0])['entries']) == 20000


def test_imports_of_an_identity(world):
    """A client needs two imports: a file, and the memory for small files."""
    for i in range(3):
        write(world.path / f'files/{i}', content(3 * MIB, i))
    (world.path / 'out').mkdir()
    authorized = world.authorize(f'{world.alice_print} read imports=2', f'{world.bob_print} read imports=1')
    with serving(world.path / 'files', '--identity', world.server, '--authorized', authorized) as server:
        get = ['get', server.address, '-r', '-o', world.path / 'out']
        assert 'IDENTITY-IMPORTS' in run(*get, *options(world, 'bob'), expect=1).stderr
        run(*get, *options(world, 'alice'))
    for i in range(3):
        assert (world.path / f'out/{i}').read_bytes() == content(3 * MIB, i)


def test_wrong_values(world):
    for value in ['', '0', '65535', '63K', '-1', 'fast', '1G1']:
        assert '--rate takes' in run('serve', world.data, '--rate', value, expect=2).stderr
    for field in ['rate=1K', 'imports=0', 'imports=65537', 'requests=0', 'requests=x']:
        error = run('serve', world.data, '--authorized', world.authorize(f'* read {field}'), expect=1).stderr
        assert 'AUTHORIZED-SYNTAX' in error and 'authorized:1' in error


def test_a_rate_needs_tcp(world):
    """A fabric that cannot limit the rate is refused by name."""
    with serving(world.data, '--rate', '1M', '--fabric', 'local') as server:
        error = run('get', server.address, 'data', '-o', world.path / 'out', expect=1).stderr
        assert 'FABRIC-NONE' in error and 'rate' in error
    assert not os.path.exists(world.path / 'out')
