# SPDX-License-Identifier: BSD-2-Clause
"""record and replay: the file, its frames after a kill, a cut or a full disk, and a replay that records the same."""
import contextlib
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import time

import pytest
from cli_support import DEADLINE, PEERLANE, Server, content, environment, free_port, make_key, run, run_json, start, wait_until, write
from stream_support import Proxy, pattern, publishing

PAGE = 4096
FRAME = 5000
# Three frames with the sequences 5, 6 and 9: with a payload, empty, and with metadata and a layout of its own.
SAMPLE = pathlib.Path(__file__).parent.parent / 'fuzz/corpus/recording/whole'


def fed(*arguments, **options):
    """A publisher of frames of FRAME bytes that the test writes into its standard input."""
    return publishing('--from', '-', '--frame-bytes', FRAME, *arguments, **options)


HOLD = ['--allow-block', '--patience', 'never']
HELD = ['--overflow', 'block']


def frame(i):
    return bytes([i % 256]) * FRAME


class Replay(Server):
    """`peerlane replay` on a free port of the loopback."""

    def __init__(self, *arguments, **changes):
        self.process = subprocess.Popen([PEERLANE, 'replay', '--listen', '127.0.0.1:0', '--json', *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**changes))
        self.address = json.loads(self.line())['address']

    def finish(self, expect=0):
        output, errors = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == expect, (self.process.returncode, output, errors)
        return json.loads(output)


@contextlib.contextmanager
def replaying(*arguments, **changes):
    replay = Replay(*arguments, **changes)
    try:
        yield replay
    finally:
        replay.process.kill()
        replay.process.communicate()


def ended(process, expect=0):
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == expect, (process.returncode, output, errors)
    return output.decode(), errors.decode()


def parse(path):
    """Frames of a recording by its documented form: pages of heads with their payloads."""
    data = path.read_bytes()
    assert data[:8] == b'PLRECORD' and struct.unpack_from('<II', data, 8) == (1, PAGE)
    frames = []
    at = PAGE
    while data[at:at + 8] == b'PLFRAME1':
        sequence, length, captured = struct.unpack_from('<3Q', data, at + 8)
        metadata = data[at + 192:at + 192 + struct.unpack_from('<I', data, at + 40)[0]]
        payload = data[at + PAGE:at + PAGE + length]
        if len(payload) < length:
            break
        frames.append({'sequence': sequence, 'captured': captured, 'metadata': metadata, 'payload': payload,
                       'head': data[at:at + PAGE], 'offset': at})
        at += PAGE + (length + PAGE - 1) // PAGE * PAGE
    return frames, data[at:]


def heads_and_payloads(path):
    return [(each['head'], each['payload']) for each in parse(path)[0]]


def wait_for_size(process, path, size):
    end = time.monotonic() + DEADLINE
    while not path.exists() or path.stat().st_size < size:
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.002)


# -- record -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('push', [[], ['--push']], ids=['pull', 'push'])
def test_file_has_the_frames_and_an_index(tmp_path, push):
    path = tmp_path / 'run'
    with publishing('--count', '20', '--rate', '0', '--dtype', 'u8', '--shape', '3x1001', '--subscribers', '1',
                    '--allow-block', '--patience', 'never') as publisher:
        got = run_json('record', publisher.address, 'cam0', '--to', path, '--overflow', 'block', *push)
    assert (got['frames'], got['lost'], got['end'], got['indexed'], got['error']) == (20, 0, 'ended', True, None)
    assert got['bytes'] == 20 * 3003 and got['replayed'] == 0 and got['gaps'] == {'count': 0, 'sequences': 0, 'ranges': []}
    frames, index = parse(path)
    assert [each['sequence'] for each in frames] == list(range(20))
    assert all(each['payload'] == pattern(i, 3003) and each['offset'] % PAGE == 0 for i, each in enumerate(frames))
    assert index[:8] == b'PLINDEX1' and struct.unpack_from('<Q', index, 8) == (20,)
    entries = [struct.unpack_from('<QQ', index, PAGE + 16 * i) for i in range(20)]
    assert entries == [(each['sequence'], each['offset']) for each in frames]
    assert len(index) == PAGE + 16 * 20 + 64 and index[-64:-56] == b'PLEND001'
    checked = run_json('replay', path, '--check')
    assert checked['checked'] and checked['frames'] == 20 and checked['accounts']['delivered'] == 20
    assert checked['stream']['shape'] == [3, 1001] and checked['stream']['name'] == 'cam0'
    assert 'all digests are right' in run('replay', path, '--check').stdout


