"""Values over a pipe between this service and the processes that it starts itself.

A frame is eight bytes of length and a pickle. Both ends are this very code, started by itself, so
what is unpickled was never a stranger's.
"""

import pickle
import struct
from asyncio import IncompleteReadError, StreamReader
from typing import IO, TypeVar

ValueT = TypeVar("ValueT")

_LENGTH = struct.Struct("!Q")


def pack(value: object) -> bytes:
    """The frame of a value."""
    payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(payload)) + payload


async def receive(reader: StreamReader, expected: type[ValueT]) -> ValueT:
    """The value of the next frame.

    Raises:
        EOFError: the other end is gone.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return _unpack(await reader.readexactly(length), expected)
    except IncompleteReadError as error:
        raise EOFError from error


def read(pipe: IO[bytes], expected: type[ValueT]) -> ValueT:
    """The value of the next frame, waited for.

    Raises:
        EOFError: the other end is gone.
    """
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _unpack(_exactly(pipe, length), expected)


def _unpack(payload: bytes, expected: type[ValueT]) -> ValueT:
    value = pickle.loads(payload)  # noqa: S301 - see the module
    if not isinstance(value, expected):
        raise TypeError(f"a {type(value).__name__} where a {expected.__name__} belongs")
    return value


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data
