# SPDX-License-Identifier: BSD-2-Clause
"""Runs the sections of benchmarks/machine: programs within a limit of time, figures, goals, and their summary."""
import collections
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import time

import results

# needs: of 'gpu', '2 gpus', 'N cores', and names of programs in BUILD/benchmarks or, after 'command ', of the system.
Section = collections.namedtuple('Section', 'name title limit needs measure')
# of: 'figure', or 'ratio' to the peer.  Judged on machines with as many cores and GPUs.
Goal = collections.namedtuple('Goal', 'of least most cores gpus', defaults=[None, None, 1, 0])
MET = {True: 'yes', False: 'NO', None: 'not judged'}


class Failed(Exception):
    """A program of a section failed."""


class Cut(Exception):
    """The time of a section is over."""


def plural(count, noun):
    return f'{count} {noun}{"" if count == 1 else "s"}'


def size_text(size):
    for unit, letter in ((1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')):
        if size % unit == 0:
            return f'{size // unit}{letter}'
    return str(size)


def number(value):
    return '-' if value is None else f'{value:,.0f}' if abs(value) >= 1000 else f'{value:.3g}'


def goal_text(goal):
    least = goal.least is not None
    return f'{"ratio " if goal.of == "ratio" else ""}{">=" if least else "<="} {goal.least if least else goal.most:.3g}'


class Run:
    def __init__(self, options):
        self.build, self.rounds, self.seconds, self.limit = options.build, options.rounds, options.seconds, options.limit
        self.cores = len(os.sched_getaffinity(0))
        self.figures, self.left_out, self.failures, self.ran = [], [], [], []
        self.section, self.deadline = None, time.monotonic() + 60
        self.gpus = json.loads(self.output(self.path('peerlane'), 'version', '--json'))['gpus']

    # -- programs ------------------------------------------------------------------------------------------

    def path(self, name):
        return os.path.join(self.build, name)

    def output(self, *command, environment=None, status_matters=True, folder=None):
        """Returns what the command prints.  Ends it, and all its children, when the section's time is over."""
        command = [str(part) for part in command]
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Cut('no time was left for ' + ' '.join(command))
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     start_new_session=True, cwd=folder, env={**os.environ, **(environment or {})})
        except OSError as error:
            raise Failed(f'{command[0]}: {error.strerror}') from error
        try:
            out, messages = child.communicate(timeout=left)
        except subprocess.TimeoutExpired as error:
            raise Cut('at its limit in ' + ' '.join(command)) from error
        finally:
            # Ends what the command left, too; without any process the group is gone.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child.returncode and status_matters:
            raise Failed(f'{" ".join(command)}: status {child.returncode}: {(messages or out).strip()[-400:]}')
        return out if status_matters else out + messages

    def program(self, name, *arguments):
        return self.output(self.path('benchmarks/' + name), *arguments)

    def json(self, name, *arguments):
        return json.loads(self.program(name, *arguments))

    def bench_document(self, *options, seconds=None):
        return json.loads(self.output(self.path('peerlane'), 'bench', '--json', '--duration', seconds or self.seconds, *options))

    def bench(self, *options, seconds=None):
        """Returns the results of `peerlane bench`."""
        return self.bench_document(*options, seconds=seconds)['results']

    def kv(self, *options):
        return json.loads(self.output(self.path('peerlane'), 'bench', 'kv', '--json', '--duration', self.seconds,
                                      *options))['results']

    def workflow(self, *options):
        return json.loads(self.output(self.path('peerlane'), 'bench', 'workflow', '--json', '--duration', self.seconds, '--rounds',
                                      self.rounds, *options))['results']

    def script(self, name, *arguments):
        """Runs a script of this folder on the build's programs; returns its JSON."""
        return json.loads(self.output('python3', os.path.join(os.path.dirname(os.path.abspath(__file__)), name), *arguments))

    # -- figures and goals ---------------------------------------------------------------------------------

    def median(self, measure):
        return statistics.median(measure() for _ in range(self.rounds))

    def figure(self, what, value, unit, peer=None, peer_value=None, ratio=None, goal=None, cost=None):
        """Records a figure.  peer: name of what it is compared with; ratio: by default that of both values; cost: seconds of
        processors a GB."""
        if ratio is None and value is not None and peer_value:
            ratio = value / peer_value
        row = {'section': self.section.name, 'what': what, 'figure': value, 'unit': unit, 'peer': peer, 'peer_figure': peer_value,
               'ratio': ratio, 'seconds_per_gigabyte': cost, 'goal': goal and goal_text(goal), 'met': None, 'not_judged': None}
        if goal:
            self.judge(row, goal)
        self.figures.append(row)
        compared = f'; {peer}: {number(peer_value)}' if peer else ''
        print(f'  {what}: {number(value)} {unit}{compared}{"" if ratio is None else f"; ratio {ratio:.2f}"}'
              f'{"" if cost is None else f"; {cost:.2f} s/GB"}', flush=True)

    def judge(self, row, goal):
        value = row['ratio' if goal.of == 'ratio' else 'figure']
        if value is None:
            row['not_judged'] = 'not measured'
        elif self.cores < goal.cores:
            row['not_judged'] = f'for {goal.cores} cores or more'
        elif len(self.gpus) < goal.gpus:
            row['not_judged'] = 'for ' + plural(goal.gpus, 'GPU')
        else:
            row['met'] = value >= goal.least if goal.least is not None else value <= goal.most

    def failed(self, message):
        self.failures.append({'section': self.section.name, 'message': message})
        print(f'  FAILED: {message}', flush=True)

    # -- sections ------------------------------------------------------------------------------------------

    def missing(self, need):
        """Returns why the machine cannot serve a need, or None."""
        count, _, kind = need.partition(' ')
        if need in ('gpu', '2 gpus'):
            wanted = 1 if need == 'gpu' else 2
            return None if len(self.gpus) >= wanted else f'{len(self.gpus)} of {plural(wanted, "GPU")}'
        if kind == 'cores':
            return None if self.cores >= int(count) else f'{self.cores} of {count} cores'
        if count == 'module':
            found = subprocess.run(['python3', '-c', f'import {kind}'], capture_output=True, check=False).returncode == 0
            return None if found else f'no {kind} for python3'
        if count == 'command':
            return None if shutil.which(kind) else f'no command {kind}'
        return None if os.access(self.path('benchmarks/' + need), os.X_OK) else f'{need} is not built'

    def measure(self, sections):
        print(f'{plural(self.cores, "core")}; ' + (', '.join(gpu['name'] for gpu in self.gpus) or 'no GPU'), flush=True)
        for section in sections:
            reasons = [reason for reason in map(self.missing, section.needs) if reason]
            if reasons:
                self.left_out.append({'section': section.name, 'reason': '; '.join(reasons)})
                continue
            self.section, begin, before = section, time.monotonic(), len(self.figures)
            self.deadline = begin + (self.limit or section.limit)
            print(f'\n{section.name}: {section.title}', flush=True)
            try:
                section.measure(self)
                if len(self.figures) == before:
                    raise Failed('its programs printed no figures')
            except Cut as cut:
                self.failed(f'cut off after {time.monotonic() - begin:.0f} s: {cut}')
            except Failed as failure:
                self.failed(str(failure))
            # A program printed no figures, or 0.
            except (ValueError, LookupError, TypeError, ArithmeticError, OSError) as error:
                self.failed(f'{type(error).__name__}: {error}')
            except (KeyboardInterrupt, SystemExit):
                self.failed('interrupted')
                raise
            self.ran.append({'section': section.name, 'seconds': round(time.monotonic() - begin, 1)})

    def print_summary(self):
        goals = [row for row in self.figures if row['goal']]
        if goals:
            print(f'\n{"SECTION":<14} {"FIGURE":<44} {"VALUE":>10} {"UNIT":<9} {"PEER":>10} {"RATIO":>5} {"GOAL":<13} MET')
        for row in goals:
            ratio = '-' if row['ratio'] is None else format(row['ratio'], '.2f')
            print(f'{row["section"]:<14} {row["what"]:<44} {number(row["figure"]):>10} {row["unit"]:<9} '
                  f'{number(row["peer_figure"]):>10} {ratio:>5} {row["goal"]:<13} {MET[row["met"]]}'
                  + (f' ({row["not_judged"]})' if row['not_judged'] else ''))
        if goals:
            counts = collections.Counter(row['met'] for row in goals)
            print(f'{counts[True]} goals met, {counts[False]} not met, {counts[None]} not judged')
        for one in self.left_out:
            print(f'left out: {one["section"]}: {one["reason"]}')
        for one in self.failures:
            print(f'failed: {one["section"]}: {one["message"]}')

    def save(self, path):
        document = {'format': 1, 'kind': 'goals', **results.head([gpu['name'] for gpu in self.gpus]), 'rounds': self.rounds,
                    'seconds': self.seconds, 'sections': self.ran, 'figures': self.figures, 'left_out': self.left_out,
                    'failures': self.failures}
        with open(path, 'w', encoding='utf-8') as out:
            json.dump(document, out, indent=2)
            out.write('\n')

    def status(self):
        return 1 if self.failures else 0 if self.ran else 77
