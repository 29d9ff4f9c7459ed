# SPDX-License-Identifier: BSD-2-Clause
"""publish --share and --token: token files, hidden streams, relays, recordings, and ends of tokens."""
import os
import stat

import pytest
from cli_support import DEADLINE, free_port, run, run_json, start
from stream_support import Publisher, publishing

FRAME = 1000


def frame(i):
    return bytes([i % 256]) * FRAME


class Shared(Publisher):
    """A publisher that looks at its stream with its token."""

    def __init__(self, token, *arguments, **options):
        self.token = token
        super().__init__('--share', token, *arguments, **options)

    def look(self):
        (stream,) = run_json('streams', self.address, '--interval', '0', '--token', self.token)['streams']
        return stream

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.process.kill()
        self.process.communicate()


def sharing(token, *arguments, **options):
    return Shared(token, '--from', '-', '--frame-bytes', FRAME, *arguments, **options)


def ended(process, expect=0):
    output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == expect, (process.returncode, output, errors)
    return output, errors.decode()


def warned(publisher, text):
    """Waits until the publisher has warned of something. Returns the line."""
    for line in iter(publisher.process.stderr.readline, b''):
        if text in line.decode():
            return line.decode()
    raise AssertionError(f'the publisher ended without {text!r}')


def test_token_file_admits(tmp_path):
    token = tmp_path / 'cam0.token'
    token.write_text('an earlier one\n')
    token.chmod(0o644)
    with sharing(token) as publisher:
        assert stat.S_IMODE(os.stat(token).st_mode) == 0o600 and len(token.read_text()) == 2 * 68 + 1
        assert run_json('streams', publisher.address, '--interval', '0')['streams'] == []
        assert publisher.look()['needs_token'] is True
        done = run('subscribe', publisher.address, 'cam0', expect=1)
        assert '[STREAM-TOKEN-NEEDED]' in done.stderr and '--token FILE' in done.stderr
        assert '(1 time)' in warned(publisher, 'subscribe: the stream needs a token')
        process = start('subscribe', publisher.address, 'cam0', '--token', token, '--to', '-')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        assert process.stdout.read(FRAME) == frame(0)
        publisher.finish()
        assert ended(process)[1].startswith('1 of 1 frame,')


def test_failing_start_leaves_the_token_of_the_running_publisher(tmp_path):
    token, recorded = tmp_path / 'cam0', tmp_path / 'recording'
    with sharing(token) as publisher:
        process = start('record', publisher.address, 'cam0', '--to', recorded, '--token', token)
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0))
        before = token.read_text()
        for command in (['publish', '--name', 'cam0', '--from', '/dev/null', '--frame-bytes', FRAME],
                        ['relay', publisher.address, 'cam0', '--token', token]):
            done = run(*command, '--share', token, '--listen', publisher.address, expect=1)
            assert '[LISTEN-IN-USE]' in done.stderr
            assert token.read_text() == before
        publisher.finish()
        ended(process)
    with publishing() as other:
        done = run('replay', recorded, '--share', token, '--listen', other.address, expect=1)
        assert '[LISTEN-IN-USE]' in done.stderr and token.read_text() == before


def test_wrong_token_files(tmp_path):
    token, other, copy = tmp_path / 'cam0', tmp_path / 'other', tmp_path / 'copy'
    with sharing(token) as publisher, sharing(other):
        done = run('subscribe', publisher.address, 'cam0', '--token', other, expect=1)
        assert '[TOKEN-FOREIGN]' in done.stderr and 'publish --share' in done.stderr
        for text in ('', '\n', 'xx\n', token.read_text()[:-3], token.read_text() * 2, token.read_text().upper()):
            copy.write_text(text)
            copy.chmod(0o600)
            for command in (['subscribe', publisher.address, 'cam0'], ['streams', publisher.address],
                            ['record', publisher.address, 'cam0', '--to', tmp_path / 'x'], ['relay', publisher.address, 'cam0']):
                done = run(*command, '--token', copy, expect=1)
                assert '[TOKEN-' in done.stderr and 'publish --share FILE`' in done.stderr, (text, done.stderr)
                assert done.stderr.splitlines()[-2].startswith(f'peerlane: {copy}: '), (text, done.stderr)
        copy.write_text(token.read_text())
        copy.chmod(0o640)
        done = run('subscribe', publisher.address, 'cam0', '--token', copy, expect=1)
        assert '[TOKEN-FILE-OPEN]' in done.stderr and 'chmod go=' in done.stderr
        assert run('streams', publisher.address, '--token', tmp_path / 'none', expect=1).stderr
    done = run('publish', '--name', 'x', '--listen', '127.0.0.1:0', '--share', tmp_path / 'no' / 'folder', expect=1)
    assert 'open: No such file or directory [TOKEN-FILE]' in done.stderr and 'create the folder first' in done.stderr


