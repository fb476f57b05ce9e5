"""Keys and ports of a control plane of its own.

The key that signs service accounts' tokens is made here, so that no openssl is needed; the
server's certificate is the one that it makes for itself.
"""

from __future__ import annotations

import base64
import random
import secrets
import socket
from pathlib import Path

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_CURVE_OID = bytes.fromhex("06082a8648ce3d030107")
_KEY_OID = bytes.fromhex("06072a8648ce3d0201")
_LOWEST_PORT = 20_000


def write_signing_key(private: Path, public: Path) -> None:
    """Write a new key pair on the curve P-256, as PEM."""
    secret = secrets.randbelow(_ORDER - 1) + 1
    x, y = _multiply(secret)
    point = _der(0x03, b"\0\4" + x.to_bytes(32) + y.to_bytes(32))
    number = _der(0x02, b"\1") + _der(0x04, secret.to_bytes(32))
    key = _der(0x30, number + _der(0xA0, _CURVE_OID) + _der(0xA1, point))
    private.touch(mode=0o600)
    private.write_text(_pem("EC PRIVATE KEY", key))
    public.write_text(_pem("PUBLIC KEY", _der(0x30, _der(0x30, _KEY_OID + _CURVE_OID) + point)))


def _multiply(times: int) -> tuple[int, int]:
    """The base point added to itself; not hardened, for tests' keys alone."""
    result: tuple[int, int] | None = None
    addend = _BASE
    while times:
        if times & 1:
            result = addend if result is None else _add(result, addend)
        addend = _add(addend, addend)
        times >>= 1
    assert result is not None
    return result


def _add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = left, right
    if left == right:
        slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, _P) % _P
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _P) % _P
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    assert length < 256
    return bytes([tag, *([length] if length < 128 else [0x81, length])]) + content


def _pem(label: str, der: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that outgoing connections are given.

    A server may so be stopped for a while and find its port free again.
    """
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    above = max(lowest_given, _LOWEST_PORT + 10_000)
    found: list[int] = []
    for port in random.SystemRandom().sample(range(_LOWEST_PORT, above), 500):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports between {_LOWEST_PORT} and {above}")
