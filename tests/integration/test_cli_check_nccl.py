# SPDX-License-Identifier: BSD-2-Clause
"""`peerlane check` on NCCL: plugins that are loaded on this machine, the network that NCCL chooses, variables and files."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import check_machines as machines
import pytest
from check_machines import ideal, old, with_nccl
from cli_support import DEADLINE, environment, run

PLUGINS = pathlib.Path(os.environ.get('CHECK_PLUGINS', pathlib.Path(os.environ['PEERLANE']).parent / 'tests/nccl/plugins'))
OWN = pathlib.Path(os.environ['PEERLANE']).parent / 'plugins/nccl/libnccl-net-peerlane.so'
MULTIARCH = 'usr/lib/x86_64-linux-gnu'
VARIABLES = ['NCCL_NET', 'NCCL_NET_PLUGIN', 'NCCL_NET_PLUGIN_REF_COUNT', 'NCCL_IB_DISABLE', 'NCCL_NET_GDR_LEVEL',
             'NCCL_NET_GDR_READ', 'NCCL_DMABUF_ENABLE', 'NCCL_SOCKET_IFNAME', 'NCCL_CONF_FILE']


@pytest.fixture(autouse=True)
def no_variables(monkeypatch, tmp_path):
    """Neither the environment nor the user's file of the developer counts."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    empty = tmp_path / 'no.conf'
    empty.write_text('')
    monkeypatch.setenv('NCCL_CONF_FILE', str(empty))


def folder_of(tmp_path, **files):
    """A folder for LD_LIBRARY_PATH: file names, with the libraries of the build that they are."""
    folder = tmp_path / 'libraries'
    folder.mkdir(exist_ok=True)
    for name, library in files.items():
        name = {'default': 'libnccl-net.so', 'nccl': 'libnccl.so.2'}.get(name, f'libnccl-net-{name}.so')
        shutil.copy(PLUGINS / f'lib{library}.so', folder / name)
    return folder


def here(folder=None, **variables):
    """Checks this machine; returns the member `nccl` and the rows about NCCL."""
    if folder:
        variables['LD_LIBRARY_PATH'] = str(folder)
    shown = json.loads(run('check', '--json', expect=None, **variables).stdout)
    return shown['nccl'], {row['id']: row for row in shown['checks'] if row['group'] == 'NCCL'}


def texts(row):
    return ' | '.join(f'{one["status"]} {one["object"]}: {one["found"]}' for one in row['findings'])


def plugin_named(nccl, asked):
    return next(one for one in nccl['plugins'] if one['asked'] == asked)


# -- loading on this machine

def test_a_named_plugin_is_loaded(tmp_path):
    folder = folder_of(tmp_path, good='nccl-net-good', nccl='nccl-23004')
    nccl, rows = here(folder, NCCL_NET_PLUGIN='good')
    plugin = plugin_named(nccl, 'good')
    assert plugin == {'asked': 'good', 'reason': 'named', 'file': str(folder / 'libnccl-net-good.so'), 'loads': True,
                      'name': 'Good', 'tables': [9, 11], 'trouble': None}
    assert (nccl['network'], nccl['network_name'], nccl['table'], nccl['release']) == ('plugin', 'Good', 11, '2.30.4')
    assert nccl['libraries'][0] == {'file': str(folder / 'libnccl.so.2'), 'release': '2.30.4'}
    assert 'NCCL_NET_PLUGIN' in nccl['network_reason']
    assert 'named Good, tables v9, v11' in texts(rows['nccl-plugin'])
    assert {row['status'] for row in rows.values()} == {'OK'}, rows


def test_our_plugin_is_loaded():
    if not OWN.exists():
        pytest.skip(f'{OWN} is not built')
    nccl, rows = here(NCCL_NET_PLUGIN=str(OWN), NCCL_NET='peerlane', NCCL_NET_PLUGIN_REF_COUNT='1')
    plugin = plugin_named(nccl, str(OWN))
    assert plugin['loads'] and plugin['name'] == 'Peerlane' and plugin['tables'] == [8, 9, 10, 11, 12]
    assert nccl['network_name'] == 'Peerlane' and rows['nccl-variables']['status'] == 'OK'


