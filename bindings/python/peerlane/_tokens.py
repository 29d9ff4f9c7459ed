# SPDX-License-Identifier: BSD-2-Clause
"""Tokens, blobs and invitations: bytes that one process gives to another."""
import errno
import hmac
import ipaddress
import socket
import typing

from ._errors import make_error

# Bytes of a blob: PL_REGIONS_BLOB_SIZE() of the library.
_BLOB_HEAD, _BLOB_REGION = 20, 76


def _take_bytes(value, name):
    """Return the bytes of a bytes-like object or of one with __bytes__(). bytes() takes numbers and lists of them, too."""
    if hasattr(value, '__bytes__'):
        return bytes(value)
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f'{name} must be bytes, not {type(value)!r}') from None


class Secret:
    """Immutable secret bytes, compared in constant time."""

    __slots__ = ('_content',)

    def __init__(self, content):
        object.__setattr__(self, '_content', _take_bytes(content, type(self).__name__.lower()))

    def __setattr__(self, name, value):
        raise AttributeError(f'{type(self).__name__} is immutable')

    def __bytes__(self):
        return self._content

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return hmac.compare_digest(self._content, other._content)

    def __hash__(self):
        return hash(self._content)

    def __reduce__(self):
        return type(self), (self._content,)


class Token(Secret):
    """Token of a region or a stream: every peer that presents it gets its rights. `bytes(token)` is what to send.

    A token of a stream, from Publisher.share(), has neither rights nor a length.
    """

    __slots__ = ('length', 'rights', 'expires')

    def __init__(self, content):
        from . import _peerlane

        super().__init__(content)
        length, rights, expires = _peerlane.inspect(self._content)
        object.__setattr__(self, 'length', length)
        object.__setattr__(self, 'rights', rights)
        object.__setattr__(self, 'expires', expires)

    def __repr__(self):
        until = '' if self.expires is None else f', until {self.expires:.3f}'
        if not self.rights:
            return f'<peerlane.Token of a stream{until}>'
        return f'<peerlane.Token {self.rights!r}, {self.length} bytes{until}>'


class Blob(Secret):
    """Tokens and addresses of many regions, from Context.share_all()."""

    __slots__ = ()

    def __init__(self, content):
        super().__init__(content)
        if len(self._content) < _BLOB_HEAD or (len(self._content) - _BLOB_HEAD) % _BLOB_REGION:
            raise make_error(errno.EINVAL, 'PY-NO-TOKEN', 'Blob', 'blob', f'{len(self._content)} bytes are no blob',
                             'give all bytes of Context.share_all()')

    def __repr__(self):
        return f'<peerlane.Blob of {(len(self._content) - _BLOB_HEAD) // _BLOB_REGION} regions>'


class Notification(typing.NamedTuple):
    """Number and bytes that a peer sent with notify(). `peer` is None if it was closed meanwhile."""

    value: int
    peer: object
    data: bytes


_MAGIC = b'PLI1'


def _has_no_host(address):
    """Return True if an address names no host: it has none, or 0.0.0.0 or :: in any form, which a listener may have."""
    if address.startswith('['):
        host = address[1:].partition(']')[0]
    else:
        host = address if address.count(':') > 1 else address.partition(':')[0]
    if host in ('', '*'):
        return True
    try:
        if ':' in host:
            number = ipaddress.IPv6Address(host)
            return (number.ipv4_mapped or number).is_unspecified
        return not any(socket.inet_aton(host))  # also the short forms of connect(), such as 0
    except (OSError, ValueError):
        return False  # a name


class Invitation:
    """Address of a listener, a token, and bytes of the program: all that another process needs, as one object."""

    __slots__ = ('address', 'token', 'extra')

    def __init__(self, address, token, extra=b''):
        if not isinstance(address, str):
            raise TypeError(f'address must be a text such as "host:19875", not {type(address)!r}')
        if _has_no_host(address):
            raise make_error(errno.EINVAL, 'PY-ADDRESS', 'Invitation', address,
                             'no other host reaches this address: it means all addresses of this one',
                             'give the name or the address by which others reach this host, and the port of the listener')
        self._set(address, token, extra)

    def _set(self, address, token, extra):
        self.address = str(address)
        self.token = token if isinstance(token, (Token, Blob)) else Token(token)
        self.extra = _take_bytes(extra, 'extra')

    @classmethod
    def _make(cls, address, token, extra):
        """Return an invitation with any address: processes of one host reach each other by ::, too."""
        made = cls.__new__(cls)
        made._set(address, token, extra)
        return made

    def __bytes__(self):
        kind = b'B' if isinstance(self.token, Blob) else b'T'
        parts = (self.address.encode(), bytes(self.token), self.extra)
        return _MAGIC + kind + b''.join(len(part).to_bytes(4, 'little') + part for part in parts)

    @classmethod
    def from_bytes(cls, content):
        """Return the invitation of `bytes(invitation)`. Raises ValueError for other bytes, also PY-NO-TOKEN."""
        content = _take_bytes(content, 'the invitation')
        parts, at = [], 5
        if content[:4] != _MAGIC or content[4:5] not in (b'B', b'T'):
            raise ValueError('the bytes are no invitation of Peerlane')
        for _ in range(3):
            length = int.from_bytes(content[at:at + 4], 'little')
            if at + 4 + length > len(content):
                raise ValueError('the invitation is cut')
            parts.append(content[at + 4:at + 4 + length])
            at += 4 + length
        if at != len(content):
            raise ValueError('the invitation is followed by other bytes')
        kind = Blob if content[4:5] == b'B' else Token
        try:
            address = parts[0].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f'the address of the invitation is no text: {error}') from error
        return cls._make(address, kind(parts[1]), parts[2])

    def __eq__(self, other):
        if not isinstance(other, Invitation):
            return NotImplemented
        return (self.address, self.extra) == (other.address, other.extra) and self.token == other.token

    def __hash__(self):
        return hash((self.address, self.token, self.extra))

    def __reduce__(self):
        return type(self).from_bytes, (bytes(self),)

    def __repr__(self):
        return f'<peerlane.Invitation {self.address!r}, {self.token!r}, {len(self.extra)} further bytes>'
