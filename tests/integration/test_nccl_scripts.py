# SPDX-License-Identifier: BSD-2-Clause
"""Verdicts of the scripts in plugins/nccl/ that test the plugin on GPUs; programs of the test stand in for NCCL's."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

PLUGIN = pathlib.Path(__file__).resolve().parents[2] / 'plugins/nccl'
PROGRAMS = ('all_reduce', 'sendrecv', 'alltoall', 'reduce_scatter', 'all_gather', 'broadcast', 'hypercube')
sys.path.insert(0, str(PLUGIN))
import ranks  # noqa: E402  (the folder of the scripts)
import torch_test  # noqa: E402

GOOD = """
echo 'Channel 00/0 : 0[0] -> 1[1] [send] via NET/Peerlane/0'
echo '   268435456      67108864     float     sum      -1    10.0   26.84   26.84      0'
echo '# Out of bounds values : 0 OK'
echo "NET/Peerlane : sent ${SENT:-268435456} bytes, received 268435456 bytes"
"""


def write_programs(folder, text):
    for name in PROGRAMS:
        path = folder / f'{name}_perf'
        path.write_text('#!/bin/sh\n[ "$1" != -h ] || exit 0\n' + text)
        path.chmod(0o755)


def run_script(folder, limit, **variables):
    """Run test.sh with too little time for a case of PyTorch, which this machine may lack."""
    return subprocess.run(['bash', PLUGIN / 'test.sh', '/bin/true'], capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | {'NCCL_TESTS': str(folder), 'LIMIT': str(limit)} | variables)


def test_program_does_not_start(tmp_path):
    write_programs(tmp_path, GOOD)
    (tmp_path / 'hypercube_perf').write_text('#!/no/such/loader\n')
    result = run_script(tmp_path, 9)
    assert result.returncode == 2
    assert result.stdout == ''
    assert f'{tmp_path}/hypercube_perf does not start: exit status 12' in result.stderr


def test_good_run(tmp_path):
    write_programs(tmp_path, GOOD)
    result = run_script(tmp_path, 9)
    assert 'all_reduce_perf, one process                   passed' in result.stdout
    assert ', largest size 26.84 GB/s' in result.stdout
    # No time is left for PyTorch.
    assert result.returncode == 1
    assert 'FAILED: not run, the time is over' in result.stdout


def test_wrong_run(tmp_path):
    write_programs(tmp_path, GOOD)
    result = run_script(tmp_path, 9, SENT='268435455')
    assert result.returncode == 1
    assert '0 OK, 268435455 bytes sent' in result.stdout
    assert 'passed' not in result.stdout


ONE_GPU = """
[ "$NCCL_TESTS_DEVICE" = 0 ] || exit 7
[ "$NCCL_HOSTID" = rank1 ] || exit 8
[ "$1 $2" = '-g 1' ] || exit 9
"""


def with_gpus(folder, count):
    """Return a PATH whose nvidia-smi shows some GPUs."""
    command = folder / 'bin/nvidia-smi'
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nfor gpu in $(seq {count}); do echo "GPU $((gpu - 1)): NVIDIA H200 (UUID: GPU-$gpu)"; done\n')
    command.chmod(0o755)
    return f'{command.parent}:{os.environ["PATH"]}'


def test_processes_share_one_gpu(tmp_path):
    write_programs(tmp_path, ONE_GPU + GOOD)
    result = run_script(tmp_path, 9, PATH=with_gpus(tmp_path, 1), NCCL_TESTS_LAUNCH='env OMPI_COMM_WORLD_RANK=1')
    assert 'hypercube_perf, processes                      passed' in result.stdout
    assert 'one process' not in result.stdout


def test_one_process_has_all_gpus(tmp_path):
    write_programs(tmp_path, '[ "$1" = -h ] || [ "$1 $2" = "-g 4" ] || exit 9\n' + GOOD)
    result = run_script(tmp_path, 9, PATH=with_gpus(tmp_path, 4))
    assert 'all_reduce_perf, one process                   passed' in result.stdout


def test_hidden_gpus_do_not_count(tmp_path):
    write_programs(tmp_path, '[ "$1" = -h ] || [ "$1 $2" = "-g 2" ] || exit 9\n' + GOOD)
    result = run_script(tmp_path, 9, PATH=with_gpus(tmp_path, 8), CUDA_VISIBLE_DEVICES='2,GPU-5')
    assert 'all_reduce_perf, one process                   passed' in result.stdout


def test_one_gpu_needs_two_processes(tmp_path):
    write_programs(tmp_path, GOOD)
    result = run_script(tmp_path, 9, PATH=with_gpus(tmp_path, 1), NCCL_TESTS_LAUNCH='')
    assert result.returncode == 2
    assert result.stdout == ''
    assert 'NCCL_TESTS_LAUNCH for two processes on one' in result.stderr


def test_unfinished_program(tmp_path):
    write_programs(tmp_path, 'exec sleep 1000')
    result = run_script(tmp_path, 5)
    assert result.returncode == 1
    # bash counts the starts of the clock's seconds: some may come between the start of the script and that of the program.
    assert re.search(r'not finished in [1-5] s', result.stdout)
    assert 'sendrecv_perf, one process' in result.stdout
    assert 'not run, the time is over' in result.stdout
    assert 'exit status' not in result.stdout


def test_unfinished_ranks(tmp_path):
    script = tmp_path / 'rank.py'
    script.write_text('import time\ntime.sleep(1000)\n')
    outputs, statuses = ranks.run_pair(str(script), [], dict(os.environ), 0.2, 1, str(tmp_path))
    assert outputs == ['', '']
    assert statuses == [None, None]
    net = torch_test.Network('tcp', 'Peerlane', {})
    with pytest.raises(ValueError, match='^not finished in 55 s$'):
        torch_test.check_run('sizes', net, outputs, statuses, 55)


def test_failed_rank(tmp_path):
    script = tmp_path / 'rank.py'
    script.write_text('import sys\nsys.exit(3)\n')
    outputs, statuses = ranks.run_pair(str(script), [], dict(os.environ), 250, 1, str(tmp_path))
    net = torch_test.Network('tcp', 'Peerlane', {})
    with pytest.raises(ValueError, match=r'^exit statuses \[3, 3\]$'):
        torch_test.check_run('sizes', net, outputs, statuses, 250)


def test_all_cases_run():
    assert sorted(torch_test.ORDER) == sorted(torch_test.CASES)