def test_lost_frames_are_told_and_the_status_is_3(tmp_path):
    path = tmp_path / 'run'
    with fed('--slots', '4') as publisher:
        process = start('record', publisher.address, 'cam0', '--to', path, '--json')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        wait_for_size(process, path, 2 * PAGE + FRAME)
        process.send_signal(signal.SIGSTOP)
        publisher.feed(b''.join(map(frame, range(1, 30))))
        publisher.wait_for('published', 30)
        process.send_signal(signal.SIGCONT)
        publisher.process.stdin.close()
        publisher.process.stdin = None
        got = json.loads(ended(process, expect=3)[0])
    sequences = [each['sequence'] for each in parse(path)[0]]
    missing = sorted(set(range(30)) - set(sequences))
    assert missing and sequences[0] == 0 and sequences[-1] == 29
    assert got['lost'] == len(missing) == got['gaps']['sequences'] and got['frames'] + got['lost'] == 30
    assert [i for first, last in got['gaps']['ranges'] for i in range(first, last + 1)] == missing
    info = run_json('replay', path, '--info')
    assert info['gaps'] == got['gaps'] and info['accounts'] == got['accounts']
    assert f'missing: {missing[0]}' in run('replay', path, '--info').stdout
    # Subscribers of a replay learn of these losses.
    with replaying(path, '--fast', '--allow-block', '--subscribers', '1') as replay:
        again = run_json('subscribe', replay.address, 'cam0', '--overflow', 'block', expect=3)
        replay.finish()
    assert (again['frames'], again['lost'], again['accounts']['aborted']) == (len(sequences), len(missing), 0)
    # Without its index, nothing tells a loss from an aborted sequence.
    cut = write(tmp_path / 'cut', path.read_bytes()[:-64])
    with replaying(cut, '--fast', '--allow-block', '--subscribers', '1') as replay:
        again = run_json('subscribe', replay.address, 'cam0', '--overflow', 'block', expect=3)
        replay.finish()
    assert (again['frames'], again['lost']) == (len(sequences), len(missing))


def test_frames_that_the_publisher_no_longer_has_are_missed(tmp_path):
    path = tmp_path / 'run'
    with fed('--slots', '4') as publisher:
        publisher.feed(b''.join(map(frame, range(10))))
        publisher.wait_for('published', 10)
        take = [publisher.address, 'cam0', '--start', 'sequence:2', '--queue', '4', '--count', '3']
        other = run_json('subscribe', *take, expect=3)
        got = run_json('record', *take, '--to', path, expect=3)
    assert got['accounts'] == other['accounts'] and got['lost'] == got['accounts']['missed'] == 4
    assert got['accounts']['first'] == 2 and got['gaps'] == {'count': 1, 'sequences': 4, 'ranges': [[2, 5]]}
    info = run_json('replay', path, '--info')
    assert info['gaps'] == got['gaps'] and info['accounts'] == got['accounts']