@pytest.mark.parametrize('variable, value, found', [
    ('PEERLANE_LANES', '99', 'PEERLANE_LANES=99 is no number from 1 to 16'),
    ('PEERLANE_FABRIC', 'rdma', 'PEERLANE_FABRIC=rdma is no fabric'),
    ('PEERLANE_KEY_FILE', '/nokey', 'PEERLANE_KEY_FILE: /nokey')])
def test_our_plugin_judges_its_variables(variable, value, found):
    """The plugin would not start with a wrong value."""
    if not OWN.exists():
        pytest.skip(f'{OWN} is not built')
    chosen = {'NCCL_NET_PLUGIN': str(OWN), 'NCCL_NET_PLUGIN_REF_COUNT': '1', variable: value}
    nccl, rows = here(**chosen)
    assert nccl['network'] in ('IB', 'socket') and rows['nccl-network']['status'] == 'WARN'
    assert rows['nccl-plugin']['status'] == 'WARN' and found in texts(rows['nccl-plugin'])
    assert rows['nccl-plugin']['remedy'].startswith(f'unset {variable},')
    nccl, rows = here(**chosen, NCCL_NET='Peerlane')
    assert nccl['network'] == 'none' and rows['nccl-network']['status'] == 'FAIL'


def test_a_remedy_names_the_plugin_that_was_found(tmp_path):
    """An installed command lies in PREFIX/bin, and its plugin below PREFIX/lib."""
    if not OWN.exists():
        pytest.skip(f'{OWN} is not built')
    own, wrong = tmp_path / 'lib/x86_64-linux-gnu/libnccl-net-peerlane.so', tmp_path / 'libnccl-net-peerlane.so'
    for path, source in ((own, OWN), (tmp_path / 'bin/peerlane', os.environ['PEERLANE'])):
        path.parent.mkdir(parents=True)
        shutil.copy(source, path)
    library = pathlib.Path(os.environ['PEERLANE']).parent

    def remedies(**variables):
        done = subprocess.run([tmp_path / 'bin/peerlane', 'check', '--json'], capture_output=True, text=True, timeout=DEADLINE,
                              env=environment(LD_LIBRARY_PATH=str(library), **variables))
        return {row['id']: row['remedy'] for row in json.loads(done.stdout)['checks'] if row['group'] == 'NCCL'}

    found = remedies(NCCL_NET_PLUGIN=str(wrong))
    assert found['nccl-plugin'].startswith(f'export NCCL_NET_PLUGIN={own};')
    assert found['nccl-network'].startswith(f'export NCCL_NET=Peerlane NCCL_NET_PLUGIN={own};')
    assert remedies(NCCL_NET='Peerlane')['nccl-network'].endswith(f'NCCL_NET_PLUGIN={own}')


def test_a_folder_of_the_plugins_name_is_passed_over(tmp_path):
    """NCCL tries the second name after any error. The folder of Peerlane's files has the short name of its plugin."""
    folder = folder_of(tmp_path, good='nccl-net-good')
    (folder / 'good').mkdir()
    nccl, rows = here(folder, NCCL_NET_PLUGIN='good')
    assert nccl['network_name'] == 'Good' and rows['nccl-plugin']['status'] == 'OK', rows
    (folder / 'libnccl-net-good.so').unlink()
    assert 'good: cannot read file data: Is a directory' in here(folder, NCCL_NET_PLUGIN='good')[0]['plugins'][0]['trouble']


def test_the_default_plugin_is_loaded(tmp_path):
    folder = folder_of(tmp_path, default='nccl-net-good')
    nccl, _ = here(folder)
    assert nccl['network_name'] == 'Good' and 'default' in nccl['network_reason']
    # A named plugin takes the place of the default, also if it is not there.
    nccl, rows = here(folder, NCCL_NET_PLUGIN='nothing')
    assert nccl['network'] in ('IB', 'socket') and rows['nccl-network']['status'] == 'WARN'
    for value in ('none', 'NONE', ''):
        nccl, rows = here(folder_of(tmp_path, nccl='nccl-22809'), NCCL_NET_PLUGIN=value)
        assert nccl['network'] in ('IB', 'socket') and 'loads no plugin' in texts(rows['nccl-variables']), value


