# SPDX-License-Identifier: BSD-2-Clause
"""Files of docs/examples for Kubernetes, Slurm and containers: their structure, and the commands in them."""
import contextlib
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
import yaml

from check_machines import ideal
from cli_support import DEADLINE, PEERLANE, environment, free_port, make_key, run

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / 'docs/examples'
VERSIONS = {'Namespace': 'v1', 'Service': 'v1', 'DaemonSet': 'apps/v1', 'Job': 'batch/v1'}

# Names of the members of all objects.
OBJECT = {'apiVersion', 'kind', 'metadata', 'spec'}


def manifests():
    return {path.stem: list(yaml.safe_load_all(path.read_text())) for path in sorted((EXAMPLES / 'kubernetes').glob('*.yaml'))}


def schema_defects(client, value, kind, path):
    """Yields where a value does not have the form of a type of Kubernetes' API, as its Python client describes it."""
    container, _, inner = kind.partition('[' if kind.startswith('list') else '(str, ')
    form = {'list': list, 'dict': dict, 'str': str, 'bool': bool, 'int': int, 'float': float, 'datetime': str}.get(container)
    if kind == 'object':
        return
    if form:
        if not isinstance(value, form) or (container == 'int' and isinstance(value, bool)):
            yield f'{path} is no {kind}'
        elif form is dict:
            for name, item in value.items():
                yield from schema_defects(client, item, inner[:-1], f'{path}.{name}')
        elif form is list:
            for number, item in enumerate(value):
                yield from schema_defects(client, item, inner[:-1], f'{path}.{number}')
        return
    model, members = getattr(client, kind), value if isinstance(value, dict) else {}
    if not isinstance(value, dict):
        yield f'{path} is no {kind}'
    names = {member: name for name, member in model.attribute_map.items()}
    for member in members.keys() - names.keys():
        yield f'{path}: {kind} has no member {member}'
    known = {names[member]: item for member, item in members.items() if member in names}
    try:
        model(**known)
    except ValueError as error:  # a required member, or a value of an enumeration
        yield f'{path}: {error}'
    for name, item in known.items():
        yield from schema_defects(client, item, model.openapi_types[name], f'{path}.{model.attribute_map[name]}')


def container_defects(container, volumes):
    mounted = {mount['name'] for mount in container['volumeMounts']}
    if mounted != volumes:
        yield f'volumes {volumes} and mounts {mounted} differ'
    requests, limits = container['resources']['requests'], container['resources']['limits']
    if requests.keys() != limits.keys() or requests['memory'] != limits['memory']:
        yield 'requests and limits differ'
    devices = [name for name in limits if '/' in name]
    if any(requests.get(name) != limits[name] for name in devices):
        yield 'a device has another request than limit'
    security = container['securityContext']
    if not security['readOnlyRootFilesystem'] or security['runAsUser'] != 0:
        yield 'the container can write to its image, or is not root'
    rights = security.get('capabilities', {})
    if not security.get('privileged') and (security['allowPrivilegeEscalation'] or rights['drop'] != ['ALL'] or
                                           rights['add'] != ['IPC_LOCK'] or not devices):
        yield 'the container needs IPC_LOCK and a device, and nothing else'
    for probe in ('readinessProbe', 'livenessProbe'):
        if probe in container and container[probe]['timeoutSeconds'] != 1:
            yield f'{probe} has another limit than its default'


def workload_defects(document):
    spec = document['spec']
    template = spec['template']
    pod = template['spec']
    labels = template['metadata']['labels']
    if document['kind'] == 'DaemonSet' and not spec['selector']['matchLabels'].items() <= labels.items():
        yield 'the selector does not match the pods'
    if document['kind'] == 'Job':
        away, = pod['affinity']['podAntiAffinity']['requiredDuringSchedulingIgnoredDuringExecution']
        arguments = pod['containers'][0]['args']
        if away['labelSelector']['matchLabels'] != labels or away['topologyKey'] != 'kubernetes.io/hostname':
            yield 'two pods can be on one host'
        if spec['completionMode'] != 'Indexed' or not spec['completions'] == spec['parallelism'] or \
                f'--ranks={spec["completions"]}' not in arguments:
            yield 'the numbers of ranks differ'
        if pod['restartPolicy'] != 'Never':
            yield 'a rank that ended would start again'
    volumes = {volume['name'] for volume in pod['volumes']}
    for container in pod['containers']:
        yield from container_defects(container, volumes)
    for volume in pod['volumes']:
        if 'secret' in volume and volume['secret'] != {'secretName': 'peerlane-key', 'defaultMode': 0o400}:
            yield 'others can read the key'


