# SPDX-License-Identifier: BSD-2-Clause
"""Keys: authentication, encryption, and key files."""
import pytest
from cli_support import content, make_key, run, run_json, serving, write


RANDOM = b'V0hGq3vN1xT7+dKpLz9sYw=='


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / 'pub/data', content(300000))


def test_both_ends_need_the_same_key(data, tmp_path):
    key = make_key(tmp_path)
    other = make_key(tmp_path, 'other', b'fedcba9876543210fedcba9876543210')
    with serving(data, '--key', key) as server:
        assert run_json('list', server.address, '--key', key)['authenticated'] is True
        for options in [['--key', other], []]:
            error = run('list', server.address, *options, expect=1).stderr
            assert 'AUTH-' in error and 'hint: ' in error
        run('list', server.address, '--key', key)
    with serving(data) as server:
        assert 'AUTH-' in run('list', server.address, '--key', key, expect=1).stderr


def test_the_key_file_can_be_named_in_the_environment(data, tmp_path):
    key = str(make_key(tmp_path))
    with serving(data, PEERLANE_KEY_FILE=key) as server:
        assert run_json('list', server.address, PEERLANE_KEY_FILE=key)['authenticated'] is True
        # The option overrides the environment.
        run('list', server.address, '--key', make_key(tmp_path, 'other', b'x' * 16), expect=1, PEERLANE_KEY_FILE=key)
    with serving(data, PEERLANE_KEY_FILE='') as server:
        run('list', server.address)


def test_data_is_encrypted_if_either_end_asks(data, tmp_path):
    key = make_key(tmp_path)
    for at_server, at_client in [(['--encrypt'], []), ([], ['--encrypt'])]:
        with serving(data, '--key', key, *at_server) as server:
            result = run_json('get', server.address, 'data', '-o', tmp_path / 'out', '--verify', '--key', key, *at_client)
            assert result['encrypted'] is True and (tmp_path / 'out').read_bytes() == data.read_bytes()
            (tmp_path / 'out').unlink()
    with serving(data, '--key', key) as server:
        assert run_json('get', server.address, 'data', '-o', tmp_path / 'out', '--key', key)['encrypted'] is False


def test_encryption_needs_a_key(data):
    assert 'ENCRYPT-NO-KEY' in run('serve', data, '--encrypt', expect=1).stderr


@pytest.mark.parametrize('mode', [0o604, 0o602, 0o620, 0o660])
def test_a_key_file_that_other_users_can_access_is_refused(data, tmp_path, mode):
    key = make_key(tmp_path)
    key.chmod(mode)
    # The hint names a short path only.
    error = run('serve', data, '--key', key.name, cwd=tmp_path, expect=1).stderr
    assert 'KEY-FILE-OPEN' in error and f'`chmod {"go"[mode & 7 > 0]}= {key.name}`' in error


def test_a_key_file_of_the_wrong_size_is_refused(data, tmp_path):
    for content_of in [b'', b'x' * 15, b'x' * 15 + b'\n', b'x' * 1025, b'x' * 5000]:
        error = run('list', '127.0.0.1', '--key', make_key(tmp_path, 'bad', content_of), expect=1).stderr
        assert 'KEY-FILE-LENGTH' in error and 'peerlane key group' in error
    assert 'KEY-FILE-MISSING' in run('list', '127.0.0.1', '--key', tmp_path / 'none', expect=1).stderr


def test_a_newline_at_the_end_is_ignored(data, tmp_path):
    with serving(data, '--key', make_key(tmp_path, 'one', RANDOM)) as server:
        run('list', server.address, '--key', make_key(tmp_path, 'two', RANDOM + b'\n'))


@pytest.mark.parametrize('text', [b'correct horse battery staple', b'Tr0ub4dor&3 and more words', b'0123456789abcdef',
                                  b'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', b'thisisalongpassphrase', b'Password123456789'])
def test_a_key_that_can_be_guessed_is_refused(data, tmp_path, text):
    error = run('serve', data, '--key', make_key(tmp_path, 'weak', text), expect=1).stderr
    assert 'KEY-FILE-WEAK' in error and 'peerlane key group' in error


@pytest.mark.parametrize('key', [RANDOM, RANDOM + b'\n', bytes(range(128, 144)), b'0f' * 4 + b'9a3c5e7b1d2f4068' * 2])
def test_random_keys_are_accepted(data, tmp_path, key):
    with serving(data, '--key', make_key(tmp_path, 'good', key)) as server:
        run('list', server.address, '--key', tmp_path / 'good')


def test_the_server_leaves_no_core_dump(data, tmp_path):
    with serving(data) as server:
        with open(f'/proc/{server.process.pid}/limits', encoding='ascii') as limits:
            assert any(line.startswith('Max core file size') and line.split()[4] == '0' for line in limits)