def test_a_list_is_tried_in_order(tmp_path):
    folder = folder_of(tmp_path, good='nccl-net-good', old='nccl-net-old', nccl='nccl-22809')
    nccl, rows = here(folder, NCCL_NET_PLUGIN='nothing,old,good')
    assert nccl['network_name'] == 'Good' and [one['asked'] for one in nccl['plugins']][:3] == ['nothing', 'old', 'good']
    # NCCL 2.28 loads no table as old as that.
    assert nccl['plugins'][1]['tables'] == [5] and nccl['plugins'][1]['loads']
    assert 'not found: neither nothing nor libnccl-net-nothing.so' in texts(rows['nccl-plugin'])
    many = ','.join(['nothing'] * 200)
    nccl, _ = here(folder, NCCL_NET_PLUGIN=many)
    assert len(nccl['plugins']) <= 16 and nccl['network'] in ('IB', 'socket')


@pytest.mark.parametrize('kind, trouble, remedy', [
    ('hangs', 'does not come to an end', 'install the package'),
    ('crashes', 'crashed with signal 6', 'install the package'),
    ('exits', 'a process that loads it ends', 'install the package'),
    ('bad_name', 'crashed with signal 11', 'install the package'),
    ('no_table', 'no ncclNetPlugin_vN', 'install the package'),
    ('dependent', 'libabsent.so: cannot open', 'install the library libabsent.so'),
])
def test_plugins_that_do_not_load(tmp_path, kind, trouble, remedy):
    folder = folder_of(tmp_path, bad=f'nccl-net-{kind}', good='nccl-net-good', nccl='nccl-22809')
    nccl, rows = here(folder, NCCL_NET_PLUGIN='bad,good')
    plugin = plugin_named(nccl, 'bad')
    assert plugin['loads'] is False and trouble in plugin['trouble'], plugin
    assert rows['nccl-plugin']['status'] == 'WARN' and remedy in rows['nccl-plugin']['remedy'], rows['nccl-plugin']
    # The others are loaded all the same, and NCCL goes on with them.
    assert plugin_named(nccl, 'good')['loads'] and nccl['network_name'] == 'Good'


@pytest.mark.parametrize('content', [b'', b'no library\n' * 1000, b'\x7fELF', b'\x7fELF' + b'\xff' * 4096])
def test_garbage_as_plugin(tmp_path, content):
    (tmp_path / 'libnccl-net-bad.so').write_bytes(content)
    nccl, rows = here(NCCL_NET_PLUGIN=str(tmp_path / 'libnccl-net-bad.so'))
    assert nccl['plugins'][0]['loads'] is False and nccl['plugins'][0]['trouble']
    assert rows['nccl-plugin']['status'] == 'WARN' and nccl['network'] in ('IB', 'socket')


def test_a_plugin_has_no_network_and_no_endless_name(tmp_path):
    folder = folder_of(tmp_path, connects='nccl-net-connects', long='nccl-net-long_name')
    nccl, _ = here(folder, NCCL_NET_PLUGIN='connects,long')
    assert nccl['plugins'][0]['name'] == 'no socket'
    name = nccl['plugins'][1]['name']
    assert nccl['plugins'][1]['loads'] and len(name) < 64 and name.startswith('?[31m?nnn')


def test_names_that_are_hostile(tmp_path):
    for value in ('x' * 5000, '../' * 100, '%s%n%s', '\x1b]0;x\x07', ',,,', 'a b', '/', '/dev/zero'):
        nccl, rows = here(NCCL_NET_PLUGIN=value, NCCL_NET='\x1b[2J')
        assert nccl['network'] == 'none' and rows['nccl-network']['status'] == 'FAIL'
        for arguments in (['check', '--all'], ['check', '--json']):
            done = run(*arguments, expect=None, NCCL_NET_PLUGIN=value, NCCL_NET='\x1b[2J')
            assert not set('\x1b\x07') & set(done.stdout) and not done.stderr


