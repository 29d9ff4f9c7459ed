# SPDX-License-Identifier: BSD-2-Clause
"""Runs the sections of benchmarks/machine: figures, goals, limits of time, and their summary."""
import collections
import contextlib
import functools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

import machine_programs
import results
from machine_programs import Cut, Failed

HERE = os.path.dirname(os.path.abspath(__file__))

# needs: of 'gpu', '2 gpus', 'N cores', and names of programs in BUILD/benchmarks or, after 'command ', of the system.
Section = collections.namedtuple('Section', 'name title limit needs measure')
# of: 'figure', or 'ratio' to the peer.  Judged on machines with as many cores and GPUs.
Goal = collections.namedtuple('Goal', 'of least most cores gpus', defaults=[None, None, 1, 0])
MET = {True: 'yes', False: 'NO', None: 'not judged'}
# Seconds that a program may take, so that one that hangs does not take the time of its whole section.
PROGRAM_LIMIT = 60


def plural(count, noun):
    return f'{count:,} {noun}{"" if count == 1 else "s"}'


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
        self.save_path, self.complete = options.save, False
        self.time, self.end = options.time or math.inf, math.inf
        self.section, self.deadline = None, time.monotonic() + 60
        self.environment = machine_programs.environment_of(self.build)
        self.gpus = json.loads(self.output(self.path('peerlane'), 'version', '--json'))['gpus']
        self.head = results.head([gpu['name'] for gpu in self.gpus])

    # -- programs ------------------------------------------------------------------------------------------

    def path(self, name):
        return os.path.join(self.build, name)

    def output(self, *command, environment=None, status_matters=True, folder=None, most=PROGRAM_LIMIT):
        """Returns what the command prints.  Ends it after `most` seconds, or when the section's time is over."""
        return machine_programs.output_of([str(part) for part in command], self.deadline, most, {**self.environment, **(environment or {})},
                                          status_matters, folder)

    def program(self, name, *arguments, most=PROGRAM_LIMIT):
        return self.output(self.path('benchmarks/' + name), *arguments, most=most)

    def json(self, name, *arguments):
        return json.loads(self.program(name, *arguments))

    def command(self, *arguments, seconds=None):
        """Runs a measurement of `peerlane bench`; returns its document."""
        return json.loads(self.output(self.path('peerlane'), 'bench', *arguments, '--json', '--duration', seconds or self.seconds))

    def bench(self, *options, seconds=None):
        """Returns the results of `peerlane bench`."""
        return self.command(*options, seconds=seconds)['results']

    def medians(self, *options, of='bytes_per_second', seconds=None):
        """Returns the median over the rounds for each size of `peerlane bench`."""
        rounds = [self.bench(*options, seconds=seconds) for _ in range(self.rounds)]
        return {rows[0]['size']: statistics.median(row['latency_us']['p50'] if of == 'latency' else row[of] for row in rows)
                for rows in zip(*rounds)}

    def workflow(self, *options):
        return self.command('workflow', '--rounds', self.rounds, *options)['results']

    def script(self, name, *arguments, most=PROGRAM_LIMIT):
        """Runs a script of this folder on the build's programs; returns its JSON."""
        return json.loads(self.output(sys.executable, os.path.join(HERE, name), *arguments, most=most))

    # -- figures and goals ---------------------------------------------------------------------------------

    def median(self, measure):
        return statistics.median(measure() for _ in range(self.rounds))

    def figure(self, what, value, unit, peer=None, peer_value=None, ratio=None, goal=None, cost=None, note=None, not_judged=None):
        """Records a figure.  peer: name of what it is compared with; ratio: by default that of both values; cost: seconds of
        processors a GB; not_judged: reason for which the goal does not count."""
        if ratio is None and value is not None and peer_value:
            ratio = value / peer_value
        row = {'section': self.section.name, 'what': what, 'figure': value, 'unit': unit, 'peer': peer, 'peer_figure': peer_value,
               'ratio': ratio, 'seconds_per_gigabyte': cost, 'note': note, 'goal': goal and goal_text(goal),
               'goal_of': goal and goal.of, 'least': goal and goal.least, 'most': goal and goal.most, 'met': None, 'not_judged': not_judged if goal else None}
        if goal and not not_judged:
            self.judge(row, goal)
        self.figures.append(row)
        compared = f'; {peer}: {number(peer_value)}' if peer else ''
        print(f'  {what}: {number(value)} {unit}{compared}{"" if ratio is None else f"; ratio {ratio:.2f}"}'
              f'{"" if cost is None else f"; {cost:.2f} s/GB"}{f"; {note}" if note else ""}', flush=True)
        self.save()

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

    def not_measured(self, what, reason):
        self.left_out.append({'section': self.section.name, 'what': what, 'reason': reason})
        print(f'  {what}: not measured: {reason}', flush=True)

    def failed(self, message):
        self.failures.append({'section': self.section.name, 'message': message})
        print(f'  FAILED: {message}', flush=True)

    @contextlib.contextmanager
    def part(self):
        """Lets the section go on after a part of it has failed."""
        try:
            yield
        except Failed as failure:
            self.failed(str(failure))
        except Cut:
            raise
        except Exception as error:      # pylint: disable=broad-except; a program printed no figures, or 0
            self.failed(f'{type(error).__name__}: {error}')

    # -- sections ------------------------------------------------------------------------------------------

    @functools.lru_cache(maxsize=None)
    def has_module(self, name):
        try:
            return subprocess.run([sys.executable, '-c', f'import {name}'], capture_output=True, stdin=subprocess.DEVNULL, check=False,
                                  timeout=PROGRAM_LIMIT).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def has_command(self, name):
        return shutil.which(name, path=self.environment['PATH']) is not None

    def missing(self, need):
        """Returns why the machine cannot serve a need, or None."""
        count, _, kind = need.partition(' ')
        if need in ('gpu', '2 gpus'):
            wanted = 1 if need == 'gpu' else 2
            return None if len(self.gpus) >= wanted else f'{len(self.gpus)} of {plural(wanted, "GPU")}'
        if kind == 'cores':
            return None if self.cores >= int(count) else f'{self.cores} of {count} cores'
        if count == 'module':
            return None if self.has_module(kind) else f'no {kind} for python3'
        if count == 'command':
            return None if self.has_command(kind) else f'no {kind}'
        return None if os.access(self.path('benchmarks/' + need), os.X_OK) else f'{need} is not built'

    def measure(self, sections):
        self.end = time.monotonic() + self.time
        print(f'{plural(self.cores, "core")}; ' + (', '.join(gpu['name'] for gpu in self.gpus) or 'no GPU'), flush=True)
        for section in sections:
            reasons = [reason for reason in map(self.missing, section.needs) if reason]
            if reasons:
                self.left_out.append({'section': section.name, 'what': None, 'reason': '; '.join(reasons)})
            elif time.monotonic() >= self.end:
                self.failures.append({'section': section.name, 'message': 'not begun: no time was left'})
            else:
                self.measure_section(section)
            self.save()
        self.complete = True

    def measure_section(self, section):
        self.section, begin, before = section, time.monotonic(), len(self.figures)
        self.deadline = min(begin + (self.limit or section.limit), self.end)
        print(f'\n{section.name}: {section.title}', flush=True)
        try:
            with self.part():
                section.measure(self)
                if len(self.figures) == before and not any(one['section'] == section.name for one in self.left_out + self.failures):
                    raise Failed('its programs printed no figures')
        except Cut as cut:
            self.failed(f'cut off after {time.monotonic() - begin:.0f} s: {cut}')
        except (KeyboardInterrupt, SystemExit):
            self.failed('interrupted')
            raise
        finally:
            self.ran.append({'section': section.name, 'seconds': round(time.monotonic() - begin, 1)})

    def print_summary(self):
        goals = [row for row in self.figures if row['goal']]
        if goals:
            print(f'\n{"SECTION":<14} {"FIGURE":<44} {"VALUE":>10} {"UNIT":<9} {"PEER":>10} {"RATIO":>5} {"GOAL":<13} MET')
        for row in goals:
            ratio = '-' if row['ratio'] is None else format(row['ratio'], '.2f')
            print(f'{row["section"]:<14} {row["what"]:<44} {number(row["figure"]):>10} {row["unit"]:<9} '
                  f'{number(row["peer_figure"]):>10} {ratio:>5} {row["goal"]:<13} {MET[row["met"]]}'
                  + (f' ({row["not_judged"]})' if row['not_judged'] else '') + (f'; {row["note"]}' if row['note'] else ''))
        if goals:
            counts = collections.Counter(row['met'] for row in goals)
            print(f'{counts[True]} goals met, {counts[False]} not met, {counts[None]} not judged')
        print('; '.join(f'{one["section"]}: {one["seconds"]:.0f} s' for one in self.ran))
        for one in self.left_out:
            print(f'not measured: {one["section"]}: {one["what"] + ": " if one["what"] else ""}{one["reason"]}')
        for one in self.failures:
            print(f'failed: {one["section"]}: {one["message"]}')

    def save(self):
        """Replaces the saved document by one with all figures so far."""
        if not self.save_path:
            return
        document = {'format': 1, 'kind': 'goals', **self.head, 'complete': self.complete,
                    'rounds': self.rounds, 'seconds': self.seconds, 'sections': self.ran, 'figures': self.figures,
                    'left_out': self.left_out, 'failures': self.failures}
        with open(self.save_path + '.part', 'w', encoding='utf-8') as out:
            json.dump(document, out, indent=2)
            out.write('\n')
        os.replace(self.save_path + '.part', self.save_path)

    def status(self):
        return 1 if self.failures else 0 if self.ran else 77