@pytest.mark.parametrize('how', ['count', 'signal', 'seconds', 'lost'])
def test_each_end_leaves_a_complete_index(tmp_path, how):
    path = tmp_path / 'run'
    options = {'count': ['--count', '3'], 'seconds': ['--seconds', '0.2']}.get(how, [])
    with fed() as publisher:
        process = start('record', publisher.address, 'cam0', '--to', path, '--json', *options)
        if how != 'seconds':
            publisher.wait_for('subscribers', 1)
            publisher.feed(b''.join(map(frame, range(3))))
        if how in ('signal', 'lost'):
            wait_for_size(process, path, PAGE + 2 * 3 * PAGE + FRAME)
        if how == 'signal':
            process.send_signal(signal.SIGINT)
        if how == 'lost':
            publisher.process.kill()
        got = json.loads(ended(process, expect=1 if how == 'lost' else 0)[0])
    assert got['end'] == how and got['indexed'] and got['frames'] == (0 if how == 'seconds' else 3)
    assert (got['error'] is not None) == (how == 'lost')
    checked = run_json('replay', path, '--check')
    assert checked['indexed'] and checked['end'] == how and checked['frames'] == got['frames']


def test_a_loss_without_reconnect_tells_of_the_file(tmp_path):
    path = tmp_path / 'run'
    with fed() as publisher:
        process = start('record', publisher.address, 'cam0', '--to', path)
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        wait_for_size(process, path, 2 * PAGE + FRAME)
        publisher.process.kill()
        errors = ended(process, expect=1)[1]
    assert '[PEER-LOST]' in errors and 'hint: the file has 1 whole frame; record into another file, with --reconnect' in errors
    assert 'pl_' not in errors.split('hint')[1]


def test_reconnect_continues_the_file(tmp_path):
    path = tmp_path / 'run'
    with fed('--slots', '2', '--fabric', 'tcp') as publisher:
        proxy = Proxy(publisher.address)
        process = start('record', proxy.address, 'cam0', '--to', path, '--reconnect', DEADLINE, '--json')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        wait_for_size(process, path, 2 * PAGE + FRAME)
        proxy.pause()
        publisher.feed(b''.join(map(frame, range(1, 7))))
        publisher.wait_for('published', 7)
        proxy.resume()
        # The publisher has two slots: frames 1 to 4 are gone.
        wait_for_size(process, path, PAGE + 2 * 3 * PAGE + PAGE + FRAME)
        publisher.finish()
        output, errors = ended(process, expect=3)
        proxy.listener.close()
    got = json.loads(output)
    assert (got['frames'], got['lost'], got['accounts']['missed'], got['reconnects']) == (3, 4, 4, 1)
    assert (got['end'], got['error'], got['gaps']['ranges']) == ('ended', None, [[1, 4]])
    assert [(each['sequence'], each['payload']) for each in parse(path)[0]] == [(i, frame(i)) for i in (0, 5, 6)]
    assert run_json('replay', path, '--check')['accounts'] == got['accounts']
    assert errors.count(f'warning: cam0: the connection to {proxy.address} is lost; trying for ') == 1
    assert errors.count(f'warning: cam0: connected to {proxy.address} again, after ') == 1


def test_another_instance_ends_the_file(tmp_path):
    path, listen = tmp_path / 'run', f'127.0.0.1:{free_port()}'
    with fed(listen=listen) as publisher:
        process = start('record', listen, 'cam0', '--to', path, '--reconnect', DEADLINE, '--json', '--quiet')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0) + frame(1))
        wait_for_size(process, path, PAGE + 3 * PAGE + PAGE + FRAME)
        stream = publisher.look()
    with fed(listen=listen):
        output, errors = ended(process, expect=1)
    got = json.loads(output)
    assert (got['end'], got['frames'], got['accounts']['delivered'], got['indexed']) == ('lost', 2, 2, True)
    assert got['error']['id'] == 'STREAM-RESTARTED' and got['stream']['instance'] == stream['instance']
    assert 'hint: the file has 2 whole frames; record into another file' in errors and 'warning' not in errors
    assert run_json('replay', path, '--check')['frames'] == 2


