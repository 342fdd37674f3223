"""Addresses that a URL of unknown origin must not make this machine request: its own networks, and cloud metadata."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit


class Refused(OSError):
    """The address belongs to a private network."""


def is_private(address: str) -> bool:
    """Whether an IP address, also one wrapped in IPv6, is not of the public internet.

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
    """Whether the host of a URL is a private address in any notation, or localhost.

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
    """Whether the URL itself names a private address (without a DNS query)."""
    try:
        return is_private_host(urlsplit(url).hostname or "")
    except ValueError:
        return False


def mostly_private(urls: Iterable[str | None]) -> bool:
    """Whether most of the URLs of a collection name private addresses: then it is on the user's own network.

    A few private addresses among public ones are an attack.

    >>> mostly_private(["http://127.0.0.1/a", "http://10.0.0.1/b", None])
    True
    >>> mostly_private(["http://flickr.com/a", "http://127.0.0.1/b"])
    False
    """
    private = [names_private(url) for url in urls if url is not None]
    return sum(private) > len(private) / 2
