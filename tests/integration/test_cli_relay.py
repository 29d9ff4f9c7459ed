# SPDX-License-Identifier: BSD-2-Clause
"""relay: frames with their sequences over two levels, gaps, and ends."""
import contextlib
import json
import pathlib
import signal
import time

import pytest
from cli_support import DEADLINE, free_port, run, run_json, start, write
from stream_support import Proxy, Publisher, publishing

FRAME = 1000
PAGE = 4096
# Three frames with the sequences 5, 6 and 9.
RECORDING = pathlib.Path(__file__).parent.parent / 'fuzz/corpus/recording/whole'


def frame(i):
    return bytes([i % 256]) * FRAME


def fed(*arguments, **options):
    return publishing('--from', '-', '--frame-bytes', FRAME, *arguments, **options)


@contextlib.contextmanager
def relaying(address, *arguments, listen='127.0.0.1:0'):
    relay = Publisher(command=['relay', address, 'cam0', '--listen', listen, *arguments])
    try:
        yield relay
    finally:
        relay.process.kill()
        relay.process.communicate()


def ended(process, expect=0):
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == expect, (process.returncode, output, errors)
    return output, errors.decode()


def damaged_recording(folder):
    """A recording whose last frame, of sequence 9, is lost in a replay."""
    data = bytearray(RECORDING.read_bytes())
    last = [at for at in range(0, len(data), PAGE) if data[at:at + 8] == b'PLFRAME1'][2]
    data[last + PAGE] ^= 1
    return write(folder / 'run', data)


HOLD = ['--allow-block', '--patience', 'never']
HELD = ['--overflow', 'block']


@pytest.mark.parametrize('push', [[], ['--push']], ids=['pull', 'push'])
def test_two_levels_of_relays_lose_nothing(push):
    with publishing('--count', '60', '--rate', '0', '--dtype', 'u8', '--shape', '3001', '--subscribers', '2', '--slots', '4', *HOLD) as publisher:
        with relaying(publisher.address, *HELD, *HOLD, *push, '--json') as first:
            with relaying(first.address, *HELD, *HOLD, *push) as second:
                process = start('subscribe', second.address, 'cam0', *HELD, '--verify', '--lossless', '--json')
                second.wait_for('subscribers', 1)
                stream = second.look()
                assert (stream['shape'], stream['slots'], stream['content_type']) == ([3001], 4, 'application/x-peerlane-test')
                # The second subscriber of the publisher lets it begin.
                run('subscribe', publisher.address, 'cam0', *HELD, '--verify')
                got = json.loads(ended(process)[0])
                assert second.finish()[0].splitlines()[-2].endswith('; subscribers 1, demoted 0')
            totals = first.finish_json()
        publisher.finish()
    assert (got['frames'], got['lost'], got['verified'], got['end']) == (60, 0, True, 'ended')
    assert (totals['frames'], totals['lost'], totals['event'], totals['unreported']) == (60, 0, 'ended', 0)
    assert [one['accounts']['delivered'] for one in totals['subscribers']] == [60]


def test_sequences_times_and_properties_are_kept():
    with fed('--slots', '4') as publisher:
        publisher.feed(b''.join(map(frame, range(10))))
        publisher.wait_for('published', 10)
        captured = time.time_ns()
        time.sleep(0.2)  # a relay that gives frames new times is noticed
        with relaying(publisher.address, '--start', 'history:3', '--slots', '9', '--name', 'again') as relay:
            relay.wait_for('published', 10)
            stream = relay.look()
            assert (stream['name'], stream['slots']) == ('again', 9) and stream['instance'] != publisher.look()['instance']
            asked = time.time_ns()
            got = run_json('subscribe', relay.address, 'again', '--start', 'sequence:5', '--count', '3', '--queue', '8', expect=3)
            assert (got['frames'], got['lost'], got['accounts']['first'], got['accounts']['next']) == (3, 2, 5, 10)
            assert got['latency_ns']['minimum'] > asked - captured
            relay.stop(signal.SIGINT)