@pytest.mark.parametrize('options', [['--reconnect'], ['--reconnect', DEADLINE, '--seconds']], ids=['reconnect', 'seconds'])
def test_reconnect_ends_in_time(tmp_path, options):
    """Without a connection the end of --seconds is a loss, too: nothing tells which frames were published meanwhile."""
    # The subscription has the same time, and that of a busy machine may need more; so may the loss.
    for seconds in 0.5, 5, 100:
        path = tmp_path / f'run{seconds}'
        with fed() as publisher:
            process = start('record', publisher.address, 'cam0', '--to', path, '--json', *options, seconds)
            # The publisher counts a subscriber that does not know yet; the file follows the subscription.
            wait_until(lambda: process.poll() is not None or path.exists() and path.stat().st_size >= PAGE)
            publisher.process.kill()
            output, errors = process.communicate(timeout=DEADLINE)
        got = json.loads(output)
        if path.exists() and got['end'] != 'seconds':
            break
    assert process.returncode == 1, errors
    assert (got['end'], got['frames'], got['indexed'], got['reconnects']) == ('lost', 0, True, 0)
    errors = errors.decode()
    assert got['error']['message'].endswith('; the file has 0 whole frames') and 'pl_' not in errors.split('hint')[1]


def test_a_signal_ends_the_attempts(tmp_path):
    with fed() as publisher:
        process = start('record', publisher.address, 'cam0', '--to', tmp_path / 'run', '--json', '--reconnect', DEADLINE)
        wait_for_size(process, tmp_path / 'run', PAGE)
        publisher.process.kill()
        assert b'is lost; trying' in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        output, errors = ended(process, expect=1)
    got = json.loads(output)
    assert (got['end'], got['indexed']) == ('lost', True) and '  hint: ' in errors
    assert got['error']['message'].endswith('; the file has 0 whole frames') and 'pl_' not in errors.split('hint')[1]


def test_failed_attempts_keep_the_remedy(tmp_path):
    """The publisher behind the address demands a token now."""
    with fed('--fabric', 'tcp') as publisher, fed('--fabric', 'tcp', '--share', tmp_path / 'token') as other:
        proxy = Proxy(publisher.address)
        process = start('record', proxy.address, 'cam0', '--to', tmp_path / 'run', '--json', '--reconnect', DEADLINE)
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        wait_for_size(process, tmp_path / 'run', 2 * PAGE + FRAME)
        host, port = other.address.split(':')
        connections, proxy.target = len(proxy.pairs), (host, int(port))
        proxy.cut()
        # An attempt makes no more connections than the subscription: with the next one, an attempt has failed.
        end = time.monotonic() + DEADLINE
        while len(proxy.pairs) <= connections:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        output, errors = ended(process, expect=1)
        proxy.listener.close()
    got = json.loads(output)
    assert (got['end'], got['frames'], got['error']['id']) == ('lost', 1, 'STREAM-TOKEN-NEEDED')
    assert got['error']['message'].endswith('; the file has 1 whole frame')
    assert 'hint: ask for the file of `peerlane publish --share FILE`, and add --token FILE' in errors


def test_the_time_of_frames_without_earlier_ones_begins_with_the_first(tmp_path):
    with fed() as publisher:
        process = start('record', publisher.address, 'cam0', '--to', tmp_path / 'run', '--json', '--start', 'latest', '--count', '1')
        # The file follows the subscription.
        wait_for_size(process, tmp_path / 'run', PAGE)
        publisher.feed(frame(0))
        assert json.loads(ended(process)[0])['seconds'] == 0
        got = run_json('record', publisher.address, 'cam0', '--to', tmp_path / 'next', '--start', 'latest', '--count', '1')
    assert got['seconds'] > 0


