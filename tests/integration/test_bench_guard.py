# SPDX-License-Identifier: BSD-2-Clause
"""Rule of benchmarks/guard: which rounds are worse, unchanged, or too noisy to judge; its commits and failures."""
import importlib.machinery
import importlib.util
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

NAMES = ('base', 'head')
BENCH = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
sys.path.insert(0, str(BENCH))

import guard_rule as rule  # noqa: E402  (the folder is no package)


def rounds_of(factor, noise, count=12, seed=1, drift=0.0):
    """Returns rounds whose costs vary by `noise`, and differ by `factor` between the commits."""
    random_numbers = random.Random(seed)
    rounds = []
    for number in range(count):
        level = 100 * math.exp(drift * random_numbers.gauss(0, 1))
        base, again, head, head_again = (level * math.exp(noise * random_numbers.gauss(0, 1)) for _ in range(4))
        rounds.append(rule.Round(base, again, factor * head, factor * head_again))
    return rounds


def test_quiet_machine():
    assert rule.judge(rounds_of(1.0, 0.005)).verdict == rule.SAME
    assert rule.judge(rounds_of(1.02, 0.0)).verdict == rule.SAME
    worse = rule.judge(rounds_of(1.08, 0.005))
    assert worse.verdict == rule.WORSE and worse.ratio == pytest.approx(1.08, abs=0.01) and worse.bound < 0.02
    assert worse.head == pytest.approx(1.08 * worse.base, rel=0.02)
    assert rule.judge(rounds_of(0.9, 0.005)).verdict == rule.BETTER


def test_loss_within_the_bound_is_not_same():
    """5 % more may be a loss or noise, where the bound is 6 %: too noisy, not unchanged."""
    assert rule.verdict_of(math.log(1.05), math.log(1.06)) == rule.NOISY
    assert rule.verdict_of(math.log(1.05), math.log(1.04)) == rule.WORSE
    assert rule.verdict_of(math.log(1.029), math.log(1.06)) == rule.SAME
    assert rule.verdict_of(math.log(1.029), math.log(1.11)) == rule.NOISY
    assert rule.verdict_of(math.log(0.95), math.log(1.06)) == rule.SAME
    assert rule.verdict_of(math.log(0.93), math.log(1.06)) == rule.BETTER


def test_noise_widens_the_bound():
    """The same 8 % that a quiet machine proves is not proved by a noisy one."""
    noisy = rule.judge(rounds_of(1.08, 0.15))
    assert noisy.verdict == rule.NOISY and noisy.bound > 0.10
    assert rule.judge(rounds_of(2.0, 0.15)).verdict == rule.WORSE


def test_noise_alone_is_never_worse():
    for noise in (0.01, 0.05, 0.2, 0.5):
        verdicts = [rule.judge(rounds_of(1.0, noise, seed=seed)).verdict for seed in range(300)]
        assert verdicts.count(rule.WORSE) <= 1, noise
        assert rule.NOISY in verdicts or noise < 0.05


def test_noise_between_rounds_is_noise():
    """Both runs of a program agree in each round; the ratios of the rounds do not."""
    rounds = [rule.Round(100, 100, 100 * factor, 100 * factor) for factor in (0.7, 1.2, 1.3, 0.8, 1.25, 1.1, 0.75, 1.15)]
    assert rule.judge(rounds).verdict == rule.NOISY
    # A load that is the same for all four runs of a round does not count.
    assert rule.judge(rounds_of(1.0, 0.002, drift=0.5)).verdict == rule.SAME


def test_single_disturbed_runs_change_nothing():
    rounds = rounds_of(1.0, 0.005)
    rounds[3] = rounds[3]._replace(head=900)
    rounds[7] = rounds[7]._replace(base=500, again=700)
    assert rule.judge(rounds).verdict == rule.SAME


def test_few_rounds_are_not_judged():
    rounds = rounds_of(2.0, 0.0, count=rule.LEAST_ROUNDS)
    assert rule.judge(rounds).verdict == rule.WORSE and rule.settled(rounds)
    assert rule.judge(rounds[1:]).verdict == rule.NOISY and not rule.settled(rounds[1:])
    assert rule.judge([]).verdict == rule.NOISY
    assert not rule.settled(rounds_of(1.0, 0.2))


