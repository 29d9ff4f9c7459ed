# SPDX-License-Identifier: BSD-2-Clause
"""One virtual machine: starts it, runs commands in it, watches its kernel, and always ends it.

The runner and the machine's first process talk in lines over the second serial port:

    start JOB SECONDS CODE      run shell code, with \\n for a line break; JOB is a name without blanks
    show JOB SECONDS CODE       the same, but send its output at once
    stop JOB                    end the job
    quit                        switch off

    booted VERSION              the machine accepts commands from now on
    JOB ready                   the code called `ready`
    JOB: TEXT                   a line of the code's output, sent after its end
    JOB done STATUS             the job has ended
    end TAINTED                 the answer to `quit`, with the kernel's number of that name
"""
import itertools
import queue
import re
import subprocess
import threading
import time

# Lines of the console that report an error of the kernel.
TROUBLE = re.compile(r'^.*(?:\bWARNING: |\bBUG: |\bOops\b|Kernel panic|general protection fault|INFO: task |'
                     r'self-detected stall|detected stalls|soft lockup|refcount_t: |KASAN: |UBSAN: |DMAR: .*fault).*$',
                     re.MULTILINE)
# A defect of soft-RoCE (Linux before 6.3, rxe_mr_copy): at the end of a region of whole MiB it reads one table entry
# too many, without using it.  Only KASAN detects that.
KNOWN = 'KASAN: slab-out-of-bounds in rxe_mr_copy'
KASAN_TAINT = 1 << 5
# Other defects of soft-RoCE (Linux 6.1).  rxe_completer: an unexpected response completes a read successfully, without
# the bytes.  rxe_qp_do_cleanup: ends the tasklets of a queue pair and then runs its work once more, which may schedule
# them again, so that a tasklet runs in freed memory.  No other driver of these machines has tasklets of its own.
UNSOUND = re.compile(r'^.*(?:WARNING: .* rxe_completer|RIP: .*:tasklet_action_common).*$', re.MULTILINE)
# Lines of the console that report a crashed program.
CRASH = re.compile(r'^.*\bsegfault at .*$', re.MULTILINE)
# Taint flags that mean an error: bad page, died, warned, soft lockup.
TAINT = 1 << 5 | 1 << 7 | 1 << 9 | 1 << 14
# The emulator runs string instructions byte by byte, so the kernel and the C library must not prefer them.
PROCESSOR = 'max,-erms,-fsrm'
# Kernel parameters that save time: features that no case tests are off, and RCU grace periods are short.
PARAMETERS = ('console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off tsc=reliable no_timer_check no5lvl '
              'init_on_alloc=0 randomize_kstack_offset=off audit=0 apparmor=0 rcupdate.rcu_expedited=1')
# Seconds beyond a job's own limit after which a machine counts as hung.
GRACE = 10


class Lost(Exception):
    """The machine ended by itself, or does not answer."""


class Job:
    """Shell code that runs in a machine."""

    def __init__(self, seconds, show):
        self.deadline = time.monotonic() + seconds + GRACE
        self.show = show        # called with each line of output as it comes; None: output is sent at the end
        self.ready = False
        self.status = None
        self.output = []

    def add(self, line):
        if self.show:
            self.show(line)
        else:
            self.output.append(line)


def new_console(folder, name):
    """Creates a console file for one start, so that the console of a machine that died is kept."""
    for number in itertools.count(1):
        path = folder / (f'{name}.console' if number == 1 else f'{name}.console.{number}')
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            pass


def forget_consoles(folder):
    """Removes the console files of earlier runs."""
    for path in folder.glob('*.console*'):
        path.unlink()


class Machine:
    """A running QEMU."""

    def __init__(self, name, folder, kernel, initramfs, arguments, descriptors, khz, options=''):
        self.name = name
        self.jobs = {}
        self.booted = self.tainted = None
        self.excused = 0  # taint flags that are no failure
        self.lines = queue.Queue()
        self.seen = 0
        self.crashes = []
        self.console = new_console(folder, name)
        command = [
            # QEMU ends with the runner, however that ends.
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
            # The first and the last report: the cause and the end.
            return ', then '.join(dict.fromkeys((trouble[0], trouble[-1])))
        # QEMU's own error message, if it did not start a kernel.
        complaint = self.log.read_text(errors='replace').strip().splitlines()
        return complaint[-1] if complaint else 'QEMU ended without an error message'

    def hear(self, deadline):
        """Handles one line from the machine; raises Lost at the deadline, or if the machine has ended."""
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
        """Waits until the job is ready, or has ended."""
        while not job.ready and job.status is None:
            self.hear(job.deadline)

    def await_end(self, job):
        while job.status is None:
            self.hear(job.deadline)

    def trouble(self):
        """Returns the kernel's error reports since the last call; sets `crashes` for the same time."""
        text = self.console.read_text(errors='replace')
        new, self.seen = text[self.seen:], len(text)
        self.crashes = [line.strip() for line in CRASH.findall(new)]
        lines = [line.strip() for line in TROUBLE.findall(new)]
        if any(KNOWN in line for line in lines):
            self.excused = KASAN_TAINT
        return [line for line in lines if KNOWN not in line]

    def console_end(self, lines=10):
        """Returns the last lines of the console."""
        return self.console.read_text(errors='replace').splitlines()[-lines:]

    def unsound(self):
        """Returns the report of a driver's defect with which no program can work correctly; '' if there is none."""
        found = UNSOUND.search(self.console.read_text(errors='replace'))
        return found.group(0).strip() if found else ''

    def switch_off(self, seconds=GRACE):
        """Shuts the machine down; raises Lost if it does not end."""
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
