"""Addresses that a URL of unknown origin must not make this machine request: its own networks, and cloud metadata.

The decision is made about the IP address to which a connection is opened, at the moment when it is opened. So no
spelling of a host, no name, no redirect and no second DNS answer passes it.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

Mode = Literal["auto", "allow", "refuse"]
MESSAGE = "a URL in a private network"
# Metadata services of clouds whose addresses are not link-local: Alibaba, AWS over IPv6, Google over IPv6.
METADATA = {ipaddress.ip_address(a) for a in ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254")}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Refused(OSError):
    """The address belongs to a private network."""


def guard(mode: Mode, redirected: bool) -> Callable[[str], bool]:
    """Whether a connection to an IP address is refused.

    mode: `auto` stands for a collection on the user's own network: its servers may be requested, but never cloud
    metadata and link-local addresses, and no other private server by a redirect.
    redirected: whether another server named the address.
    """
    if mode == "allow":
        return lambda _: False
    return is_private if redirected or mode == "refuse" else is_metadata


def _unwrapped(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address; the IPv4 address that is wrapped in an IPv6 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return inner or ip
    return ip


def is_metadata(address: str) -> bool:
    """Whether an IP address is link-local or a cloud's metadata service.

    >>> [is_metadata(a) for a in ("169.254.169.254", "::ffff:a9fe:a9fe", "fd00:ec2::254", "10.0.0.1")]
    [True, True, True, False]
    """
    ip = _unwrapped(address)
    return ip.is_link_local or ip in METADATA


def is_private(address: str) -> bool:
    """Whether an IP address, also one wrapped in IPv6, is not of the public internet.

    >>> [is_private(a) for a in ("127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a00:1", "8.8.8.8")]
    [True, True, True, True, False]
    """
    ip = _unwrapped(address)
    tunnel = isinstance(ip, ipaddress.IPv6Address) and ip.teredo is not None
    return not ip.is_global or tunnel or ip.is_multicast


@lru_cache(4096)
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
    except (OSError, ValueError):  # ValueError: text that is no name
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


def origin(url: str) -> tuple[str, str]:
    """The server of a URL: scheme, and host with port."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()
