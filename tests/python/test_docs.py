# SPDX-License-Identifier: BSD-2-Clause
"""Examples of docs/python.md, and the texts of help()."""
import inspect
import pathlib
import re

import peerlane as pl
import pytest
from peerlane import aio

TEXT = (pathlib.Path(__file__).parents[2] / 'docs/python.md').read_text()
EXAMPLES = re.findall(r'^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```', TEXT, re.M | re.S)


def test_the_page_has_examples():
    assert len(EXAMPLES) == TEXT.count('```python') == 9


@pytest.mark.parametrize('name, code', EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_run(name, code):
    exec(compile(code, f'docs/python.md: {name}', 'exec'), {'__name__': 'example'})


@pytest.mark.parametrize('kind', [pl.Context, pl.Region, pl.Remote, pl.RemoteSet, pl.Listener, pl.Peer, pl.Operation,
                                  pl.Receipt, pl.Publisher, pl.Subscriber, pl.Frame, pl.Layout, pl.Group, pl.Rendezvous, aio.Context, aio.Subscriber, aio.Peer, aio.Listener])
def test_public_names_have_texts_and_signatures(kind):
    assert kind.__doc__
    for name, member in inspect.getmembers(kind):
        if name.startswith('_'):
            continue
        assert member.__doc__, f'{kind.__name__}.{name}'
        if callable(member):
            inspect.signature(member)