def test_second_series():
    worse, same = rule.judge(rounds_of(1.2, 0.01)), rule.judge(rounds_of(1.0, 0.01))
    assert rule.confirmed(worse, worse).verdict == rule.WORSE
    assert rule.confirmed(worse, same).verdict == rule.NOISY


def test_counts():
    assert rule.judge_counts([1000, 1000, 1000], [1029, 1029, 1029]).verdict == rule.SAME
    assert rule.judge_counts([1000, 1000, 1000], [1031, 1031, 1031]).verdict == rule.WORSE
    assert rule.judge_counts([1000, 1060, 1000], [1031, 1031, 1031]).verdict == rule.WORSE
    assert rule.judge_counts([1000, 1000, 1000], [1031, 1400, 1031]).verdict == rule.WORSE
    assert rule.judge_counts([1000, 1060, 1000], [1029, 1029, 1029]).verdict == rule.SAME
    assert rule.judge_counts([1000, 1000, 1000], [900, 900, 900]).verdict == rule.BETTER
    assert rule.judge_counts([1000, 1400, 1000], [1000, 1000, 1000]).verdict == rule.NOISY


def test_exit_status():
    assert rule.status([rule.SAME, rule.BETTER, rule.NEW]) == 0
    assert rule.status([rule.SAME, rule.NOISY]) == 3
    assert rule.status([rule.NOISY, rule.WORSE]) == 1


def test_reference_is_missing(tmp_path):
    """Refuses before anything is built, and names a remedy."""
    def guard(*arguments):
        return subprocess.run([sys.executable, BENCH / 'guard', *arguments, 'local-put-8'], capture_output=True, text=True,
                              timeout=100)
    done = guard('--built', tmp_path, tmp_path)
    assert done.returncode == 2 and f'not built: {tmp_path}/build/' in done.stderr
    done = guard('--base', 'no-such-commit')
    assert done.returncode == 2 and 'no-such-commit' in done.stderr and 'fatal: ' in done.stderr


# -- commits and work trees --------------------------------------------------------------------------------------------


