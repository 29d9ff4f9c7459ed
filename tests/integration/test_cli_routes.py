# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane routes` without a GPU; tests/vm tests the proofs of transports."""
import copy
import json
import os
import re

import pytest

from cli_support import run, run_json


def leg(rate, reason='bytes verified'):
    return {'proven': rate > 0, 'bytes_per_second': rate, 'reason': reason}


def profile(*rates):
    """Returns a profile of one GPU and card, with rates of the three transports, into the GPU and from it."""
    return {'version': 1, 'proofs': [
        {'gpu': '0000:17:00.0', 'model': 'A GPU', 'device': 'mlx5_0', 'way': way, 'into': leg(into), 'from': leg(out)}
        for way, (into, out) in zip(('dma-buf', 'peer-memory', 'staged'), rates)]}


def saved(folder, content):
    path = folder / 'profile.json'
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding='utf-8')
    return path


@pytest.mark.parametrize('rates, status, ways', [
    (((40e9, 38e9), (0, 0), (20e9, 20e9)), 0, ['dma-buf', 'dma-buf']),
    (((40e9, 4e9), (0, 0), (20e9, 20e9)), 3, ['dma-buf', 'staged']),
    (((0, 0), (30e9, 30e9), (20e9, 20e9)), 0, ['peer-memory', 'peer-memory']),
    (((0, 0), (0, 0), (20e9, 0)), 1, ['staged', None]),
])
def test_replay(tmp_path, rates, status, ways):
    path = saved(tmp_path, profile(*(tuple(map(int, pair)) for pair in rates)))
    found = run_json('routes', '--replay', path, expect=status)
    assert [choice['way'] for choice in found['choices']] == ways
    assert [choice['direction'] for choice in found['choices']] == ['into', 'from']
    # The printed profile can be replayed, and names the hardware.
    found['machine'] = '0' * 32
    for proof in found['proofs']:
        proof.update(driver='CUDA 13000', firmware='28.39')
    assert run_json('routes', '--replay', saved(tmp_path, found), expect=status) == found
    shown = run('routes', '--replay', path, expect=status).stdout
    assert 'mlx5_0' in shown and shown.count('*') == sum(way is not None for way in ways) + 1


def broken():
    good = profile((1, 1), (1, 1), (1, 1))
    yield ''
    yield '[]'
    yield '{"version": 1'
    yield {'version': 2, **{'proofs': good['proofs']}}
    yield {**good, 'proofs': []}
    yield {**good, 'proofs': {}}
    yield {**good, 'proofs': [None]}
    yield {**good, 'machine': 'x' * 33}
    for name in ('driver', 'firmware'):
        for value in (None, 7, 'x' * 1000, {}, []):
            one = copy.deepcopy(good)
            one['proofs'][1][name] = value
            yield one
    for name in ('gpu', 'model', 'device', 'way', 'into', 'from'):
        for value in (None, 7, 'x' * 1000, {}, []):
            one = copy.deepcopy(good)
            one['proofs'][1][name] = value
            yield one
    for name, value in (('proven', 1), ('bytes_per_second', -1), ('bytes_per_second', 0.5), ('reason', 'x' * 1000)):
        one = copy.deepcopy(good)
        one['proofs'][2]['from'][name] = value
        yield one


def test_replay_of_invalid_profiles(tmp_path):
    for content in broken():
        done = run('routes', '--replay', saved(tmp_path, content), expect=1)
        assert 'ROUTES-FILE' in done.stderr and not done.stdout, content
    assert 'ROUTES-FILE' in run('routes', '--replay', tmp_path / 'none', expect=1).stderr


def test_control_characters_are_replaced(tmp_path):
    one = profile((1, 1), (1, 1), (1, 1))
    one['proofs'][0]['device'] = 'mlx5\x1b[2J'
    assert '\x1b' not in run('routes', '--replay', saved(tmp_path, one)).stdout


