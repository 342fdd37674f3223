"""Addresses that a URL of unknown origin must not make this machine ask: its own networks, and cloud metadata."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit


class Refused(OSError):
    """The address belongs to a private network."""


def is_private(address: str) -> bool:
    """An IP address that is not of the public internet, however it is wrapped.

    >>> [is_private(a) for a in ("127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a00:1", "8.8.8.8")]
    [True, True, True, True, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_private(str(inner))
        return not ip.is_global or ip.teredo is not None or ip.is_multicast
    return not ip.is_global or ip.is_multicast


def is_private_host(host: str) -> bool:
    """The host of a URL is a private address in figures, also in unusual ones, or this machine's own name.

    >>> [is_private_host(h) for h in ("127.1", "2130706433", "localhost", "::1", "example.org", "8.8.8.8")]
    [True, True, True, True, False, False]
    """
    try:
        return is_private(host)
    except ValueError:
        pass
    try:
        return is_private(socket.inet_ntoa(socket.inet_aton(host)))
    except OSError:
        return host == "localhost" or host.endswith(".localhost")


def names_private(url: str) -> bool:
    """The URL itself names a private address (nothing is looked up)."""
    try:
        return is_private_host(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_own(urls: Iterable[str | None]) -> bool:
    """Most of the URLs of a collection name private addresses: it is a collection of the user's own network.

    A private address among public ones is what somebody slipped in.

    >>> is_own(["http://127.0.0.1/a", "http://10.0.0.1/b"]), is_own(["http://flickr.com/a", "http://127.0.0.1/b"])
    (True, False)
    """
    named = [names_private(url) for url in urls if url is not None]
    return sum(named) > len(named) / 2