def git(folder, *arguments):
    settings = ['-c', 'user.name=test', '-c', 'user.email=test@localhost', '-c', 'commit.gpgsign=false']
    return subprocess.run(['git', *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=100).stdout


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """Copy of the script in a repository with an upstream and a file; its module builds nothing."""
    if not shutil.which('git'):
        pytest.skip('git is not installed')
    for name in [name for name in os.environ if name.startswith('GIT_')]:
        monkeypatch.delenv(name)
    folder = tmp_path / 'tree'
    for name in 'guard', 'guard_rule.py':
        (folder / 'benchmarks').mkdir(parents=True, exist_ok=True)
        shutil.copy(BENCH / name, folder / 'benchmarks' / name)
    (folder / 'file.c').write_text('int x;\n\n\n\n')
    git(tmp_path, 'init', '--quiet', '--initial-branch=main', folder)
    git(folder, 'add', '.')
    git(folder, 'commit', '--quiet', '--message=first')
    git(folder, 'branch', '--quiet', 'landed')
    git(folder, 'branch', '--quiet', '--set-upstream-to=landed')
    loader = importlib.machinery.SourceFileLoader('guard_copy', str(folder / 'benchmarks/guard'))
    guard = importlib.util.module_from_spec(importlib.util.spec_from_loader('guard_copy', loader))
    loader.exec_module(guard)
    monkeypatch.setattr(guard, 'build', lambda folder, name, commit: None)
    return guard, folder


def options_of(guard, monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['guard', *map(str, arguments)])
    return guard.parse()


def test_uncommitted_changes(copy, monkeypatch, tmp_path):
    """Compares uncommitted changes, also before empty lines; leaves the repository and its other worktrees as they were."""
    guard, folder = copy
    elsewhere = tmp_path / 'elsewhere'
    git(folder, 'worktree', 'add', '--quiet', '--detach', elsewhere)
    elsewhere.rename(tmp_path / 'not mounted')
    (folder / 'file.c').write_text('int y;\n\n\n\n')
    before = [git(folder, *arguments) for arguments in (['status', '--porcelain'], ['stash', 'list'], ['worktree', 'list'])]
    base, head, warning, builds = guard.builds_of(options_of(guard, monkeypatch))
    with builds as (old, new):
        texts = [pathlib.Path(one, 'file.c').read_text() for one in (old, new)]
    assert texts == ['int x;\n\n\n\n', 'int y;\n\n\n\n'] and not warning
    assert head == f'{base} with changes' and base == git(folder, 'rev-parse', 'HEAD').strip()
    assert before == [git(folder, *arguments) for arguments in (['status', '--porcelain'], ['stash', 'list'], ['worktree', 'list'])]
    assert not pathlib.Path(old).exists() and (folder / 'file.c').read_text() == 'int y;\n\n\n\n'


def test_default_reference(copy, monkeypatch):
    """The reference is the commit at which the branch leaves its upstream, which has gone on."""
    guard, folder = copy
    first = git(folder, 'rev-parse', 'HEAD').strip()
    with pytest.raises(guard.Failure, match='nothing is changed since; name the reference'):
        guard.builds_of(options_of(guard, monkeypatch))
    assert guard.builds_of(options_of(guard, monkeypatch, '--base', 'HEAD'))[:2] == (first, first)
    git(folder, 'checkout', '--quiet', 'landed')
    git(folder, 'commit', '--quiet', '--allow-empty', '--message=other')
    git(folder, 'checkout', '--quiet', 'main')
    (folder / 'benchmarks/loop.c').write_text('int z;\n')
    git(folder, 'add', '.')
    git(folder, 'commit', '--quiet', '--message=second')
    base, head, warning, _ = guard.builds_of(options_of(guard, monkeypatch))
    assert base == first and head == git(folder, 'rev-parse', 'HEAD').strip()
    assert warning.startswith('WARNING') and warning.endswith(': benchmarks/loop.c')
    git(folder, 'branch', '--quiet', '--unset-upstream')
    with pytest.raises(guard.Failure, match='(?s)no upstream: name the reference.*fatal: '):
        guard.builds_of(options_of(guard, monkeypatch))


def test_row_that_one_state_lacks(copy, monkeypatch):
    guard, _ = copy

    def lacks(missing):
        def measure(folder):
            if folder == missing:
                raise guard.Missing
            return 1.0
        return measure
    for table, judge in (guard.TIMES, lambda: guard.judge_times(['row'], NAMES, options)), \
                        (guard.COUNTS, lambda: guard.judge_counts(['row'], NAMES)):
        options = options_of(guard, monkeypatch)
        monkeypatch.setitem(table, 'row', ('', '', lacks('base')))
        assert judge()['row'][0].verdict == rule.NEW
        monkeypatch.setitem(table, 'row', ('', '', lacks('head')))
        with pytest.raises(guard.Failure, match='row: the reference can measure this row'):
            judge()
        monkeypatch.delitem(table, 'row')


def test_unexpected_failures_have_status_2(copy, tmp_path):
    """Status 1 means that a row is worse.  The file of --json is opened before anything is built."""
    _, folder = copy
    script = folder / 'benchmarks/guard'

    def guard(*arguments):
        return subprocess.run([sys.executable, script, '--base', 'HEAD', *arguments, 'local-put-8'], capture_output=True, text=True,
                              timeout=100)
    done = guard('--json', tmp_path / 'none/guard.json')
    assert done.returncode == 2 and 'none/guard.json: No such file' in done.stderr and 'building' not in done.stderr
    (folder / 'benchmarks/guard_rule.py').write_text((BENCH / 'guard_rule.py').read_text() + '\nLEAST_ROUNDS = None\n')
    done = guard()
    assert done.returncode == 2 and 'Traceback' in done.stderr and 'TypeError' in done.stderr
