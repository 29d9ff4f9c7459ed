# SPDX-License-Identifier: BSD-2-Clause
"""One virtual machine: started, told what to run, watched, and ended whatever happens.

The runner and the machine's first process talk in lines over the second serial port:

    start JOB SECONDS CODE      run shell code, with \\n for a line break; JOB is a name without blanks
    show JOB SECONDS CODE       the same, but tell its output at once
    stop JOB                    end it
    quit                        switch off

    booted VERSION              the machine obeys from now on
    JOB ready                   the code called `ready`
    JOB: TEXT                   a line of the code's output, told when it ended
    JOB done STATUS             it ended
    end TAINTED                 the answer to `quit`, with the kernel's number of that name
"""
import itertools
import queue
import re
import subprocess
import threading
import time

# What the kernel writes when something is wrong with it.
TROUBLE = re.compile(r'^.*(?:\bWARNING: |\bBUG: |\bOops\b|Kernel panic|general protection fault|INFO: task |'
                     r'self-detected stall|detected stalls|soft lockup|refcount_t: |KASAN: |UBSAN: |DMAR: .*fault).*$',
                     re.MULTILINE)
# A mistake of soft-RoCE's: at the end of a region of whole MiB it reads the entry after the last one of its table, and
# does not use it (Linux before 6.3, rxe_mr_copy).  Only KASAN sees that.
KNOWN = 'KASAN: slab-out-of-bounds in rxe_mr_copy'
KASAN_TAINT = 1 << 5
# Another one: a response that it does not expect ends a read as if it had succeeded, without the bytes (Linux 6.1,
# rxe_completer).
UNSOUND = re.compile(r'^.*WARNING: .* rxe_completer.*$', re.MULTILINE)
# What it writes of a program that crashed.
CRASH = re.compile(r'^.*\bsegfault at .*$', re.MULTILINE)
# Of the reasons to be tainted those that mean that it went wrong: bad page, died, warned, soft lockup.
TAINT = 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14
# Emulated, string instructions go byte by byte: better not have the kernel and the C library prefer them.
PROCESSOR = 'max,-erms,-fsrm'
# What costs time there and shows nothing here is off; to wait for all processors is made short.
PARAMETERS = ('console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check no5lvl '
              'init_on_alloc=0 randomize_kstack_offset=off audit=0 apparmor=0 rcupdate.rcu_expedited=1')
# How long a machine may take beyond a job's own limit until it counts as hung.
GRACE = 10


class Lost(Exception):
    """The machine ended by itself, or answers no more."""


class Job:
    """Shell code that runs in a machine."""

    def __init__(self, seconds, show):
        self.deadline = time.monotonic() + seconds + GRACE
        self.show = show        # what to do with a line of output as it comes, None to wait for the end
        self.ready = False
        self.status = None
        self.output = []

    def add(self, line):
        if self.show:
            self.show(line)
        else:
            self.output.append(line)


def new_console(folder, name):
    """A file of its own for each start: what the kernel wrote before it died stays when the next machine follows."""
    for number in itertools.count(1):
        path = folder / (f'{name}.console' if number == 1 else f'{name}.console.{number}')
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            pass


def forget_consoles(folder):
    """Those of runs before."""
    for path in folder.glob('*.console*'):
        path.unlink()


class Machine:
    """A running QEMU."""

    def __init__(self, name, folder, kernel, initramfs, arguments, descriptors, khz, options=''):
        self.name = name
        self.jobs = {}
        self.booted = self.tainted = None
        self.excused = 0  # reasons to be tainted that do not count
        self.lines = queue.Queue()
        self.seen = 0
        self.crashes = []
        self.console = new_console(folder, name)
        command = [
            # However the runner ends, the machine goes with it.
            'setpriv', '--pdeathsig', 'KILL', 'qemu-system-x86_64',
            '-M', 'q35', '-cpu', PROCESSOR, '-nodefaults', '-display', 'none', '-no-reboot',
            '-kernel', str(kernel.image), '-initrd', str(initramfs),
            '-append', PARAMETERS + (f' tsc_early_khz={khz}' if khz else '') + f' {options}',
            '-serial', f'file:{self.console}', '-serial', 'stdio', *arguments]
        with open(folder / f'{name}.qemu', 'wb') as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            pass_fds=descriptors, start_new_session=True)
        self.log = folder / f'{name}.qemu'
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line.decode(errors='replace').rstrip('\r\n'))
        self.lines.put(None)

    def say(self, line):
        try:
            self.process.stdin.write(line.encode() + b'\n')
            self.process.stdin.flush()
        except OSError as error:
            raise self.lost(self.last_words()) from error

    def lost(self, reason):
        return Lost(f'{reason} (its console: {self.console})')

    def last_words(self):
        trouble = self.trouble()
        if trouble:
            # What it began with, and what ended it.
            return ', then '.join(dict.fromkeys((trouble[0], trouble[-1])))
        # QEMU's own complaint, if it never got as far as a kernel.
        complaint = self.log.read_text(errors='replace').strip().splitlines()
        return complaint[-1] if complaint else 'it ended without a word'

    def hear(self, deadline):
        """Takes in one line; raises Lost if none comes in time, or will never."""
        try:
            line = self.lines.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise self.lost('it does not answer') from None
        if line is None:
            raise self.lost(self.last_words())
        word, _, rest = line.partition(' ')
        if word == 'booted':
            self.booted = rest
        elif word == 'end':
            self.tainted = int(rest)
        elif word.endswith(':') and word[:-1] in self.jobs:
            self.jobs[word[:-1]].add(rest)
        elif word in self.jobs and rest == 'ready':
            self.jobs[word].ready = True
        elif word in self.jobs and rest.startswith('done '):
            self.jobs[word].status = int(rest[len('done '):])

    def await_boot(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.booted:
            self.hear(deadline)

    def start(self, name, seconds, code, show=None):
        job = self.jobs[name] = Job(seconds, show)
        escaped = code.replace('\\', '\\\\').replace('\n', '\\n')
        self.say(f'{"show" if show else "start"} {name} {seconds} {escaped}')
        return job

    def await_ready(self, job):
        """Until the job is ready, or has ended."""
        while not job.ready and job.status is None:
            self.hear(job.deadline)

    def await_end(self, job):
        while job.status is None:
            self.hear(job.deadline)

    def trouble(self):
        """What the kernel has complained about since the last time somebody asked; `crashes` is of that time too."""
        text = self.console.read_text(errors='replace')
        new, self.seen = text[self.seen:], len(text)
        self.crashes = [line.strip() for line in CRASH.findall(new)]
        lines = [line.strip() for line in TROUBLE.findall(new)]
        if any(KNOWN in line for line in lines):
            self.excused = KASAN_TAINT
        return [line for line in lines if KNOWN not in line]

    def unsound(self):
        """What the driver did, so that no program could do right; '' if nothing is known of that."""
        found = UNSOUND.search(self.console.read_text(errors='replace'))
        return found.group(0).strip() if found else ''

    def switch_off(self, seconds=GRACE):
        """Ends the machine in order; raises Lost if it does not."""
        self.say('quit')
        deadline = time.monotonic() + seconds
        while self.tainted is None:
            self.hear(deadline)
        try:
            status = self.process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self.lost('it does not switch off') from None
        if status:
            raise self.lost(f'QEMU ended with status {status}')

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