def defects(documents):
    """Yields what is wrong with the documents of a file."""
    for document in documents:
        kind = document['kind']
        if document['apiVersion'] != VERSIONS[kind] or document.keys() - OBJECT:
            yield f'{kind} has another version or form'
        if kind != 'Namespace' and document['metadata'].get('namespace') != 'peerlane':
            yield f'{kind} has another namespace'
        if kind in ('DaemonSet', 'Job'):
            yield from workload_defects(document)
    for service in (document for document in documents if document['kind'] == 'Service'):
        job, = (document for document in documents if document['kind'] == 'Job')
        pod, name = job['spec']['template'], job['metadata']['name']
        container, = pod['spec']['containers']
        port = service['spec']['ports'][0]['port']
        if service['spec']['selector'] != pod['metadata']['labels'] or container['ports'][0]['containerPort'] != port:
            yield 'the service does not reach the pods'
        if service['metadata']['name'] != pod['spec']['subdomain'] or \
                f'--rendezvous={name}-0.{pod["spec"]["subdomain"]}:{port}' not in container['args']:
            yield 'the ranks do not find rank 0'


def test_manifests_are_sound():
    files = manifests()
    assert list(files) == ['check', 'matrix']
    assert {name: list(defects(documents)) for name, documents in files.items()} == {'check': [], 'matrix': []}


# File, document, path to a member, and its wrong value (None: removed).
WRONG = [
    ('check', 1, 'apiVersion', 'extensions/v1beta1'),
    ('check', 1, 'spec.template.metadata.labels', {'app': 'x'}),
    ('check', 1, 'spec.template.spec.volumes.0.name', 'other'),
    ('check', 1, 'spec.template.spec.containers.0.resources.requests.memory', '1Mi'),
    ('check', 1, 'spec.template.spec.containers.0.readinessProbe.timeoutSeconds', 5),
    ('check', 1, 'spec.template.spec.containers.0.securityContext.privileged', None),
    ('matrix', 0, 'spec.selector', {'app': 'x'}),
    ('matrix', 0, 'spec.ports.0.port', 1),
    ('matrix', 1, 'metadata.namespace', None),
    ('matrix', 1, 'spec.completions', 8),
    ('matrix', 1, 'spec.completionMode', 'NonIndexed'),
    ('matrix', 1, 'spec.template.spec.subdomain', 'other'),
    ('matrix', 1, 'spec.template.spec.containers.0.resources.requests.rdma/hca_shared_devices_a', '2'),
    ('matrix', 1, 'spec.template.spec.containers.0.securityContext.capabilities.add', ['SYS_ADMIN']),
    ('matrix', 1, 'spec.template.spec.volumes.0.secret.defaultMode', 0o644),
]


@pytest.mark.parametrize('file', ['check', 'matrix'])
def test_manifests_have_the_form_of_the_api(file):
    """Members, types, required members and enumerations are those of Debian's client of Kubernetes' API."""
    client = pytest.importorskip('kubernetes.client', reason='python3-kubernetes is not installed')

    def found(documents):
        return [defect for document in documents for defect in schema_defects(client, document, f'V1{document["kind"]}', document['kind'])]

    documents = manifests()[file]
    assert found(documents) == []
    spec = documents[1]['spec']['template']['spec']
    for change in ({'readinessprobe': {}}, {'terminationGracePeriodSeconds': '5'}, {'containers': [{'image': 'x'}]},
                   {'containers': [{**spec['containers'][0], 'env': {}}]}, {'nodeSelector': {'a': True}}):
        wrong = copy.deepcopy(documents)
        wrong[1]['spec']['template']['spec'].update(change)
        assert len(found(wrong)) == 1, change


@pytest.mark.parametrize('file,document,path,value', WRONG, ids=lambda value: value if isinstance(value, str) else '')
def test_defects_of_manifests_are_found(file, document, path, value):
    documents = copy.deepcopy(manifests()[file])
    at = documents[document]
    *folders, last = re.sub(r'rdma/.*', 'DEVICE', path).split('.')
    last = path[path.index('rdma/'):] if last == 'DEVICE' else last
    for name in folders:
        at = at[int(name) if name.isdigit() else name]
    if value is None:
        del at[last]
    else:
        at[int(last) if last.isdigit() else last] = value
    try:
        found = list(defects(documents))
    except KeyError as missing:
        found = [missing]
    assert found


# -- commands ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path):
    """Results of a good and of a bad machine, and an old one of the bad machine; the command is in the search path."""
    ideal().write(tmp_path / 'machine')
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin/peerlane').symlink_to(PEERLANE)
    for name, options in (('good', ()), ('bad', ('--expect', 'gpus=9'))):
        run('check', '--sysroot', tmp_path / 'machine', *options, '--format', 'prometheus', '-o', tmp_path / f'{name}.prom')
    text = re.sub(r'(timestamp_seconds) [\d.]+\n', rf'\1 {time.time() - 3600:.3f}\n', (tmp_path / 'bad.prom').read_text())
    (tmp_path / 'old.prom').write_text(text)
    return tmp_path