def test_killed_at_any_moment_the_file_keeps_whole_frames(tmp_path):
    with fed('--slots', '8', '--allow-block', '--patience', 'never') as publisher:
        fed_frames = 0
        for pages in (1, 2, 3, 4, 6, 9, 14):
            path = tmp_path / f'run{pages}'
            process = start('record', publisher.address, 'cam0', '--to', path, '--overflow', 'block', '--start',
                            f'sequence:{fed_frames}')
            for _ in range(6):
                publisher.feed(frame(fed_frames))
                fed_frames += 1
            wait_for_size(process, path, pages * PAGE)
            process.kill()
            process.communicate()
            whole = parse(path)[0]
            checked = run_json('replay', path, '--check', expect=3)
            assert not checked['indexed'] and checked['end'] == 'unknown' and checked['frames'] == len(whole)
            assert all(each['payload'] == frame(each['sequence']) for each in whole)
            assert len(whole) >= max(0, (pages - 1) // 3)
        # The last of these files is replayed.
        with replaying(path, '--fast', '--allow-block', '--subscribers', '1') as replay:
            run('record', replay.address, 'cam0', '--to', tmp_path / 'again', '--overflow', 'block')
            assert replay.finish()['frames'] == len(whole)
    assert heads_and_payloads(tmp_path / 'again') == heads_and_payloads(path)


def test_full_disk_is_told_and_ends_with_the_last_whole_frame(tmp_path):
    path = tmp_path / 'run'
    # The fifth frame does not fit, and the index does.
    limit = PAGE + 4 * 3 * PAGE + 6000
    with fed('--slots', '16') as publisher:
        process = start('record', publisher.address, 'cam0', '--to', path, '--queue', '16', '--json')
        # The queue's memory has a file size as well, so the limit comes after it.
        wait_for_size(process, path, PAGE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        publisher.feed(b''.join(map(frame, range(8))))
        output, errors = ended(process, expect=1)
    got = json.loads(output)
    assert '[FILE-WRITE]' in errors and 'frame 4 cannot be written: File too large' in errors
    assert got['end'] == 'full' and got['error']['id'] == 'FILE-WRITE' and got['frames'] == 4 and got['indexed']
    assert [each['sequence'] for each in parse(path)[0]] == [0, 1, 2, 3]
    checked = run_json('replay', path, '--check')
    assert checked['frames'] == 4 and checked['end'] == 'full' and checked['accounts']['next'] == 4


def test_failure_of_the_disk_at_the_end_names_file_and_call(tmp_path):
    path = tmp_path / 'run'
    with publishing('--count', '3', '--rate', '0', '--frame-bytes', '100', '--subscribers', '1') as publisher:
        process = start('record', publisher.address, 'cam0', '--to', path, '--json', LD_PRELOAD=os.environ['SYNC_RECORDER'], SYNC_FAIL='1')
        output, errors = ended(process, expect=1)
    error = json.loads(output)['error']
    assert (error['id'], error['call'], error['object']) == ('FILE-WRITE', 'fsync', str(path))
    assert 'may lack frames' in error['message'] and f'{path}: fsync: ' in errors


def test_existing_file_is_kept_without_force(tmp_path):
    path = write(tmp_path / 'run', b'precious')
    with fed() as publisher:
        done = run('record', publisher.address, 'cam0', '--to', path, expect=1)
        assert '[FILE-EXISTS]' in done.stderr and '--force' in done.stderr and path.read_bytes() == b'precious'
        publisher.feed(frame(0))
        publisher.wait_for('published', 1)
        run('record', publisher.address, 'cam0', '--to', path, '--force', '--start', 'latest', '--count', '1')
        # A failure to subscribe leaves no file.
        run('record', publisher.address, 'cam9', '--to', tmp_path / 'none', expect=1)
        assert '[FILE-KIND]' in run('record', publisher.address, 'cam0', '--to', '/dev/null', '--force', expect=1).stderr
    assert len(parse(path)[0]) == 1 and not (tmp_path / 'none').exists()


# -- replay -----------------------------------------------------------------------------------------------------


def test_record_of_a_replay_has_the_same_frames(tmp_path):
    key = make_key(tmp_path)
    source = SAMPLE
    for generation in range(2):
        path = tmp_path / f'run{generation}'
        with replaying(source, '--fast', '--allow-block', '--subscribers', '1', '--key', key) as replay:
            got = run_json('record', replay.address, 'cam0', '--to', path, '--overflow', 'block', '--key', key)
            assert replay.finish()['frames'] == 3
        assert (got['frames'], got['lost'], got['accounts']['aborted'], got['accounts']['first']) == (3, 0, 2, 5)
        assert got['replayed'] == 3 and heads_and_payloads(path) == heads_and_payloads(SAMPLE)
        source = path
    frames = parse(path)[0]
    assert [each['sequence'] for each in frames] == [5, 6, 9] and frames[2]['metadata'] == b'meta'
    info = run_json('replay', path, '--info')
    assert info['gaps']['ranges'] == [[7, 8]] and info['stream']['content_type'] == 'raw'


def test_loop_continues_the_sequences(tmp_path):
    path = tmp_path / 'run'
    with replaying(SAMPLE, '--fast', '--allow-block', '--subscribers', '1', '--loop', '--name', 'other') as replay:
        run('record', replay.address, 'other', '--to', path, '--overflow', 'block', '--count', '10')
        replay.process.send_signal(signal.SIGTERM)
        replay.finish()
    assert [each['sequence'] for each in parse(path)[0]] == [5, 6, 9, 10, 11, 14, 15, 16, 19, 20]


def test_age_of_a_recording_is_no_latency():
    for arguments in [], ['--json']:
        with replaying(SAMPLE, '--fast', '--allow-block', '--subscribers', '1') as replay:
            shown = run('subscribe', replay.address, 'cam0', '--overflow', 'block', *arguments).stdout
            replay.finish()
        assert 'captured to taken' not in shown
    assert json.loads(shown)['latency_ns']['maximum'] == 0


def test_loop_repeats_the_loss_behind_the_last_frame(tmp_path):
    data = bytearray(SAMPLE.read_bytes())
    data[parse(SAMPLE)[0][2]['offset'] + PAGE] ^= 1
    with replaying(write(tmp_path / 'damaged', data), '--fast', '--allow-block', '--subscribers', '1') as replay:
        run('record', replay.address, 'cam0', '--to', tmp_path / 'run', '--overflow', 'block', expect=3)
        replay.finish(expect=1)
    with replaying(tmp_path / 'run', '--fast', '--allow-block', '--subscribers', '1', '--loop', '--name', 'other') as replay:
        got = run_json('record', replay.address, 'other', '--to', tmp_path / 'again', '--overflow', 'block', '--count', '5', expect=3)
        replay.process.send_signal(signal.SIGTERM)
        replay.finish()
    assert [each['sequence'] for each in parse(tmp_path / 'again')[0]] == [5, 6, 10, 11, 15]
    assert (got['lost'], got['accounts']['aborted']) == (2, 4)


def test_paces(tmp_path):
    path = tmp_path / 'run'
    with publishing('--count', '6', '--rate', '50', '--shape', '8', '--dtype', 'u8', '--subscribers', '1') as publisher:
        run('record', publisher.address, 'cam0', '--to', path, '--queue', '16')
    times = [each['captured'] for each in parse(path)[0]]
    span = (times[-1] - times[0]) / 1e9
    for option, least in ((['--speed', '0.5'], 2 * span), ([], span), (['--rate', '100'], (len(times) - 1) / 100)):
        with replaying(path, *option) as replay:
            # The first frame is due at once, and none is early.
            assert replay.finish()['seconds'] >= 0.999 * least


def test_loop_of_one_frame_keeps_the_rate(tmp_path):
    rate, count = 50, 5
    with fed() as publisher:
        publisher.feed(frame(0))
        publisher.wait_for('published', 1)
        run('record', publisher.address, 'cam0', '--to', tmp_path / 'run', '--start', 'latest', '--count', '1')
    with replaying(tmp_path / 'run', '--rate', rate, '--loop', '--allow-block', '--subscribers', '1') as replay:
        run('subscribe', replay.address, 'cam0', '--overflow', 'block', '--count', count)
        replay.process.send_signal(signal.SIGTERM)
        totals = replay.finish()
    # No frame is early, so at most this number is due.
    assert count <= totals['frames'] <= 1.001 * totals['seconds'] * rate + 1


def test_signal_ends_the_wait_for_subscribers():
    with replaying(SAMPLE, '--subscribers', '1') as replay:
        replay.process.send_signal(signal.SIGINT)
        assert replay.finish()['frames'] == 0


def test_signal_ends_the_wait_for_the_next_frame():
    with publishing(command=['replay', SAMPLE, '--rate', '0.001', '--json']) as replay:
        replay.wait_for('published', 6)
        replay.process.send_signal(signal.SIGTERM)
        assert replay.finish_json()['frames'] == 1


def test_late_frames_are_not_made_up_for(tmp_path):
    count, rate, slots = 12, 20, 2
    with publishing('--count', count, '--rate', '0', '--dtype', 'u8', '--shape', '8', '--subscribers', '1', *HOLD) as publisher:
        run('record', publisher.address, 'cam0', '--to', tmp_path / 'run', *HELD)
    with publishing(command=['replay', tmp_path / 'run', '--rate', rate, '--slots', slots, '--allow-block', '--subscribers', '2',
                             '--json']) as replay:
        process = start('subscribe', replay.address, 'cam0', *HELD, '--lossless', '--json')
        replay.wait_for('subscribers', 1)
        process.send_signal(signal.SIGSTOP)
        # The second subscriber lets the replay begin.  The stopped one holds it back for longer than the rest takes.
        run('subscribe', replay.address, 'cam0', *HELD, '--count', '1')
        replay.wait_for('published', slots)
        time.sleep(2 * count / rate)
        began = time.monotonic()
        process.send_signal(signal.SIGCONT)
        assert replay.finish_json()['frames'] == count
        # The frame that waited for its slot and the next one, which is late, come at once.
        assert time.monotonic() - began >= 0.999 * (count - slots - 2) / rate
        assert json.loads(ended(process)[0])['frames'] == count


def test_damaged_payload_is_found_and_left_out(tmp_path):
    data = bytearray(SAMPLE.read_bytes())
    frames = parse(SAMPLE)[0]
    data[frames[0]['offset'] + PAGE + 3] ^= 1
    path = write(tmp_path / 'run', data)
    done = run('replay', path, '--check', expect=1)
    assert 'the payload of frame 5 is damaged' in done.stderr and '1 of 3 payloads are damaged' in done.stderr
    assert run_json('replay', path, '--info')['damaged'] == 0
    with replaying(path, '--fast', '--allow-block', '--subscribers', '1') as replay:
        got = run_json('record', replay.address, 'cam0', '--to', tmp_path / 'again', '--overflow', 'block', expect=3)
        assert replay.finish(expect=1)['damaged'] == 1
    assert got['accounts']['aborted'] == 2 and got['lost'] == 1
    assert [each['sequence'] for each in parse(tmp_path / 'again')[0]] == [6, 9]


def test_index_of_other_frames_is_found(tmp_path):
    with fed('--slots', '8') as publisher:
        publisher.feed(b''.join(map(frame, range(4))))
        publisher.wait_for('published', 4)
        for first in ('0', '2'):
            run('record', publisher.address, 'cam0', '--to', tmp_path / first, '--start', f'sequence:{first}', '--count', '2')
    frames, other = ((tmp_path / name).read_bytes().partition(b'PLINDEX1') for name in ('0', '2'))
    path = write(tmp_path / 'mixed', frames[0] + other[1] + other[2])
    assert run_json('replay', path, '--info')['indexed']
    assert 'the index does not match the frames' in run('replay', path, '--check', expect=1).stderr


def test_content_of_a_recording():
    info = run_json('replay', SAMPLE, '--info')
    assert (info['frames'], info['bytes'], info['first'], info['last'], info['earliest'], info['latest']) == (3, 5016, 5, 9, 9, 9)
    assert 'sequences 5 to 9' in run('replay', SAMPLE, '--info').stdout


def test_damaged_head_ends_the_replay(tmp_path):
    data = bytearray(SAMPLE.read_bytes())
    data[parse(SAMPLE)[0][1]['offset'] + 20] ^= 1
    path = write(tmp_path / 'run', data)
    assert '[RECORDING-DAMAGED]' in run('replay', path, '--check', expect=1).stderr
    with replaying(path, '--fast') as replay:
        result = replay.finish(expect=1)
    assert result['frames'] == 1 and result['error']['id'] == 'RECORDING-DAMAGED'


def test_replay_that_fails_does_not_end_the_stream(tmp_path):
    first, second, _ = (each['offset'] for each in parse(SAMPLE)[0])
    damaged = bytearray(SAMPLE.read_bytes())
    damaged[second + 20] ^= 1
    for name, data, length in (('head', damaged, len(damaged)), ('cut', SAMPLE.read_bytes(), first + PAGE + 1)):
        path = write(tmp_path / name, data)
        with replaying(path, '--fast', '--subscribers', '1') as replay:
            os.truncate(path, length)
            got = run_json('record', replay.address, 'cam0', '--to', tmp_path / f'{name}-again', expect=1)
            result = replay.finish(expect=1)
        assert result['error'], name
        assert (got['end'], got['error']['id']) == ('lost', 'STREAM-ENDED'), name
        assert run_json('replay', tmp_path / f'{name}-again', '--info')['end'] == 'lost'


def test_other_files_are_refused(tmp_path):
    for path in (write(tmp_path / 'random', content(10000)), write(tmp_path / 'empty', b''), '/dev/zero'):
        assert '[RECORDING]' in run('replay', path, '--check', expect=1).stderr
    run('replay', tmp_path / 'none', expect=1)
    empty = SAMPLE.parent / 'empty'
    assert '[RECORDING-EMPTY]' in run('replay', empty, '--listen', '127.0.0.1:0', expect=1).stderr
    assert run_json('replay', empty, '--check')['frames'] == 0


@pytest.mark.parametrize('arguments, text', [
    (['record'], 'ADDRESS of a publisher is missing'),
    (['record', 'x'], 'NAME of a stream is missing'),
    (['record', 'x', 'cam0'], 'add --to'),
    (['record', 'x', 'a/b', '--to', 'f'], 'a NAME has 1 to 63 characters'),
    (['record', 'x', 'cam0', '--to', 'f', '--start', 'never'], '--start takes'),
    (['record', 'x', 'cam0', '--to', 'f', '--overflow', 'x'], '--overflow takes'),
    (['record', 'x', 'cam0', '--to', 'f', '--count', '0'], '--count takes'),
    (['record', 'x', 'cam0', '--to', 'f', '--seconds', '0'], '--seconds takes'),
    (['replay'], 'FILE of a recording is missing'),
    (['replay', 'a', 'b'], 'only one FILE'),
    *((['replay', 'a', option, value], f'{option} takes') for option in ('--rate', '--speed')
      for value in ('0', '0.0000009', '1000001', 'nan', 'inf', '1x', '')),
    (['replay', 'a', '--rate', '1', '--speed', '2'], 'only one of --rate, --speed and --fast'),
    (['replay', 'a', '--rate', '1', '--fast'], 'only one of --rate, --speed and --fast'),
    (['replay', 'a', '--speed', '2', '--fast'], 'only one of --rate, --speed and --fast'),
    (['replay', 'a', '--name', 'a b'], '--name takes'),
    *((['replay', 'a', '--slots', value], '--slots takes') for value in ('1', '65537', '2x')),
    *((['replay', 'a', '--subscribers', value], '--subscribers takes') for value in ('0', '257', '-1')),
])
def test_wrong_usage(arguments, text):
    assert text in run(*arguments, expect=2).stderr


@pytest.mark.parametrize('arguments', [
    *((option, value) for option in ('--rate', '--speed') for value in ('0.000001', '1e6')), ('--name', 'a' * 63),
    ('--slots', '2'), ('--slots', '65536'), ('--subscribers', '1'), ('--subscribers', '256'), ('--fast', '--name', 'b'),
])
def test_least_and_most_values_of_replay(arguments):
    assert run_json('replay', SAMPLE, '--info', *arguments)['frames'] == 3
