# SPDX-License-Identifier: BSD-2-Clause
"""Commands of two processes over the verbs fabric, with the stand-in card, whose cable is a folder."""
import json
import os

import pytest
from cli_support import PEERLANE, content, cut_transfer, run, run_json, serving, start, write

CARD = os.path.join(os.path.dirname(os.path.abspath(PEERLANE)), 'tests', 'card')
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(CARD, 'libcard_file.so')), reason='no stand-in card')


@pytest.fixture(params=['cx7-roce', 'cx7-ib', 'e810', 'mlx4'])
def card(request, tmp_path):
    """Variables of a process with that card."""
    (tmp_path / 'cable').mkdir()
    return {'STANDIN_CARD': request.param, 'STANDIN_CABLE': str(tmp_path / 'cable'), 'LD_LIBRARY_PATH': CARD,
            'LD_PRELOAD': os.path.join(CARD, 'libcard_file.so')}


def test_files_move_over_the_card(tmp_path, card):
    big, small = content(5 * MIB + 17, 1), content(900, 2)
    write(tmp_path / 'pub/big', big)
    write(tmp_path / 'pub/small', small)
    (tmp_path / 'out').mkdir()
    (tmp_path / 'in').mkdir()
    with serving(tmp_path / 'pub', '--upload', tmp_path / 'in', '--sandbox', 'off', **card) as server:
        client = ['--fabric', 'verbs']
        got = run_json('get', '--verify', *client, server.address, 'big', 'small', '-o', tmp_path / 'out', **card)
        assert {file['fabric'] for file in got['files']} == {'verbs'}, got
        run('put', *client, '--verify', server.address, tmp_path / 'pub/big', **card)
    assert (tmp_path / 'out/big').read_bytes() == (tmp_path / 'in/big').read_bytes() == big
    assert (tmp_path / 'out/small').read_bytes() == small
    # No process is left on the cable.
    assert os.listdir(tmp_path / 'cable') == ['lock']


def test_a_server_in_its_sandbox_uses_the_card(tmp_path, card):
    data = content(3 * MIB + 5, 4)
    write(tmp_path / 'pub/model', data)
    for folder in 'out', 'in':
        (tmp_path / folder).mkdir()
    # The stand-in's socket exists before the sandbox, as the files of a kernel's card do.
    early = {**card, 'STANDIN_EARLY': '1'}
    with serving(tmp_path / 'pub', '--upload', tmp_path / 'in', '--json', **early) as server:
        if not json.loads(server.first)['sandbox']:
            pytest.skip('the kernel has no Landlock')
        got = run_json('get', '--fabric', 'verbs', '--verify', server.address, 'model', '-o', tmp_path / 'out', **card)
        assert got['files'][0]['fabric'] == 'verbs', got
        run('put', '--fabric', 'verbs', '--verify', server.address, tmp_path / 'pub/model', **card)
    assert (tmp_path / 'out/model').read_bytes() == (tmp_path / 'in/model').read_bytes() == data


def test_a_killed_client_goes_on(tmp_path, card):
    data = content(24 * MIB, 3)
    write(tmp_path / 'pub/model', data)
    (tmp_path / 'out').mkdir()
    get = ['get', '--fabric', 'verbs', '-o', tmp_path / 'out']
    with serving(tmp_path / 'pub', '--sandbox', 'off', **card) as server:
        kept = cut_transfer(tmp_path / 'out/.model.part', len(data), lambda: start(*get, server.address, 'model', **card))
        done = run_json(*get, server.address, 'model', **card)
    assert done['files'][0]['resumed'] >= kept and done['files'][0]['fabric'] == 'verbs'
    assert (tmp_path / 'out/model').read_bytes() == data