def status(results, words, **variables):
    path = f'{results}/bin:{environment()["PATH"]}'
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE,
                          env=environment(PATH=path, **variables)).returncode


def test_probes_tell_failed_checks_from_old_ones(results):
    container, = manifests()['check'][1]['spec']['template']['spec']['containers']

    def probe(name):
        words = container[name]['exec']['command']
        return [status(results, [word.replace('/textfile/peerlane', f'{results}/{file}') for word in words])
                for file in ('good', 'bad', 'old', 'none')]

    assert probe('readinessProbe') == [0, 1, 2, 2]
    assert probe('livenessProbe') == [0, 0, 1, 1]


def test_the_container_writes_metrics_until_it_is_stopped(results):
    container, = manifests()['check'][1]['spec']['template']['spec']['containers']
    assert container['command'][:2] == ['/bin/sh', '-c']
    script = container['command'][2].replace('/textfile', str(results / 'written'))
    (results / 'written').mkdir()
    process = subprocess.Popen(['sh', '-c', script], env=environment(PATH=f'{results}/bin:{environment()["PATH"]}'),
                               start_new_session=True)
    try:
        end = time.monotonic() + DEADLINE
        while not (results / 'written/peerlane.prom').exists() and time.monotonic() < end:
            time.sleep(0.02)
        words = ['peerlane', 'check', '--cached', results / 'written/peerlane.prom', '--fail-on', 'fail']
        assert status(results, words) in (0, 1)
        process.terminate()
        assert process.wait(DEADLINE) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a sleep is left
        process.wait()


def test_the_prolog_drains_hosts_that_fail(results):
    prolog = EXAMPLES / 'slurm/prolog.sh'
    assert [status(results, [prolog], PEERLANE_TEXTFILE=str(results / f'{file}.prom'))
            for file in ('good', 'bad', 'old', 'none')] == [0, 1, 0, 0]


def test_commands_of_node_health_check(results):
    lines = [line.partition(' peerlane ')[2] for line in (EXAMPLES / 'slurm/nhc.conf').read_text().splitlines()
             if 'check_cmd_status' in line]
    assert len(lines) == 2
    cached, now = (line.split() for line in lines)
    for file, expected in ('good', 0), ('bad', 1), ('old', 2):
        words = [str(results / f'{file}.prom') if word.endswith('.prom') else word for word in cached]
        assert status(results, ['peerlane', *words]) == expected
    assert status(results, ['peerlane', *now, '--sysroot', results / 'machine']) == 0


@pytest.mark.skipif('--rendezvous' not in run('bench', '--matrix', '--help', expect=None).stdout,
                    reason='this command has no bench --matrix')
def test_ranks_of_the_job_find_each_other(tmp_path):
    container, = manifests()['matrix'][1]['spec']['template']['spec']['containers']
    meeting, key = f'--rendezvous=127.0.0.1:{free_port()}', make_key(tmp_path)
    ranks = []
    for index in 0, 1:
        words = [{'--ranks=16': '--ranks=2', '--key=/key/key': f'--key={key}', '--host=$(NODE_NAME)': f'--host=node{index}',
                  '--rendezvous=peerlane-matrix-0.peerlane-matrix:19876': meeting}.get(word, word)
                 for word in container['args']]
        ranks.append(subprocess.Popen([PEERLANE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=environment(JOB_COMPLETION_INDEX=str(index))))
    (result, error), _ = [rank.communicate(timeout=DEADLINE) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], error
    assert json.loads(result)['complete'] is True


# -- image ------------------------------------------------------------------------------------------------------------------


def test_the_image_has_rules_of_good_dockerfiles():
    text = re.sub(r'\\\n\s*', '', (EXAMPLES / 'container/Dockerfile').read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith('#')]
    for name, rest in lines:
        assert name in ('FROM', 'RUN', 'WORKDIR', 'COPY', 'USER', 'ENTRYPOINT', 'CMD')
        if name == 'FROM':
            assert re.fullmatch(r'debian:12-slim( AS \w+)?', rest)
        if 'apt-get' in rest:
            assert rest.startswith('apt-get update &&') and rest.endswith('rm -rf /var/lib/apt/lists/*')
        if 'apt-get install' in rest:
            assert '--yes --no-install-recommends' in rest
        if name in ('ENTRYPOINT', 'CMD'):
            assert isinstance(yaml.safe_load(rest), list)
        if name == 'WORKDIR':
            assert rest.startswith('/')
    assert [rest for name, rest in lines if name == 'USER'] == ['65534:65534']
