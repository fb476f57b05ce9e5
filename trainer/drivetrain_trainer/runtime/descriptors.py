"""File descriptors as objects, and a channel that carries them between two processes.

A `Descriptor` travels inside any pickled object sent through a `Channel`: the pickler lifts
it out, the kernel passes it (``SCM_RIGHTS``), and the receiver finds one of its own in the
same place. Nothing gets a name in a file system, so nothing can be left behind in one.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

if TYPE_CHECKING:
    from types import TracebackType

MAX_DESCRIPTORS: Final = 64
"""Descriptors of one message; the kernel's own bound is 253."""
_HEADER: Final = struct.Struct("=QI")
_INT: Final = struct.calcsize("i")
_ANCILLARY_BYTES: Final = socket.CMSG_LEN(MAX_DESCRIPTORS * _INT)


class Descriptor:
    """Owns a file descriptor: closed once, at the latest when it is collected."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """The number, for system calls.

        Raises:
            ValueError: it is closed.
        """
        if self._fd < 0:
            raise ValueError("descriptor is closed")
        return self._fd

    def close(self) -> None:
        """Close it; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a descriptor can only be sent through a Channel")


class _Pickler(pickle.Pickler):
    """Replaces each descriptor by its place in the message's ancillary data."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.descriptors: list[Descriptor] = []

    def persistent_id(self, obj: Any) -> int | None:  # noqa: ANN401  # pickle's signature
        if not isinstance(obj, Descriptor):
            return None
        if obj not in self.descriptors:
            self.descriptors.append(obj)
        return self.descriptors.index(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, descriptors: list[Descriptor]) -> None:
        super().__init__(file)
        self._descriptors = descriptors

    def persistent_load(self, pid: int) -> Descriptor:
        return self._descriptors[pid]


class Channel:
    """One end of a stream of pickled messages between a process and its child.

    Both ends are processes of one run, one the parent of the other: what is unpickled here
    was pickled by the same program.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Two connected ends."""
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(first), cls(second)

    @classmethod
    def adopt(cls, fd: int) -> Self:
        """The end that this process inherited as `fd`."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """The socket's descriptor, to be polled beside others."""
        return self._socket.fileno()

    def limit(self, seconds: float) -> None:
        """Have `send` and `receive` raise TimeoutError where the other end keeps them waiting."""
        self._socket.settimeout(seconds)

    def send(self, message: object) -> None:
        """Pickle and send; the descriptors in `message` stay open on this side as well.

        Raises:
            ValueError: more than `MAX_DESCRIPTORS` descriptors.
            BrokenPipeError: the other end is closed.
        """
        body = io.BytesIO()
        pickler = _Pickler(body)
        pickler.dump(message)
        numbers = [descriptor.fileno() for descriptor in pickler.descriptors]
        if len(numbers) > MAX_DESCRIPTORS:
            raise ValueError(
                f"{len(numbers)} descriptors in one message, at most {MAX_DESCRIPTORS}"
            )
        payload = body.getbuffer()
        header = _HEADER.pack(len(payload), len(numbers))
        if numbers:
            # The header is far below the socket's buffer: it is taken whole or not at all.
            socket.send_fds(self._socket, [header], numbers)
        else:
            self._socket.sendall(header)
        self._socket.sendall(payload)

    def receive(self) -> Any:  # noqa: ANN401  # the sender decides
        """The next message; blocks until it is here.

        Raises:
            EOFError: the other end was closed first.
        """
        header = bytearray()
        descriptors: list[Descriptor] = []
        while len(header) < _HEADER.size:
            # Not socket.recv_fds: it drops its flags, and the descriptors would be inherited.
            data, ancillary, _, _ = self._socket.recvmsg(
                _HEADER.size - len(header), _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
            )
            for _, _, packed in ancillary:
                numbers = memoryview(packed[: len(packed) // _INT * _INT]).cast("i")
                descriptors.extend(Descriptor(number) for number in numbers)
            if not data:
                raise EOFError("channel closed")
            header += data
        length, count = _HEADER.unpack(header)
        if count != len(descriptors):
            raise OSError(f"{len(descriptors)} of {count} descriptors arrived")
        return _Unpickler(io.BytesIO(self._read(length)), descriptors).load()

    def pending(self) -> bool:
        """Whether `receive` would find something (a message, or the end) without waiting."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Close this end; a second time does nothing."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, length: int) -> bytearray:
        body = bytearray()
        while len(body) < length:
            data = self._socket.recv(min(length - len(body), 1 << 20))
            if not data:
                raise EOFError("channel closed within a message")
            body += data
        return body
