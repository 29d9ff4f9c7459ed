# SPDX-License-Identifier: BSD-2-Clause
"""Rule of benchmarks/guard: which rounds are worse, unchanged, or too noisy to judge."""
import math
import pathlib
import random
import subprocess
import sys

import pytest

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
    assert rule.judge_counts([1000, 1060, 1000], [1031, 1031, 1031]).verdict == rule.SAME
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
    assert done.returncode == 2 and 'no-such-commit' in done.stderr
