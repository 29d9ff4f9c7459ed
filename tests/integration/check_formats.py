# SPDX-License-Identifier: BSD-2-Clause
"""Parsers of the formats of `peerlane check`; each checks the rules of its readers."""
import json
import pathlib
import re

import jsonschema
from cli_support import run
from prometheus_client.parser import text_string_to_metric_families

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / 'docs/check.schema.json').read_text())
LINE = re.compile(r'(?P<host>\S+) (?P<status>OK|UNKNOWN|WARN|FAIL) (?P<check>[a-z0-9-]+) (?P<text>[^|]*) \| '
                  r'fail=(?P<fail>\d+) warn=(?P<warn>\d+) unknown=(?P<unknown>\d+) accepted=(?P<accepted>\d+)( ids=(?P<ids>[a-z0-9,-]+))?\n')
STATES = ['OK', 'WARNING', 'CRITICAL', 'UNKNOWN']
VALUE = r"[a-z]+=(-?[0-9.]+)(s|%|B|c)?(;[0-9.:@~-]*){0,4}"


def schema_errors(document):
    return [f'{list(error.path)}: {error.message}' for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)]


def document(folder, *arguments):
    return json.loads(run('check', '--sysroot', folder, '--json', *arguments, expect=None).stdout)


def show(folder, form, *arguments, **options):
    return run('check', '--sysroot', folder, '--host', 'gpu017', '--format', form, *arguments,
               **{'expect': None, **options})


def metrics(text):
    """Parses text as Prometheus does: name and labels of each sample, and its value."""
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type == 'gauge', family
        for sample in family.samples:
            assert sample.timestamp is None
            key = sample.name.removeprefix('peerlane_'), *sorted(sample.labels.items())
            assert key not in samples and sample.name.startswith('peerlane_'), key
            samples[key] = sample.value
    return samples


def nagios(done):
    """Checks the rules of the plugin guidelines; returns text and performance data."""
    first, *rest = done.stdout.splitlines()
    head, _, data = first.partition(' | ')
    assert done.stderr == '' and len(head) < 80, head
    state = re.fullmatch(r'PEERLANE (OK|WARNING|CRITICAL|UNKNOWN) - \S.*', head)[1]
    assert done.returncode == STATES.index(state)
    assert all(re.fullmatch(VALUE, value) for value in data.split()) and not any('|' in line for line in rest)
    return head, dict(value.split('=', 1) for value in data.split()), rest
