# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence
from typing import Any

from ._context import Context
from ._exchange import Group
from ._peerlane import Region

__all__ = ['exchange']

def exchange(group: Any, context: Context, regions: Region | Sequence[Region], *, rights: str | None = None,
             address: str | None = None, extra: bytes = b'', timeout: float = 60) -> Group: ...