# -- the choice

def test_net_forces_a_network(tmp_path):
    folder = folder_of(tmp_path, good='nccl-net-good', nccl='nccl-23004')
    nccl, rows = here(folder, NCCL_NET_PLUGIN='good', NCCL_NET='Socket')
    assert nccl['network'] == 'socket' and nccl['network_reason'].startswith('NCCL_NET names it')
    assert 'WARN NCCL_NET: "Socket" (environment): NCCL skips the plugin Good' in texts(rows['nccl-variables'])
    assert rows['nccl-variables']['remedy'] == 'unset NCCL_NET'
    assert here(folder, NCCL_NET_PLUGIN='good', NCCL_NET='GOOD')[0]['network_name'] == 'Good'
    nccl, rows = here(folder, NCCL_NET_PLUGIN='good', NCCL_NET='Other')
    assert nccl['network'] == 'none' and rows['nccl-network']['status'] == 'FAIL'
    assert 'unset NCCL_NET' in rows['nccl-network']['remedy']


@pytest.mark.parametrize('release, more, warns', [
    ('22809', {}, True), ('22809', {'NCCL_NET_PLUGIN_REF_COUNT': '1'}, False),
    ('22809', {'NCCL_NET_PLUGIN_REF_COUNT': '0'}, True), ('22703', {}, False), ('23004', {}, False)])
def test_releases_that_forget_the_plugin(tmp_path, release, more, warns):
    folder = folder_of(tmp_path, good='nccl-net-good', nccl=f'nccl-{release}')
    _, rows = here(folder, NCCL_NET_PLUGIN='good', **more)
    assert ('forgets the name' in texts(rows['nccl-variables'])) == warns
    assert rows['nccl-variables']['status'] == ('WARN' if warns else 'OK')
    # The release finds the same plugin again by the default name.
    folder_of(tmp_path, default='nccl-net-good')
    assert here(folder, NCCL_NET_PLUGIN='good', **more)[1]['nccl-variables']['status'] == 'OK'


def test_interfaces_of_sockets():
    for value, warns in [('lo', False), ('=lo', False), ('zz,lo', False), ('^zz', False), ('lo:1', False), ('zz', True),
                         ('=l', True), ('=loo', True), ('^=lo,', None), ('', False)]:
        found = texts(here(NCCL_SOCKET_IFNAME=value)[1]['nccl-variables'])
        assert warns is None or ('no interface with an address' in found) == warns, (value, found)


# -- files

def test_the_users_file(tmp_path):
    folder = folder_of(tmp_path, good='nccl-net-good')
    conf = tmp_path / 'nccl.conf'
    conf.write_bytes(b'# NCCL_NET_PLUGIN=none\n NCCL_NET=Socket\nNCCL_NET_PLUGIN=good\nNCCL_NET_PLUGIN=none\nnothing\n=\n'
                     b'NCCL_NET_GDR_READ=\0\x1b[31m\nNCCL_NET\nNCCL_DMABUF_ENABLE =0\nNCCL_IB_DISABLE=1')
    nccl, _ = here(folder, NCCL_CONF_FILE=str(conf))
    assert nccl['network_name'] == 'Good'
    assert {one['name']: (one['value'], one['origin']) for one in nccl['variables']} == {
        'NCCL_NET_PLUGIN': ('good', str(conf)), 'NCCL_NET_GDR_READ': ('', str(conf)), 'NCCL_IB_DISABLE': ('1', str(conf))}
    # The environment wins; a relative path begins at the working directory.
    done = run('check', '--json', expect=None, cwd=tmp_path, NCCL_CONF_FILE='nccl.conf', NCCL_NET_PLUGIN='none',
               LD_LIBRARY_PATH=str(folder))
    variables = {one['name']: one['origin'] for one in json.loads(done.stdout)['nccl']['variables']}
    assert variables['NCCL_NET_PLUGIN'] == 'environment' and variables['NCCL_IB_DISABLE'] == str(conf)


