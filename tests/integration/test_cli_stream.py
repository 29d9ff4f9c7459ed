# SPDX-License-Identifier: BSD-2-Clause
"""publish, streams and subscribe: frames, their first one, losses, ends, and wrong usage."""
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time

import pytest
from cli_support import (DEADLINE, PEERLANE, environment, free_port, make_key, read_terminal, run, run_json, serving, shown_in,
                         start, wait_until, write)
from stream_support import Proxy, pattern, publishing

FRAME = 1000


def frame(i):
    return bytes([i % 256]) * FRAME


def fed(*arguments, **options):
    """A publisher of frames of FRAME bytes that the test writes into its standard input."""
    return publishing('--from', '-', '--frame-bytes', FRAME, *arguments, **options)


def ended(process, expect=0):
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == expect, (process.returncode, output, errors)
    return output, errors.decode()


# -- frames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('push', [[], ['--push']], ids=['pull', 'push'])
def test_test_source_is_verified_without_losses(tmp_path, push):
    key = make_key(tmp_path)
    # The length of a frame is no multiple of the pattern's words.
    with publishing('--key', key, '--count', '40', '--rate', '0', '--dtype', 'u8', '--shape', '3x1001', '--subscribers', '1',
                    '--allow-block', '--patience', 'never', '--json') as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--key', key, '--verify', '--lossless', '--overflow', 'block',
                       '--to', tmp_path / 'frames', *push)
        totals = publisher.finish_json()
    assert (got['frames'], got['lost'], got['end'], got['verified'], got['error']) == (40, 0, 'ended', True, None)
    assert got['bytes'] == totals['bytes'] == 40 * 3003 and totals['frames'] == 40
    assert got['stream']['shape'] == [3, 1001] and got['stream']['dtype'] == 'u8'
    assert got['latency_ns']['same_host'] and 0 < got['latency_ns']['p50'] <= got['latency_ns']['p99']
    accounts, = [subscriber['accounts'] for subscriber in totals['subscribers']]
    assert accounts == got['accounts'] and accounts['delivered'] == 40
    assert (tmp_path / 'frames').read_bytes() == b''.join(pattern(i, 3003) for i in range(40))


def test_frames_in_place(tmp_path):
    # The publisher outlives the subscriber: a frame still in use when a publisher closes is copied, and so not in place.
    with publishing('--rate', '0', '--dtype', 'u8', '--shape', '3x1001', '--subscribers', '1', '--allow-block', '--patience',
                    'never') as publisher:
        got = run_json('subscribe', publisher.address, 'cam0', '--verify', '--lossless', '--in-place', '--count', '40', '--to',
                       tmp_path / 'frames')
    assert (got['frames'], got['in_place'], got['lost'], got['verified'], got['error']) == (40, 40, 0, True, None)
    assert (tmp_path / 'frames').read_bytes() == b''.join(pattern(i, 3003) for i in range(40))


def test_frames_that_cannot_be_used_in_place():
    with fed('--allow-block') as publisher:
        done = run('subscribe', publisher.address, 'cam0', '--in-place', '--fabric', 'tcp', expect=1)
        assert '[STREAM-PLACE]' in done.stderr and 'hint: leave --in-place out' in done.stderr
    with fed() as publisher:
        done = run('subscribe', publisher.address, 'cam0', '--in-place', expect=1)
        assert '[STREAM-NO-BLOCK]' in done.stderr and '--allow-block' in done.stderr


def test_input_that_is_no_test_pattern_is_not_verified():
    with fed() as publisher:
        done = run('subscribe', publisher.address, 'cam0', '--verify', expect=1)
    assert '[NO-TEST-PATTERN]' in done.stderr and 'hint: leave --verify out' in done.stderr


def test_pipe_in_pieces_and_to_standard_output():
    with fed('--slots', '64', '--subscribers', '1') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--to', '-', '--queue', '64')
        data = b''.join(map(frame, range(10)))
        for at in range(0, len(data), 700):
            publisher.feed(data[at:at + 700])
        publisher.process.stdin.close()
        publisher.process.stdin = None
        output, errors = ended(process)
        publisher.finish()
    assert output == data
    assert errors.startswith('10 of 10 frames, 10.0 kB, ') and 'captured to taken: p50 ' in errors


