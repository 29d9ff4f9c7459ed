# SPDX-License-Identifier: BSD-2-Clause
"""Sequences of calls that hypothesis chooses, against a model: regions, shares, transfers, messages, cancellations."""
import contextlib
import os

import peerlane as pl
import pytest

pytest.importorskip('hypothesis', reason='python3-hypothesis is not installed')
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule,
                                 run_state_machine_as_test)

from conftest import connected

NEAR = 600  # bytes of the local memory
# Offsets and lengths in hundredths of what there is; the library must refuse ranges over 100.
PARTS = st.integers(0, 105)
NEAR_AT = st.integers(0, NEAR // 2)
RIGHTS = st.sampled_from(['rwa', 'rw', 'r', 'w', 'a'])
TAGS, BYTES = st.integers(0, 1), st.integers(0, 255)


def range_of(size, at, part):
    """Return offset and length of a range in `size` bytes, of which few end behind it."""
    offset = size * at // 100
    return offset, abs(size - offset) * part // 100


class Owned:
    """Region of the far context, and the bytes that it must contain; `model` is empty once the region has ended."""

    def __init__(self, context, size, access):
        self.region, self.access = context.allocate(size, access=access), access
        self.view, self.model, self.receives = memoryview(self.region), bytearray(size), 0


class Shared:
    """Token for a part of a region, and the remote region that the near peer imported by it."""

    def __init__(self, owned, start, length, rights, peer):
        self.owned, self.start, self.length, self.rights = owned, start, length, rights
        self.token = owned.region.share(start, length, rights)
        self.remote, self.revoked, self.released = peer.import_(self.token, timeout=120), False, False

    def errors(self, right, end):
        """Return the classes of the errors of a transfer, which must raise one of them; none if it must succeed."""
        lost = self.revoked or not self.owned.model
        return ((pl.Closed,) * self.released + (pl.Invalid,) * (end > self.length) +
                (pl.Denied,) * (lost or right not in self.rights))


class Receive:
    """Posted receive of the far peer."""

    def __init__(self, operation, owned, offset, room, tag):
        self.operation, self.owned, self.offset, self.room, self.tag = operation, owned, offset, room, tag
        owned.receives += 1


def expect(errors, call, *given, **named):
    """Call a function. If there are classes of errors, it must raise one of them. Return the result of a success."""
    if not errors:
        return call(*given, **named)
    with pytest.raises(errors):
        call(*given, **named)
    return None


class Calls(RuleBasedStateMachine):
    """Two connected contexts: the near one posts transfers, the far one owns the regions."""

    fabric = progress = None
    regions, shares, receives = Bundle('regions'), Bundle('shares'), Bundle('receives')

    def __init__(self):
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.pair = self.stack.enter_context(connected(self.fabric, self.progress))
        self.peer, self.owned = self.pair.peer, []
        self.near = bytearray(range(200)) * (NEAR // 200)
        self.model = bytearray(self.near)
        self.mine = self.pair.near.register(self.near)
        self.posted, self.unexpected, self.notified = [], [], 0

    def teardown(self):
        for owned in self.owned:
            owned.view.release()
        self.stack.close()

    @invariant()
    def memory_is_that_of_the_model(self):
        assert self.near == self.model
        for owned in self.owned:
            assert owned.view == owned.model

    @rule(target=regions, size=st.integers(1, 300), access=RIGHTS)
    def allocate(self, size, access):
        self.owned.append(Owned(self.pair.far, size, access))
        return self.owned[-1]

    @rule(target=regions, owned=consumes(regions))
    def deregister(self, owned):
        owned.view.release()
        if owned.receives:
            expect((pl.Error,), owned.region.deregister)
            owned.view = memoryview(owned.region)
            return owned
        owned.region.deregister()
        expect((pl.Closed,), owned.region.share)
        self.owned.remove(owned)
        owned.model = bytearray()
        return multiple()

    @initialize(target=shares)
    def begin(self):
        return multiple(*[Shared(self.allocate(size, 'rwa'), 0, size, 'rwa', self.peer) for size in (100, 300)])

    @rule(target=shares, owned=regions, at=PARTS, part=PARTS, rights=RIGHTS)
    def share(self, owned, at, part, rights):
        size = len(owned.model)
        start, length = range_of(size, at, part)
        errors = ((pl.Closed,) * (not size) + (pl.Invalid,) * (not length or start + length > size) +
                  (pl.Denied,) * (not set(rights) <= set(owned.access)))
        if errors:
            expect(errors, owned.region.share, start, length, rights)
            return multiple()
        return Shared(owned, start, length, rights, self.peer)

    @rule(shared=consumes(shares))
    def revoke(self, shared):
        if shared.owned.model:
            shared.owned.region.revoke(shared.token)
            expect((pl.Error,), shared.owned.region.revoke, shared.token)
        expect((pl.Denied,), self.peer.import_, shared.token)
        shared.revoked = True
        self.read(shared, 0, 100, 0)
        self.write(shared, 0, 100, 0)

    @rule(shared=consumes(shares))
    def release(self, shared):
        shared.remote.release()
        shared.released = True
        self.read(shared, 0, 100, 0)

    def copy_to_far(self, shared, far_at, near_at, length):
        far_at += shared.start
        shared.owned.model[far_at:far_at + length] = self.model[near_at:near_at + length]

    def copy_to_near(self, shared, far_at, near_at, length):
        far_at += shared.start
        self.model[near_at:near_at + length] = shared.owned.model[far_at:far_at + length]

    @rule(shared=shares, at=PARTS, part=PARTS, near_at=NEAR_AT)
    def write(self, shared, at, part, near_at):
        far_at, length = range_of(shared.length, at, part)
        errors = shared.errors('w', far_at + length)
        receipt = expect(errors, self.peer.write, shared.remote, self.mine, far_at, near_at, length)
        if receipt:
            assert receipt.bytes == length
            self.copy_to_far(shared, far_at, near_at, length)

    @rule(shared=shares, at=PARTS, part=PARTS, near_at=NEAR_AT)
    def read(self, shared, at, part, near_at):
        far_at, length = range_of(shared.length, at, part)
        errors = shared.errors('r', far_at + length)
        receipt = expect(errors, self.peer.read, shared.remote, self.mine, far_at, near_at, length)
        if receipt:
            assert receipt.bytes == length
            self.copy_to_near(shared, far_at, near_at, length)

    @rule(shared=shares, places=st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True), near_at=NEAR_AT,
          to_far=st.booleans())
    def transfer_pieces(self, shared, places, near_at, to_far):
        """Move pieces of 16 bytes, in the order of `places` at the far end, one behind the other at the near end."""
        far, near = [at * 16 for at in places], [near_at + at * 16 for at in range(len(places))]
        errors = shared.errors('w' if to_far else 'r', max(far) + 16)
        call = self.peer.writev if to_far else self.peer.readv
        if expect(errors, call, shared.remote, self.mine, far, near, 16):
            for far_at, near_at in zip(far, near):
                (self.copy_to_far if to_far else self.copy_to_near)(shared, far_at, near_at, 16)

    @rule(shared=shares, word=st.integers(0, 13), add=st.integers(-2**63, 2**63 - 1), swap=st.booleans())
    def change_word(self, shared, word, add, swap):
        far_at = word * 8 + -shared.start % 8  # in the region at a multiple of 8
        at, model = shared.start + far_at, shared.owned.model
        old = int.from_bytes(model[at:at + 8], 'little')
        errors = shared.errors('a', far_at + 8)
        if swap:
            done = expect(errors, self.peer.compare_swap, shared.remote, far_at, old, add % 2**64)
        else:
            done = expect(errors, self.peer.fetch_add, shared.remote, far_at, add)
        if done:
            assert done.value == old
            model[at:at + 8] = ((0 if swap else old) + add & 2**64 - 1).to_bytes(8, 'little')

    @rule(shared=shares, at_part=PARTS, part=PARTS, near_at=NEAR_AT, to_far=st.booleans())
    def cancel_a_transfer(self, shared, at_part, part, near_at, to_far):
        """Each byte is an old or a new one afterwards; none comes later to the near memory, or after a later write."""
        far_at, length = range_of(shared.length, at_part, part)
        errors = shared.errors('w' if to_far else 'r', far_at + length)
        start = self.peer.write_start if to_far else self.peer.read_start
        try:
            operation = start(shared.remote, self.mine, far_at, near_at, length)
        except pl.Error as error:
            assert errors and isinstance(error, errors)
            return
        operation.cancel()
        try:
            assert operation.wait(120).bytes == length and not errors
        except pl.Cancelled:
            pass
        except pl.Error as error:
            assert errors and isinstance(error, errors)
            return
        if errors:
            return
        far, near, start = shared.owned, self.model, shared.start + far_at
        for at in range(length):
            now = far.view[start + at] if to_far else self.near[near_at + at]
            assert now in (far.model[start + at], near[near_at + at])
        near[near_at:near_at + length] = self.near[near_at:near_at + length]
        if to_far:  # as bytes of a cancelled write may arrive until another operation is posted
            self.write(shared, at_part, part, near_at)

    @rule(at=NEAR_AT, length=NEAR_AT, byte=BYTES)
    def fill(self, at, length, byte):
        """Use the near memory as its owner may once all operations have ended."""
        for memory in self.near, self.model:
            memory[at:at + length] = bytes([byte]) * length

    @rule(target=receives, owned=regions, at=PARTS, part=PARTS, tag=TAGS)
    def receive(self, owned, at, part, tag):
        size = len(owned.model)
        offset, room = range_of(size, at, part)
        errors = (pl.Closed,) * (not size) + (pl.Invalid,) * (offset + room > size)
        operation = expect(errors, self.pair.other.receive_start, owned.region, tag, offset=offset, length=room)
        if not operation:
            return multiple()
        posted = Receive(operation, owned, offset, room, tag)
        for message in self.unexpected:
            if message[0] == tag:
                self.unexpected.remove(message)
                self.arrives(posted, message[1])
                return multiple()
        self.posted.append(posted)
        return posted

    @rule(tag=TAGS, length=NEAR_AT, byte=BYTES)
    def send(self, tag, length, byte):
        self.peer.send(bytes([byte]) * length, tag)
        for posted in self.posted:
            if posted.tag == tag:
                self.posted.remove(posted)
                self.arrives(posted, bytes([byte]) * length)
                return
        self.unexpected.append((tag, bytes([byte]) * length))

    def arrives(self, posted, message):
        posted.owned.receives -= 1
        if len(message) > posted.room:
            expect((pl.Error,), posted.operation.wait, 30)
            return
        receipt = posted.operation.wait(120)
        assert (receipt.bytes, receipt.tag) == (len(message), posted.tag)
        posted.owned.model[posted.offset:posted.offset + len(message)] = message

    @rule(posted=receives)
    def cancel_a_receive(self, posted):
        posted.operation.cancel()
        if posted in self.posted:
            expect((pl.Cancelled,), posted.operation.wait, 30)
            self.posted.remove(posted)
            posted.owned.receives -= 1

    @rule(data=st.binary(max_size=40), count=st.integers(1, 5))
    def notify(self, data, count):
        for number in range(count):
            self.peer.notify(self.notified + number, data)
        arriving = self.pair.far.notifications(timeout=120)
        for number in range(count):
            assert next(arriving) == (self.notified + number, self.pair.other, data)
        self.notified += count


@pytest.mark.parametrize('fabric, progress', [('local', 'thread'), ('tcp', 'thread')])
def test_sequences_of_calls_agree_with_the_model(fabric, progress):
    kind = type('Calls', (Calls,), {'fabric': fabric, 'progress': progress})
    sanitized = 'san.so' in os.environ.get('LD_PRELOAD', '')
    run_state_machine_as_test(kind, settings=settings(
        derandomize=True, database=None, deadline=None, max_examples=8 if sanitized else 20, stateful_step_count=40,
        suppress_health_check=list(HealthCheck)))
