# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from ._context import Context
from ._peerlane import Peer, Region

class Member(NamedTuple):
    rank: int
    peer: Peer
    remote: Any
    extra: bytes

class Group:
    rank: int
    def __init__(self, rank: int, members: list[Member | None], opened: ExitStack) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rank: int) -> Member | None: ...
    def others(self) -> list[Member]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...

def exchange(context: Context, regions: Region | Sequence[Region], rank: int, size: int,
             gather: Callable[[Any], list[Any]], *, rights: str | None = None, address: str | None = None,
             extra: bytes = b'', timeout: float = 60, deadline: float | None = None) -> Group: ...