def test_input_that_ends_within_a_frame(tmp_path):
    with fed('--slots', '8', '--json') as publisher:
        publisher.feed(frame(0) + frame(1) + b'rest')
        totals = publisher.finish_json(expect=1)
    assert totals['frames'] == 2 and totals['error']['id'] == 'FRAME-PARTIAL'
    path = write(tmp_path / 'raw', frame(0) + b'rest')
    done = run('publish', '--name', 'x', '--listen', '127.0.0.1:0', '--from', path, '--frame-bytes', FRAME, expect=1)
    assert 'after 4 of 1000 bytes [FRAME-PARTIAL]' in done.stderr and not done.stdout


def test_source_that_fails_does_not_end_the_stream():
    with fed('--subscribers', '1') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--to', '-')
        publisher.feed(frame(0))
        assert process.stdout.read(FRAME) == frame(0)
        publisher.feed(b'rest')
        began = time.monotonic()
        assert '[FRAME-PARTIAL]' in publisher.finish(expect=1)[1]
        waited = time.monotonic() - began
        output, errors = ended(process, expect=1)
    # Subscribers have this time to take the last frames.
    assert waited >= 0.99
    assert output == b'' and 'the publisher was closed before the stream ended' in errors
    # A read there fails.
    with publishing('--from', '/proc/self/mem', '--frame-bytes', FRAME, '--subscribers', '1') as publisher:
        process = start('subscribe', publisher.address, 'cam0')
        assert '/proc/self/mem: read: ' in publisher.finish(expect=1)[1]
        ended(process, expect=1)


def test_standard_input_at_an_offset_of_a_file(tmp_path):
    path = tmp_path / 'frames'
    path.write_bytes(bytes(512) + b'x' * 4096)
    publish = ['publish', '--name', 'cam0', '--listen', '127.0.0.1:0', '--from', '-', '--frame-bytes', '1K', '--json']
    for offset, frames, status in ((512, 4, 0), (0, 0, 1), (512 + 1024, 3, 0), (5000, 0, 0)):
        with path.open('rb') as file:
            file.seek(offset)
            done = subprocess.run([PEERLANE, *publish], stdin=file, capture_output=True, env=environment(), timeout=DEADLINE)
        assert done.returncode == status, (offset, done)
        # A part of a frame is found before the stream begins.
        if status:
            assert b'[FRAME-PARTIAL]' in done.stderr and b'"address"' not in done.stdout
        else:
            assert json.loads(done.stdout.splitlines()[-1])['frames'] == frames


def test_named_pipe_waits_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    with publishing('--from', tmp_path / 'pipe', '--frame-bytes', FRAME, '--json') as publisher:
        assert publisher.look()['published'] == 0
        (tmp_path / 'pipe').write_bytes(frame(0) * 3)
        assert publisher.finish_json()['frames'] == 3
    with publishing('--from', tmp_path / 'pipe', '--frame-bytes', FRAME) as publisher:
        publisher.stop(signal.SIGINT)


def test_a_wait_for_a_later_frame_is_told(tmp_path):
    warning = b'peerlane: warning: cam0: the next frame has sequence 2; waiting for sequence 4\n'
    with fed('--slots', '8') as publisher:
        publisher.feed(frame(0) + frame(1))
        publisher.wait_for('published', 2)
        arguments = [publisher.address, 'cam0', '--count', '1', '--start']
        quiet = [start('subscribe', *arguments, 'sequence:4', '--quiet'), start('subscribe', *arguments, 'sequence:2')]
        waiting = [start('subscribe', *arguments, 'sequence:4'), start('record', *arguments, 'sequence:4', '--to', tmp_path / 'new')]
        for process in waiting:
            assert process.stderr.readline() == warning
        publisher.wait_for('subscribers', 4)
        publisher.feed(b''.join(map(frame, range(2, 5))))
        assert all('waiting' not in ended(process)[1] for process in quiet + waiting)


