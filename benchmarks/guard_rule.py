# SPDX-License-Identifier: BSD-2-Clause
"""Rule of benchmarks/guard: compares costs of two commits, and knows when noise is too great to judge."""
import collections
import math
import statistics

LEAST_ROUNDS = 5    # fewer rounds say nothing about the noise
TOLERANCE = 0.03    # changes that the layout of unchanged code causes
WIDEST = 0.10       # bound above which an unchanged cost is not accepted as unchanged
SURE = 4            # standard errors
NORMAL = 1.4826     # standard deviation of a normal distribution, in median absolute deviations
MEDIAN = 1.2533     # standard error of a median, in those of a mean

# Costs of one round: two runs of each commit, in turn.
Round = collections.namedtuple('Round', 'base again head head_again')
# ratio: head to base, above 1 if head costs more.  bound: noise of the ratio, as a part of 1.  verdict: see below.
Judged = collections.namedtuple('Judged', 'base head ratio bound rounds verdict')

WORSE, BETTER, SAME, NOISY, NEW = 'WORSE', 'better', 'same', 'too noisy', 'not in the reference'
EXIT = {WORSE: 1, NOISY: 3}     # exit status of the worst verdict; others: 0


def deviation(values, middle):
    """Returns the standard deviation about `middle`, from the median, so that a few disturbed runs change little."""
    return NORMAL * statistics.median(abs(value - middle) for value in values)


def bound_of(rounds):
    """Returns the noise of the median ratio, as a logarithm.

    Two runs of the same program in each round show the noise of a run.  The ratio of a round is that of two sums, so its
    noise is 1 / sqrt(2) of that of two runs.  Noise that lasts longer than a round shows in the ratios themselves.
    """
    same = [math.log(one.again / one.base) for one in rounds] + [math.log(one.head_again / one.head) for one in rounds]
    ratios = [ratio_of(one) for one in rounds]
    spread = max(deviation(same, 0) / math.sqrt(2), deviation(ratios, statistics.median(ratios)))
    return SURE * MEDIAN * spread / math.sqrt(len(rounds))


def ratio_of(one):
    return math.log((one.head + one.head_again) / (one.base + one.again))


def verdict_of(effect, bound):
    """Returns the verdict for a ratio and its bound, both as logarithms.

    An effect above the tolerance, but within the bound, may be a loss: it is not accepted as unchanged.
    """
    tolerance = math.log1p(TOLERANCE)
    if effect > max(tolerance, bound):
        return WORSE
    if effect < -max(tolerance, bound):
        return BETTER
    return NOISY if effect > tolerance or bound > math.log1p(WIDEST) else SAME


def judge(rounds):
    """Judges the rounds of a row, a list of Round."""
    base = statistics.median(one.base + one.again for one in rounds) / 2 if rounds else math.nan
    head = statistics.median(one.head + one.head_again for one in rounds) / 2 if rounds else math.nan
    if len(rounds) < LEAST_ROUNDS:
        return Judged(base, head, math.nan, math.nan, len(rounds), NOISY)
    effect, bound = statistics.median(map(ratio_of, rounds)), bound_of(rounds)
    return Judged(base, head, math.exp(effect), math.expm1(bound), len(rounds), verdict_of(effect, bound))


def settled(rounds):
    """True if more rounds are not needed: the noise is below the tolerance.  Does not depend on the ratio."""
    return len(rounds) >= LEAST_ROUNDS and bound_of(rounds) <= math.log1p(TOLERANCE)


def confirmed(first, second):
    """Returns the judgement of a row that was worse in one series, and was measured again in another."""
    return second if second.verdict == WORSE else first._replace(verdict=NOISY)


def judge_counts(base, head):
    """Judges counts of instructions of several runs of each commit.  The lowest is the cost; others were disturbed.

    So the spread of the counts excuses no loss.  It tells only whether a row without one can be judged.
    """
    ratio = min(head) / min(base)
    spread = max(max(runs) / min(runs) - 1 for runs in (base, head))
    if ratio > 1 + TOLERANCE:
        verdict = WORSE
    elif ratio < 1 / (1 + TOLERANCE):
        verdict = BETTER
    else:
        verdict = NOISY if spread > WIDEST else SAME
    return Judged(min(base), min(head), ratio, spread, len(head), verdict)


def status(verdicts):
    """Returns the exit status: 1 if a row is worse, else 3 if a row is too noisy, else 0."""
    for verdict in (WORSE, NOISY):
        if verdict in verdicts:
            return EXIT[verdict]
    return 0