def test_metadata_and_layouts_of_frames_are_kept(tmp_path):
    replay = ['replay', RECORDING, '--fast', '--allow-block', '--subscribers', '2']
    with publishing(command=replay) as publisher, relaying(publisher.address, *HELD, *HOLD) as relay:
        process = start('record', relay.address, 'cam0', '--to', tmp_path / 'run', *HELD, '--json')
        relay.wait_for('subscribers', 1)
        # The second subscriber of the replay lets it begin.
        run('subscribe', publisher.address, 'cam0', *HELD)
        assert json.loads(ended(process)[0])['replayed'] == 3
    recorded, again = (path.read_bytes() for path in (RECORDING, tmp_path / 'run'))
    assert again[PAGE:again.index(b'PLINDEX1')] == recorded[PAGE:recorded.index(b'PLINDEX1')]


def test_gap_is_passed_on():
    with fed('--slots', '2', '--fabric', 'tcp') as publisher:
        proxy = Proxy(publisher.address)
        with relaying(proxy.address, '--reconnect', DEADLINE, '--slots', '64', '--json') as relay:
            process = start('subscribe', relay.address, 'cam0', '--queue', '64', '--to', '-')
            relay.wait_for('subscribers', 1)
            publisher.feed(frame(0))
            assert process.stdout.read(FRAME) == frame(0)
            proxy.pause()
            publisher.feed(b''.join(map(frame, range(1, 7))))
            publisher.wait_for('published', 7)
            proxy.resume()
            # The publisher has two slots: frames 1 to 4 are gone.
            assert process.stdout.read(2 * FRAME) == frame(5) + frame(6)
            publisher.finish()
            totals = relay.finish_json(expect=3)
            _, errors = ended(process, expect=3)
        proxy.listener.close()
    assert (totals['frames'], totals['lost'], totals['accounts']['missed'], totals['reconnects']) == (3, 4, 4, 1)
    accounts = totals['subscribers'][0]['accounts']
    assert (accounts['missed'], accounts['aborted'], accounts['delivered']) == (4, 0, 3)
    assert errors.startswith('3 of 7 frames') and 'lapped 0, missed 4' in errors


def test_relay_serves_others_while_it_connects_again(tmp_path):
    with open(tmp_path / 'errors', 'wb') as errors, fed() as publisher:
        relay = Publisher(command=['relay', publisher.address, 'cam0', '--listen', '127.0.0.1:0', '--reconnect', 10 * DEADLINE,
                                   '--share', tmp_path / 'token'], stderr=errors)
        try:
            publisher.wait_for('subscribers', 1)
            publisher.process.kill()
            end = time.monotonic() + DEADLINE
            # A relay that handles the end of a connection tells of its refusals. The first can come before the loss.
            while (tmp_path / 'errors').read_text().count('subscribe: ') < 3:
                assert time.monotonic() < end
                run('subscribe', relay.address, 'cam0', expect=1)
        finally:
            relay.process.kill()
            relay.process.communicate()


def test_sequences_behind_the_last_frame_are_passed_on(tmp_path):
    replay = Publisher(command=['replay', damaged_recording(tmp_path), '--fast', '--allow-block', '--subscribers', '2'])
    with relaying(replay.address, *HELD, *HOLD, '--json') as relay:
        process = start('subscribe', relay.address, 'cam0', *HELD, '--json')
        relay.wait_for('subscribers', 1)
        # The second subscriber of the replay lets it begin.
        run('subscribe', replay.address, 'cam0', *HELD, expect=3)
        got = json.loads(ended(process, expect=3)[0])
        totals = relay.finish_json(expect=3)
    replay.finish(expect=1)
    for accounts in (got['accounts'], totals['accounts'], totals['subscribers'][0]['accounts']):
        assert (accounts['next'], accounts['aborted'], accounts['missed'], accounts['delivered']) == (10, 2, 1, 2)