def test_first_frames():
    with fed('--slots', '4') as publisher:
        publisher.feed(b''.join(map(frame, range(10))))
        publisher.wait_for('published', 10)

        def take(*arguments, expect=0):
            got = run_json('subscribe', publisher.address, 'cam0', '--queue', '8', *arguments, expect=expect)
            return got['frames'], got['accounts']['first'], got['lost']
        assert take('--start', 'latest', '--count', '1') == (1, 9, 0)
        assert take('--start', 'history:3', '--count', '3') == (3, 7, 0)
        assert take('--start', 'history:100', '--count', '4') == (4, 6, 0)
        # Frames 0 to 5 are gone.
        assert take('--start', 'sequence:0', '--count', '2', expect=3) == (2, 0, 6)
        assert take('--start', 'sequence:8', '--count', '1') == (1, 8, 0)
        done = run('subscribe', publisher.address, 'cam0', '--start', 'sequence:0', '--count', '2', expect=3)
        assert done.stdout.startswith('2 of 8 frames, 2.00 kB, ') and '; lost 6: dropped 0, ' in done.stdout
        assert done.stdout.splitlines()[0].endswith('missed 6')
        done = run('subscribe', publisher.address, 'cam0', '--start', 'sequence:0', '--lossless', '--json', expect=1)
        assert json.loads(done.stdout)['error']['id'] == 'FRAMES-LOST' and '--overflow block' in done.stderr
        # Without a frame, nothing is known to be lost.
        process = start('subscribe', publisher.address, 'cam0')
        publisher.wait_for('subscribers', 1)
        process.send_signal(signal.SIGINT)
        assert ended(process)[0].startswith(b'0 of 0 frames')


def test_every_third_frame():
    with fed('--slots', '64', '--subscribers', '1') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--every', '3', '--to', '-', '--queue', '64')
        publisher.feed(b''.join(map(frame, range(10))))
        publisher.finish()
        output, errors = ended(process)
    assert output == b''.join(map(frame, (0, 3, 6, 9))) and errors.startswith('4 of 4 frames')


# -- list of streams ----------------------------------------------------------------------------------------------


def test_table_of_streams():
    with publishing('--rate', '100', '--dtype', 'f32', '--shape', '4x5', '--slots', '9', '--allow-block',
                    '--patience', 'never') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--overflow', 'block')
        publisher.wait_for('subscribers', 1)
        shown = run('streams', publisher.address, '--interval', '0.3').stdout.splitlines()
        assert shown[0].split() == ['NAME', 'INSTANCE', 'DTYPE', 'SHAPE', 'SLOTS', 'MEMORY', 'RATE', 'PUBLISHED',
                                    'SUBSCRIBERS', 'BLOCK']
        name, instance, dtype, shape, slots, memory, rate, published, subscribers, block = shown[1].split()
        stream = publisher.look()
        assert (name, dtype, shape, slots, memory, subscribers, block) == ('cam0', 'f32', '4x5', '9', 'host', '1', '1')
        assert re.fullmatch(r'[0-9a-f]{8}', instance) and stream['instance'].startswith(instance)
        assert re.fullmatch(r'\d+\.\d/s', rate) and int(published) <= stream['published']
        assert stream['frames_per_second'] is None and stream['memory'] == 'host' and stream['content_type'] == 'application/x-peerlane-test'
        publisher.stop(signal.SIGINT)
        assert ended(process)[0].splitlines()[0].endswith(b'missed 0')
    run('streams', f'127.0.0.1:{free_port()}', expect=1)


# -- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_stream_at_both_ends(how):
    with fed() as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--json')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0) + b'half of a frame')
        publisher.wait_for('published', 1)
        output, _ = publisher.stop(how)
        assert output.splitlines()[-1].startswith('1 frame, 1.00 kB in ')
        got = json.loads(ended(process)[0])
    assert (got['end'], got['frames'], got['lost']) == ('ended', 1, 0)


def subscribed(publisher, path):
    """`peerlane subscribe --json` that has taken frame 0, so that its subscription has begun at both ends."""
    process = start('subscribe', publisher.address, 'cam0', '--json', '--to', path)
    publisher.wait_for('subscribers', 1)
    publisher.feed(frame(0))
    wait_until(lambda: path.exists() and path.stat().st_size == FRAME)
    return process


def test_killed_publisher_is_named(tmp_path):
    with fed() as publisher:
        process = subscribed(publisher, tmp_path / 'frames')
        publisher.process.kill()
        output, errors = ended(process, expect=1)
        error = json.loads(output)['error']
    assert error['id'] == 'PEER-LOST' and error['object'] == 'cam0' and '--reconnect' in errors