def test_usage(tmp_path):
    run('routes', 'argument', expect=2)
    run('routes', '--size', '0', expect=2)
    run('routes', '--size', '2G', expect=2)
    run('routes', '--replay', tmp_path / 'a', '--save', tmp_path / 'b', expect=2)


def test_without_a_gpu():
    """Without a GPU or a card, the error has an id."""
    done = run('routes', expect=1, LD_LIBRARY_PATH='')
    assert any(name in done.stderr for name in ('GPU-', 'RDMA-')), done.stderr


# -- the stand-in card and GPU ----------------------------------------------------------------------

BUILD = os.path.dirname(os.path.abspath(os.environ['PEERLANE']))
CARD = os.path.join(BUILD, 'tests', 'card')
# Characters of tests/card/character.c, with the direct way that works with each.
DMABUF = ('cx5-ib', 'cx5-roce', 'cx7-ib', 'cx7-roce', 'cx8-ib', 'cx8-roce', 'cx7-200g', 'cx7-400g', 'cx8-800g', 'cx8-direct', 'ib-vf',
          'ib-routed', 'grace',
          'thor2', 'e810', 'e2000', 'ionic', 'mana', 'small')
STAGED = ('mlx4', 'hns', 'qedr', 'erdma')
REFUSED = ('siw', 'efa')

needs_card = pytest.mark.skipif(not os.path.exists(os.path.join(CARD, 'libibverbs.so.1')), reason='no stand-in card')


def prove(character, **changes):
    """Returns the proofs of all ways, and the chosen way of each direction."""
    libraries = f'{CARD}:{os.path.join(BUILD, "tests")}'
    done = run('routes', '--json', expect=None, LD_LIBRARY_PATH=libraries, STANDIN_CARD=character, **changes)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    return found['proofs'], {choice['direction']: choice['way'] for choice in found['choices']}


def test_characters_are_known():
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'card', 'character.c')
    with open(source, encoding='utf-8') as file:
        names = re.findall(r'\.name = "([^"]+)"', file.read())
    assert sorted(names) == sorted(DMABUF + STAGED + REFUSED)


@needs_card
@pytest.mark.parametrize('character', DMABUF)
def test_card_with_dmabuf(character):
    changes = {'STANDIN_GPU': 'grace'} if character in ('grace', 'cx8-direct') else {}
    proofs, _ = prove(character, **changes)
    for proof in proofs:
        proven = proof['way'] != 'peer-memory'
        assert [proof[leg]['proven'] for leg in ('into', 'from')] == [proven, proven], proof
        direct = character == 'cx8-direct' and proof['way'] == 'dma-buf'
        assert ['Data Direct' in proof[leg]['reason'] for leg in ('into', 'from')] == [direct, direct], proof


@needs_card
@pytest.mark.parametrize('character', STAGED)
def test_card_without_dmabuf(character):
    proofs, choices = prove(character)
    assert choices == {'into': 'staged', 'from': 'staged'}
    for proof in proofs:
        if proof['way'] != 'staged':
            assert not proof['into']['proven'] and not proof['from']['proven'], proof
        if proof['way'] == 'dma-buf':
            assert 'the network device\'s driver takes none' in proof['into']['reason']


@needs_card
@pytest.mark.parametrize('character', REFUSED)
def test_card_without_reliable_connections(character):
    proofs, choices = prove(character)
    assert set(choices.values()) <= {None}
    for proof in proofs:
        for direction in ('into', 'from'):
            reason = proof[direction]['reason']
            assert not proof[direction]['proven'], proof
            assert ('iWARP' if character == 'siw' else 'no reliable connections') in reason, reason


@needs_card
def test_full_bar1():
    proofs, _ = prove('cx7-roce', STANDIN_BAR1='1000')
    reasons = [proof['into']['reason'] for proof in proofs if proof['way'] == 'dma-buf']
    assert reasons and all('BAR1' in reason for reason in reasons), reasons