def test_control_characters_and_blanks_of_a_file(tmp_path):
    """Editors of another system end lines with CR, which is part of the value for NCCL."""
    folder = folder_of(tmp_path, good='nccl-net-good')
    conf = tmp_path / 'nccl.conf'
    for line in (b'NCCL_NET=Good\r\n', b'NCCL_NET=Good \n', b'NCCL_NET=\x1b[31m\n'):
        conf.write_bytes(b'NCCL_NET_PLUGIN=good\n' + line)
        nccl, rows = here(folder, NCCL_CONF_FILE=str(conf))
        assert nccl['network'] == 'none', line
        assert '\x1b' not in json.dumps(rows, ensure_ascii=False)
        assert rows['nccl-network']['findings'][0]['object'] == 'NCCL_NET'


def test_files_that_cannot_be_read(tmp_path):
    conf = tmp_path / 'nccl.conf'
    os.mkfifo(conf)
    for path in (conf, tmp_path):
        nccl, rows = here(NCCL_CONF_FILE=str(path))
        assert rows['nccl-variables']['status'] == 'UNKNOWN' and str(path)[:60] in texts(rows['nccl-variables'])
    conf.unlink()
    # Larger than anybody writes; and below the limit, all lines count.
    conf.write_bytes(b'#\n' * (1 << 20))
    assert here(NCCL_CONF_FILE=str(conf))[1]['nccl-variables']['status'] == 'UNKNOWN'
    conf.write_bytes(b'#\n' * (500 << 10) + b'NCCL_NET=Nothing\n')
    assert here(NCCL_CONF_FILE=str(conf))[0]['network'] == 'none'
    conf.write_bytes(b'NCCL_NET=' + b'x' * 900000)
    assert here(NCCL_CONF_FILE=str(conf))[0]['network'] == 'none'


# -- other machines

def there(machine, folder):
    shown = json.loads(run('check', '--json', '--sysroot', machine.write(folder), expect=None).stdout)
    return shown['nccl'], {row['id']: row for row in shown['checks'] if row['group'] == 'NCCL'}


@pytest.mark.parametrize('make, variables, found', [
    (ideal, {'NCCL_NET_GDR_LEVEL': 'LOC'}, 'no card reaches GPU memory'),
    (ideal, {'NCCL_NET_GDR_LEVEL': '0'}, 'no card reaches GPU memory'),
    (ideal, {'NCCL_NET_GDR_LEVEL': 'SYS'}, None),
    (ideal, {'NCCL_NET_GDR_LEVEL': '5'}, None),
    (ideal, {'NCCL_NET_GDR_LEVEL': ''}, None),
    (ideal, {'NCCL_NET_GDR_READ': '0'}, 'what a GPU sends'),
    (ideal, {'NCCL_NET_GDR_READ': '1'}, None),
    (ideal, {'NCCL_DMABUF_ENABLE': '0'}, 'by dma-buf alone'),
    (old, {'NCCL_DMABUF_ENABLE': '0'}, None),
    (ideal, {'NCCL_IB_DISABLE': '1'}, 'does not use the RDMA devices'),
    (ideal, {'NCCL_IB_DISABLE': '0'}, None),
    (machines.bare, {'NCCL_IB_DISABLE': '1', 'NCCL_NET_GDR_LEVEL': 'LOC'}, None),
    (ideal, {'NCCL_SOCKET_IFNAME': 'eth'}, 'no interface with an address'),
    (ideal, {'NCCL_SOCKET_IFNAME': '^eth'}, None),
])
def test_variables_that_defeat(tmp_path, make, variables, found):
    _, rows = there(with_nccl(make(), **variables), tmp_path)
    row = rows['nccl-variables']
    assert row['status'] == ('WARN' if found else 'OK'), row
    assert not found or found in texts(row) and row['remedy'] == f'unset {list(variables)[0]}'


def test_ib_is_chosen_where_it_can_be(tmp_path):
    assert there(with_nccl(ideal()), tmp_path / 'a')[0]['network'] == 'IB'
    assert there(with_nccl(ideal()).forget('verbs.library').fact('verbs.library', 'none'), tmp_path / 'b')[0]['network'] == 'socket'
    nccl, rows = there(with_nccl(ideal(), NCCL_IB_DISABLE='1'), tmp_path / 'c')
    assert nccl['network'] == 'socket' and rows['nccl-network']['status'] == 'WARN'