def test_frames_behind_the_last_one_are_lost_with_the_publisher(tmp_path):
    with fed('--slots', '2') as publisher:
        process = subscribed(publisher, tmp_path / 'frames')
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        publisher.feed(b''.join(map(frame, range(1, 40))))
        publisher.wait_for('published', 40)
        publisher.process.kill()
        publisher.process.wait()
        process.send_signal(signal.SIGCONT)
        output, errors = ended(process, expect=1)
    got = json.loads(output)
    assert (got['end'], got['error']['id'], got['frames'] + got['lost'], got['accounts']['next']) == ('failed', 'PEER-LOST', 40, 40)
    assert 'frames that were published later are not counted' in errors


def test_other_programs_are_no_publishers(tmp_path):
    write(tmp_path / 'pub/file', b'bytes')
    with serving(tmp_path / 'pub') as server:
        for arguments in (['streams'], ['subscribe', 'cam0'], ['record', 'cam0', '--to', tmp_path / 'run'], ['relay', 'cam0']):
            error = run(arguments[0], server.address, *arguments[1:], expect=1).stderr
            assert f'{server.address}: `peerlane serve` listens there, not `peerlane publish` [OTHER-PROGRAM]' in error


def test_earlier_frames_take_time():
    """The time of frames that the publisher had before begins with the subscription, so that their rate is one."""
    with fed() as publisher:
        publisher.feed(frame(0))
        publisher.wait_for('published', 1)
        got = run_json('subscribe', publisher.address, 'cam0', '--start', 'latest', '--count', '1')
    assert got['seconds'] > 0 and got['bytes_per_second'] == pytest.approx(FRAME / got['seconds'])


def test_later_frames_take_no_time_before_the_first(tmp_path):
    with fed() as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--start', 'history:3', '--count', '1', '--to', tmp_path / 'out', '--json')
        # The file follows the subscription.
        end = time.monotonic() + DEADLINE
        while not (tmp_path / 'out').exists():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.002)
        publisher.feed(frame(0))
        got = json.loads(ended(process)[0])
    assert (got['frames'], got['seconds']) == (1, 0)


def test_the_line_tells_of_awaited_subscribers():
    main, terminal = pty.openpty()
    process = subprocess.Popen([PEERLANE, 'publish', '--name', 'cam0', '--listen', '127.0.0.1:0', '--subscribers', '2'],
                               stdout=subprocess.DEVNULL, stderr=terminal, env=environment())
    os.close(terminal)
    shown = b''
    while b'waiting for subscribers: 0 of 2' not in shown:
        assert select.select([main], [], [], DEADLINE)[0], shown
        shown += os.read(main, 65536)
    process.terminate()
    assert b'frames/s' not in shown + read_terminal(main)
    process.communicate(timeout=DEADLINE)


def test_unknown_stream_and_forbidden_block(tmp_path):
    with fed() as publisher:
        done = run('subscribe', publisher.address, 'cam1', '--to', tmp_path / 'frames', expect=1)
        assert '[STREAM-UNKNOWN]' in done.stderr and f'hint: `peerlane streams {publisher.address}` lists' in done.stderr
        assert not (tmp_path / 'frames').exists()
        done = run('subscribe', publisher.address, 'cam0', '--overflow', 'block', expect=1)
        assert '[STREAM-NO-BLOCK]' in done.stderr and '--allow-block' in done.stderr
        done = run('subscribe', publisher.address, 'cam0', '--memory-limit', '1K', expect=1)
        assert '[STREAM-MEMORY]' in done.stderr and '--memory-limit' in done.stderr