def test_relay_has_a_token_of_its_own(tmp_path):
    upstream, downstream = tmp_path / 'upstream', tmp_path / 'downstream'
    with sharing(upstream) as publisher:
        run('relay', publisher.address, 'cam0', '--listen', '127.0.0.1:0', expect=1)
        with Shared(downstream, '--token', upstream, command=['relay', publisher.address, 'cam0']) as relay:
            publisher.wait_for('subscribers', 1)
            done = run('subscribe', relay.address, 'cam0', '--token', upstream, expect=1)
            assert '[TOKEN-FOREIGN]' in done.stderr
            process = start('subscribe', relay.address, 'cam0', '--token', downstream, '--to', '-')
            relay.wait_for('subscribers', 1)
            publisher.feed(frame(3))
            assert process.stdout.read(FRAME) == frame(3)
            publisher.finish()
            relay.finish()
            assert ended(process)[1].startswith('1 of 1 frame,')


def memory_has(process, content):
    """Returns True if a writable mapping of a process contains the bytes."""
    with open(f'/proc/{process.pid}/maps') as maps, open(f'/proc/{process.pid}/mem', 'rb', buffering=0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            begin, end = (int(number, 16) for number in span.split('-'))
            # Larger ones are those of sanitizers, without data of the program.
            if not rights.startswith('rw') or end - begin > 1 << 30:
                continue
            try:
                if content in os.pread(memory.fileno(), end - begin, begin):
                    return True
            except OSError:  # a mapping that has ended, or cannot be read
                pass
    return False


def test_token_of_a_file_does_not_stay_in_memory(tmp_path):
    path = tmp_path / 'token'
    with sharing(path) as publisher:
        process = start('subscribe', publisher.address, 'cam0', '--token', path, '--to', '-')
        publisher.wait_for('subscribers', 1)
        # The subscriber has left its start behind when it has written a frame.
        publisher.feed(frame(0))
        assert process.stdout.read(FRAME) == frame(0)
        digits = path.read_text().strip()
        for one in (publisher.process, process):
            assert memory_has(one, b'cam0')
            assert not memory_has(one, digits.encode()) and not memory_has(one, bytes.fromhex(digits))
        publisher.finish()
        ended(process)


def test_recording_and_its_replay(tmp_path):
    token, again, recording = tmp_path / 'token', tmp_path / 'again', tmp_path / 'run.plrec'
    with sharing(token) as publisher:
        process = start('record', publisher.address, 'cam0', '--token', token, '--to', recording)
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(0) + frame(1))
        publisher.finish()
        ended(process)
    with Shared(again, '--fast', '--subscribers', '1', command=['replay', recording]) as replay:
        done = run('subscribe', replay.address, 'cam0', expect=1)
        assert '[STREAM-TOKEN-NEEDED]' in done.stderr
        process = start('subscribe', replay.address, 'cam0', '--token', again, '--to', '-')
        assert ended(process)[0] == frame(0) + frame(1)
        replay.finish()


def test_token_that_ends(tmp_path):
    """The stream goes on; the subscriber fails with the reason when the token has expired, or was not admitted any more."""
    token = tmp_path / 'token'
    with sharing(token, '--lifetime', '3') as publisher:
        done = run('subscribe', publisher.address, 'cam0', '--token', token, expect=1)
        assert '[STREAM-TOKEN-EXPIRED]' in done.stderr and 'publish --share' in done.stderr
        assert publisher.process.poll() is None
        done = run('subscribe', publisher.address, 'cam0', '--token', token, expect=1)
        assert '[STREAM-TOKEN-EXPIRED]' in done.stderr


def test_reconnect_reads_the_token_again(tmp_path):
    token, listen = tmp_path / 'token', f'127.0.0.1:{free_port()}'
    with sharing(token, listen=listen) as publisher:
        process = start('subscribe', listen, 'cam0', '--token', token, '--reconnect', DEADLINE, '--to', '-')
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(7))
        assert process.stdout.read(FRAME) == frame(7)
    with sharing(token, listen=listen) as publisher:
        publisher.wait_for('subscribers', 1)
        publisher.feed(frame(8))
        assert process.stdout.read(FRAME) == frame(8)
        publisher.finish()
    _, errors = ended(process, expect=3)
    assert errors.splitlines()[2].startswith('2 of 2 frames') and 'restarts of the publisher 1' in errors


@pytest.mark.parametrize('arguments,text', [
    (['publish', '--name', 'x', '--lifetime', '5'], '--lifetime needs --share'),
    (['publish', '--name', 'x', '--share', 'f', '--lifetime', '0'], '--lifetime takes seconds'),
    (['relay', 'a', 'b', '--lifetime', '5'], '--lifetime needs --share'),
    (['replay', 'a', '--share', 'f', '--lifetime', 'x'], '--lifetime takes seconds'),
])
def test_wrong_usage(arguments, text):
    done = run(*arguments, expect=2)
    assert text in ' '.join(done.stderr.split()) and not done.stdout