def test_one_signal_ends_the_wait_behind_the_last_frame(tmp_path):
    replay = ['replay', damaged_recording(tmp_path), '--fast', '--allow-block', '--subscribers', '2']
    # The frames 5 and 6 and the lost sequence 7 fill the ring, so the relay waits with 8 and 9 for the stopped subscriber.
    with publishing(command=replay) as publisher, \
            relaying(publisher.address, *HELD, *HOLD, '--slots', '3', '--timeout', 100 * DEADLINE, '--json') as relay:
        process = start('subscribe', relay.address, 'cam0', *HELD)
        try:
            relay.wait_for('subscribers', 1)
            process.send_signal(signal.SIGSTOP)
            # The second subscriber of the replay lets it begin.
            run('subscribe', publisher.address, 'cam0', *HELD, expect=3)
            publisher.finish(expect=1)
            relay.wait_for('published', 8)
            output, errors = relay.stop(signal.SIGINT, expect=3)
        finally:
            process.kill()
            process.communicate()
    assert json.loads(output.splitlines()[-1])['unreported'] == 1
    assert '1 subscriber has not taken all frames' in errors


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_relayed_stream(how):
    with fed() as publisher, relaying(publisher.address) as relay:
        process = start('subscribe', relay.address, 'cam0', '--json')
        relay.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        relay.wait_for('published', 1)
        output, _ = relay.stop(how)
        assert output.splitlines()[-2].startswith('1 of 1 frame, 1.00 kB')
        assert json.loads(ended(process)[0])['end'] == 'ended'


def test_killed_publisher_fails_the_relay_and_its_subscribers():
    with fed() as publisher, relaying(publisher.address) as relay:
        process = start('subscribe', relay.address, 'cam0', '--to', '-')
        relay.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        assert process.stdout.read(FRAME) == frame(0)
        publisher.process.kill()
        _, errors = relay.finish(expect=1)
        assert '[PEER-LOST]' in errors and '--reconnect' in errors
        assert 'peerlane: ' in ended(process, expect=1)[1]


def test_publisher_that_was_started_again_ends_the_relay():
    listen = f'127.0.0.1:{free_port()}'
    with fed(listen=listen) as publisher:
        relay = Publisher(command=['relay', listen, 'cam0', '--listen', '127.0.0.1:0', '--reconnect', DEADLINE])
        publisher.wait_for('subscribers', 1)
    with fed(listen=listen):
        _, errors = relay.finish(expect=1)
    assert '[STREAM-RESTARTED]' in errors and 'hint: start the relay again' in errors


def test_wrong_usage():
    for arguments, text in [([], 'ADDRESS'), (['a'], '`peerlane streams a`'), (['a', 'b/c'], 'characters'), (['a', 'b', 'c'], 'only an'),
                            *[(['a', 'b', *words], f'{words[0]} takes') for words in
                              [['--name', 'b c'], ['--slots', '1'], ['--slots', '65537'], ['--patience', '0'], ['--start', 'x'],
                               ['--overflow', 'x'], ['--queue', '0'], ['--queue', '4097'], ['--reconnect', '0'], ['--reconnect', 'x'],
                               ['--memory-limit', '0'], ['--memory-limit', 'x']]],
                            (['a', 'b', '--patience', '1'], 'needs --allow-block')]:
        done = run('relay', *arguments, expect=2)
        assert text in ' '.join(done.stderr.split()), (arguments, done.stderr)
    with fed() as publisher:
        assert '[STREAM-UNKNOWN]' in run('relay', publisher.address, 'cam1', expect=1).stderr
        for words in (['--slots', '2'], ['--slots', '65536'], ['--queue', '1'], ['--queue', '4096'], ['--name', 'a' * 63],
                      ['--memory-limit', '1'], ['--memory-limit', str(2**64 - 1)], ['--start', 'sequence:0'],
                      ['--overflow', 'block'], ['--allow-block'], ['--allow-block', '--patience', 'never']):
            assert '[STREAM-UNKNOWN]' in run('relay', publisher.address, 'cam1', *words, expect=1).stderr, words