def test_results_on_a_terminal_end_their_rows_between_words(tmp_path):
    with publishing('--rate', '0', '--count', '20', '--frame-bytes', '100', '--subscribers', '2', '--allow-block') as publisher:
        common = [publisher.address, 'cam0', '--overflow', 'block']
        record = start('record', *common, '--to', tmp_path / 'file')
        narrow = shown_in(60, 'subscribe', *common, '--verify')
        whole, _ = ended(record)
    whole = whole.decode().splitlines()
    assert len(whole) == 1 and len(whole[0]) > 80
    assert all(len(row) <= 60 for row in narrow)
    line = ' '.join(row.strip() for row in narrow)
    assert re.match(r'20 of 20 frames, 2\.00 kB, .* lost 0: dropped 0, rejected 0, lapped 0, missed 0; verified captured to', line)
    checked = ['replay', '--check', tmp_path / 'file']
    assert all(len(row) <= 60 for row in shown_in(60, *checked)[-3:-1])
    assert shown_in(200, *checked) == run(*checked).stdout.splitlines()


@pytest.mark.parametrize('subscriber', ['subscribe', 'record', 'relay'])
def test_hints_name_commands_with_the_key(subscriber, tmp_path):
    file = ['--to', tmp_path / 'file'] if subscriber == 'record' else []
    make_key(tmp_path)
    make_key(tmp_path, 'a key')
    make_key(tmp_path, long := 'k' * 120)

    def hint(name, *names, expect):
        done = run(subscriber, '--key', name, publisher.address, *names, *file, expect=expect, cwd=tmp_path)
        return re.search('`peerlane (streams .*)` lists', done.stderr)[1].split()

    with fed('--key', tmp_path / 'key') as publisher:
        for names, status in [(['cam1'], 1), ([], 2)]:
            command = hint('key', *names, expect=status)
            assert command == ['streams', '--key', 'key', publisher.address]
            assert 'cam0' in run(*command, cwd=tmp_path).stdout
            for name in ('a key', long):
                assert hint(name, *names, expect=status) == ['streams', '--key', 'FILE', publisher.address]
        done = run('publish', '--name', 'x', '--listen', publisher.address, expect=1)
        assert 'in use' in done.stderr


@pytest.mark.parametrize('push', [[], ['--push']], ids=['pull', 'push'])
def test_reconnect_continues_behind_the_last_frame(push):
    with fed('--slots', '16', '--fabric', 'tcp') as publisher:
        proxy = Proxy(publisher.address)
        process = start('subscribe', proxy.address, 'cam0', '--reconnect', DEADLINE, '--to', '-', '--queue', '16', *push)
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        assert process.stdout.read(FRAME) == frame(0)
        proxy.cut()
        publisher.feed(frame(1) + frame(2))
        publisher.wait_for('published', 3)
        assert process.stdout.read(2 * FRAME) == frame(1) + frame(2)
        publisher.finish()
        _, errors = ended(process)
        proxy.listener.close()
    assert errors.splitlines()[2].startswith('3 of 3 frames') and 'reconnects 1, restarts of the publisher 0' in errors


def test_reconnect_to_a_publisher_that_was_started_again():
    listen = f'127.0.0.1:{free_port()}'
    with fed(listen=listen) as publisher:
        process = start('subscribe', listen, 'cam0', '--reconnect', DEADLINE, '--to', '-')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(7))
        assert process.stdout.read(FRAME) == frame(7)
    with fed(listen=listen) as publisher:
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(8))
        assert process.stdout.read(FRAME) == frame(8)
        publisher.finish()
    _, errors = ended(process, expect=3)
    assert errors.splitlines()[2].startswith('2 of 2 frames') and 'restarts of the publisher 1' in errors


def test_accounts_after_a_restart_have_no_range_of_sequences():
    listen = f'127.0.0.1:{free_port()}'
    with fed(listen=listen) as publisher:
        process = start('subscribe', listen, 'cam0', '--reconnect', DEADLINE, '--json')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(7) + frame(8))
        publisher.wait_for('published', 2)
        stream = publisher.look()
        publisher.process.kill()
        publisher.process.wait()
    with fed(listen=listen) as publisher:
        publisher.wait_for('subscribers', 1)
        publisher.finish()
    got = json.loads(ended(process, expect=3)[0])
    accounts = got['accounts']
    assert (got['restarts'], accounts['first'], accounts['next']) == (1, None, None)
    assert accounts['delivered'] == got['frames'] and got['stream'].keys() == stream.keys()


# Short limits of --reconnect, and longer ones: the first attempt has the same time, and that of a busy machine may need more.
LIMITS = 0.3, 5, 100