def test_a_file_of_another_machine(tmp_path):
    machine = ideal().set(f'{MULTIARCH}/libnccl.so.2').set(f'{MULTIARCH}/libnccl-net-peerlane.so')
    machine.set('etc/nccl.conf', 'NCCL_NET_GDR_READ=0\n')
    nccl, rows = there(machine, tmp_path / 'a')
    assert nccl['network'] is None and nccl['plugins'][0]['loads'] is None
    assert [rows[name]['status'] for name in ('nccl-plugin', 'nccl-network', 'nccl-variables')] == ['UNKNOWN', 'UNKNOWN', 'WARN']
    assert rows['nccl-variables']['remedy'] == 'remove the line NCCL_NET_GDR_READ=... from /etc/nccl.conf'
    # Without NCCL the rows do not apply.
    assert {row['status'] for row in there(ideal(), tmp_path / 'b')[1].values()} == {'none'}


@pytest.mark.parametrize('key, value', [
    ('nccl.plugin.0.tables', '-1'), ('nccl.plugin.0.tables', '99999999999999999999'), ('nccl.plugin.0.reason', '77'),
    ('nccl.library.0.release', '-5'), ('nccl.library.0.release', '4294967296'), ('nccl.plugin.0.name', 'x' * 470),
    ('nccl.plugin.0.asked', '/' * 400), ('nccl.plugin.0.error', 'e' * 470), ('nccl.origin.NCCL_NET', 'o' * 470),
    ('nccl.variable.NCCL_NET_PLUGIN', ',' * 470), ('nccl.plugin.0.state', ''), ('nccl.library.0.file', 'x' * 470)])
def test_facts_that_are_hostile(tmp_path, key, value):
    machine = with_nccl(ideal(), NCCL_NET='Good', NCCL_NET_PLUGIN='good')
    for name, usual in [('asked', 'good'), ('reason', '0'), ('file', '/x.so'), ('tables', '2048'), ('name', 'Good'),
                        ('state', 'done')]:
        machine.fact(f'nccl.plugin.0.{name}', usual)
    assert there(machine, tmp_path / 'good')[0]['network_name'] == 'Good'
    nccl, _ = there(machine.fact(key, value), tmp_path / 'bad')
    assert nccl['network'] in ('plugin', 'IB', 'none')
    # A path that does not fit is left out, not cut.
    assert [one['file'] for one in nccl['libraries']] == ([] if key == 'nccl.library.0.file' else [f'/{MULTIARCH}/libnccl.so.2'])


def test_a_dump_answers_as_the_machine_does(tmp_path):
    folder = folder_of(tmp_path, good='nccl-net-good', nccl='nccl-22809', bad='nccl-net-no_table')
    variables = {'NCCL_NET_PLUGIN': f'{folder}/libnccl-net-good.so,bad,sEcReT/x.so', 'LD_LIBRARY_PATH': str(folder)}
    run('dump', '-o', tmp_path / 'x.tar', **variables)
    ours, rows = here(folder, **variables)
    shown = json.loads(run('check', '-r', tmp_path / 'x.tar', '--json', expect=None).stdout)
    theirs = shown['nccl']
    for name in ('network', 'network_name', 'table', 'release', 'network_reason'):
        assert ours[name] == theirs[name], name
    assert [one['loads'] for one in ours['plugins']] == [one['loads'] for one in theirs['plugins']]
    assert {row['id']: row['status'] for row in shown['checks'] if row['group'] == 'NCCL'} == \
        {name: row['status'] for name, row in rows.items()}
    assert b'sEcReT' not in (tmp_path / 'x.tar').read_bytes() and str(folder).encode() not in (tmp_path / 'x.tar').read_bytes()
    with tarfile.open(tmp_path / 'x.tar') as opened:
        assert 'nccl.plugin.0.name Good' in opened.extractfile('peerlane/facts').read().decode()