def test_reconnect_gives_up():
    for limit in LIMITS:
        with fed() as publisher:
            publisher.feed(frame(0))
            publisher.wait_for('published', 1)
            process = start('subscribe', publisher.address, 'cam0', '--start', 'latest', '--reconnect', limit, '--to', '-')
            got = process.stdout.read(FRAME)
            publisher.process.kill()
            errors = ended(process, expect=1)[1]
        if got:
            break
    assert got == frame(0)
    assert re.match(f'peerlane: warning: cam0: the connection to {publisher.address} is lost; trying for [0-9.]+ m?s\n', errors)
    assert errors.count('warning') == 1 and '\npeerlane: ' in errors


def test_a_signal_during_a_loss_is_a_failure():
    """Nothing tells which frames were published meanwhile."""
    with fed() as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--reconnect', DEADLINE, '--json')
        publisher.wait_for('subscribers', 1)
        publisher.process.kill()
        assert b'is lost; trying' in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        output, errors = ended(process, expect=1)
    got = json.loads(output)
    assert got['end'] == 'failed' and got['error']['id'] and 'pl_' not in errors.partition('hint')[2]


@pytest.mark.parametrize('arguments', [['subscribe', '--to', '-'], ['record', '--to', 'run']], ids=['subscribe', 'record'])
def test_reconnect_waits_for_the_first_publisher(tmp_path, arguments):
    """The token appears with the publisher, too."""
    listen, token = f'127.0.0.1:{free_port()}', tmp_path / 'token'
    name, *rest = arguments
    waiting = b'peerlane: warning: cam0: no publisher at %s yet; trying for ' % listen.encode()
    process = subprocess.Popen([PEERLANE, name, listen, 'cam0', *rest, '--token', token, '--reconnect', str(DEADLINE)], cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stderr.readline().startswith(waiting)
    with fed('--share', token, listen=listen) as publisher:
        # Only a subscriber with the token sees the stream.
        assert process.stderr.readline().startswith(b'peerlane: warning: cam0: connected to %s, after ' % listen.encode())
        publisher.feed(frame(1))
        publisher.finish()
        output, errors = ended(process)
    assert 'again' not in errors and '1 of 1 frame' in output.decode() + errors


def give_up(address, name):
    """Returns the errors of a subscriber that attempts for a short time."""
    for limit in LIMITS:
        errors = run('subscribe', address, name, '--reconnect', limit, expect=1).stderr
        if 'no publisher' in errors:
            break
    return errors


def test_the_wait_for_the_first_publisher_ends():
    address = f'127.0.0.1:{free_port()}'
    errors = give_up(address, 'cam0')
    assert re.search(r'; trying for [0-9.]+ m?s\n', errors) and '[CONNECT-REFUSED]' in errors
    process = start('subscribe', address, 'cam0', '--reconnect', DEADLINE)
    assert b'no publisher' in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert '[INTERRUPTED]' in ended(process, expect=-signal.SIGTERM)[1]
    with fed() as publisher:
        # A reason that stays ends the command at once.
        done = run('subscribe', publisher.address, 'cam0', '--overflow', 'block', '--reconnect', DEADLINE, expect=1)
        assert '[STREAM-NO-BLOCK]' in done.stderr and 'warning' not in done.stderr
        errors = give_up(publisher.address, 'cam1')
        assert 'no publisher' in errors and '[STREAM-UNKNOWN]' in errors


def test_the_wait_for_the_first_publisher_limits_the_first_attempt():
    """Nobody answers at the address. The error tells of the whole wait."""
    with socket.create_server(('127.0.0.1', 0)) as silent:
        address = f'127.0.0.1:{silent.getsockname()[1]}'
        done = run('subscribe', address, 'cam0', '--reconnect', '0.3', '--timeout', '1', expect=1)
    assert f'{address}: connect: not done within 0.300 s [OPERATION-TIMEOUT]' in done.stderr


def test_the_line_tells_of_a_loss():
    """One warning tells of the loss, one of the return. The line shows no rates meanwhile."""
    listen = f'127.0.0.1:{free_port()}'
    main, terminal = pty.openpty()
    shown = b''

    def wait_until_shown(pattern):
        """Reads until the pattern matches; returns the bytes before it."""
        nonlocal shown
        while not (found := re.search(pattern, shown)):
            assert select.select([main], [], [], DEADLINE)[0], shown
            shown += os.read(main, 65536)
        before, shown = shown[:found.start()], shown[found.end():]
        return before

    with fed(listen=listen) as publisher:
        process = subprocess.Popen([PEERLANE, 'subscribe', listen, 'cam0', '--reconnect', str(DEADLINE), '--to', '-'],
                                   stdout=subprocess.PIPE, stderr=terminal, env=environment())
        os.close(terminal)
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        assert process.stdout.read(FRAME) == frame(0)
        publisher.process.kill()
        wait_until_shown(b'warning: cam0: the connection to %s is lost; trying for ' % listen.encode())
        # Seconds that pass are shown.
        wait_until_shown(b'connection lost 0 s ago, trying for ')
        assert b'frames/s' not in wait_until_shown(rb'connection lost [1-9]\d* s ago, trying for ')
        publisher.process.wait()
    with fed(listen=listen) as publisher:
        assert b'is lost;' not in wait_until_shown(b'warning: cam0: connected to %s again, after ' % listen.encode())
        publisher.wait_for('subscribers', 1)
        publisher.finish()
        assert b'connection' not in read_terminal(main)
        process.communicate(timeout=DEADLINE)


# -- slow subscribers --------------------------------------------------------------------------------------------


LARGE = 1 << 18  # more than a pipe takes


def test_a_full_queue_has_a_remedy():
    """The library may fetch fewer frames than were published meanwhile, so the results say whether the queue was full."""
    with publishing('--from', '-', '--frame-bytes', LARGE, '--slots', '64') as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--queue', '1', '--to', '-')
        publisher.wait_for('subscribers', 1)
        publisher.feed(bytes(LARGE) * 20)
        publisher.wait_for('published', 20)
        publisher.process.stdin.close()
        publisher.process.stdin = None
        errors = process.communicate(timeout=DEADLINE)[1].decode()
    dropped, rejected = map(int, re.search(r'dropped (\d+), rejected (\d+)', errors).groups())
    assert (f'the queue was full for {dropped} frame' in errors and '--allow-block' in errors) == bool(dropped), errors
    assert not rejected


def unread_subscriber(publisher):
    """A subscriber that holds frames back, and stands still in its first one until its output is read."""
    return start('subscribe', publisher.address, 'cam0', '--overflow', 'block', '--queue', '2', '--to', '-')


def test_subscriber_beyond_the_patience_is_demoted():
    with publishing('--rate', '0', '--count', '20', '--frame-bytes', LARGE, '--slots', '4', '--subscribers', '1',
                    '--allow-block', '--patience', '0.2', '--json') as publisher:
        process = unread_subscriber(publisher)
        publisher.wait_for('published', 20)
        output, errors = ended(process, expect=3)
        totals = publisher.finish_json()
    count, of = map(int, re.match(r'(\d+) of (\d+) frames', errors).groups())
    assert of == 20 and 1 <= count < 20 and len(output) == count * LARGE
    subscriber, = totals['subscribers']
    assert subscriber['demoted'] and not subscriber['blocks'] and subscriber['accounts']['delivered'] == count


def read_until(fd, wanted):
    data = b''
    end = time.monotonic() + DEADLINE
    while not re.search(wanted, data):
        assert time.monotonic() < end and select.select([fd], [], [], DEADLINE)[0], data
        data += os.read(fd, 4096)


def test_frames_of_a_camera_are_refused_while_all_slots_are_held():
    terminal, end = pty.openpty()
    with publishing('--rate', '200', '--frame-bytes', LARGE, '--slots', '4', '--subscribers', '1', '--allow-block',
                    '--patience', 'never', stderr=end) as publisher:
        os.close(end)
        process = unread_subscriber(publisher)
        # The line of statistics on the terminal.
        read_until(terminal, rb'frames/s .* 1 subscriber  [1-9]\d* refused')
        publisher.process.send_signal(signal.SIGINT)
        output, errors = ended(process)
        totals = publisher.finish()[0].splitlines()[-1]
    os.close(terminal)
    count = len(output) // LARGE
    assert totals.startswith(f'{count} frames, ') and errors.startswith(f'{count} of {count} frames')
    assert int(re.search(r'refused (\d+); subscribers 1, demoted 0', totals)[1]) > 0


# -- wrong usage --------------------------------------------------------------------------------------------------

WRONG = [
    (['publish'], '--name'), (['publish', '--name', 'a b'], '--name takes'), (['publish', '--name', 'x' * 64], '--name takes'),
    (['publish', '--name', 'x', 'argument'], 'unexpected argument'),
    *[(['publish', '--name', 'x', f'{option}={value}'], f'{option} takes')
      for option, values in {'--slots': ('1', '65537', 'x'), '--rate': ('-1', 'x', '1e7', 'nan', 'inf'),
                             '--count': ('0', '-1', '1x'), '--subscribers': ('0', '257'), '--frame-bytes': ('0', '2T', 'x'),
                             '--patience': ('0', 'x')}.items() for value in values],
    (['publish', '--name', 'x', '--dtype', 'u16'], 'belong together'),
    (['publish', '--name', 'x', '--shape', '2x2'], 'belong together'),
    (['publish', '--name', 'x', '--dtype', 'u17x', '--shape', '2'], '--dtype takes'),
    (['publish', '--name', 'x', '--dtype', 'u16', '--shape', '0x2'], '--shape takes'),
    (['publish', '--name', 'x', '--dtype', 'u16', '--shape', '1048576x1048576'], 'more than 2^40'),
    (['publish', '--name', 'x', '--dtype', 'u16', '--shape', '2', '--frame-bytes', '4'], 'without --dtype'),
    (['publish', '--name', 'x', '--patience', '1'], 'needs --allow-block'),
    (['streams'], 'ADDRESS'), (['streams', 'a', 'b'], 'only one'), (['streams', 'a', '--interval', '-1'], '--interval takes'),
    (['subscribe'], 'ADDRESS'), (['subscribe', 'a'], '`peerlane streams a`'), (['subscribe', 'a', 'b/c'], 'characters'),
    (['subscribe', 'a', 'b', 'c'], 'only an ADDRESS'),
    (['subscribe', 'a', 'b', '--json', '--to', '-'], 'both be written'),
    (['subscribe', 'a', 'b', '--in-place', '--snapshot', 'x.png'], '--snapshot keeps frames'),
    (['subscribe', 'a', 'b', '--in-place', '--memory', 'cuda'], "not in 'cuda'"),
    (['subscribe', 'a', 'b', '--in-place', '--push'], '--push writes frames'),
    (['subscribe', 'a', 'b', '--staging-memory', 'x'], '--staging-memory takes a size'),
    (['subscribe', 'a', 'b', '--in-place', '--overflow', 'drop-newest'], 'implies --overflow block'),
    *[(['subscribe', 'a', 'b', f'{option}={value}'], f'{option} takes')
      for option, values in {'--start': ('now', 'history:0', 'history:', 'sequence:-1', 'livex', 'sequence:99999999999999999999'),
                             '--overflow': ('drop',), '--queue': ('0', '4097'), '--every': ('0',), '--count': ('0',),
                             '--snapshot': ('x.jpg', '.png'), '--reconnect': ('0', 'x'), '--memory-limit': ('0',)}.items()
      for value in values],
]


@pytest.mark.parametrize('arguments,text', WRONG, ids=[' '.join(arguments)[-60:] for arguments, _ in WRONG])
def test_wrong_usage_names_the_option(arguments, text):
    done = run(*arguments, expect=2)
    assert text in ' '.join(done.stderr.split()) and not done.stdout


def test_raw_input_needs_the_size_of_a_frame(tmp_path):
    done = run('publish', '--name', 'x', '--from', write(tmp_path / 'raw', b'data'), expect=1)
    assert '[FRAME-SIZE]' in done.stderr and '--dtype and --shape' in done.stderr
    done = run('publish', '--name', 'x', '--from', tmp_path / 'none', '--frame-bytes', '4', expect=1)
    assert 'No such file' in done.stderr
    done = run('publish', '--name', 'x', '--frame-bytes', '1T', '--slots', '65536', expect=1)
    assert '[NO-MEMORY]' in done.stderr and 'MiB are available' in done.stderr and '--slots' in done.stderr
