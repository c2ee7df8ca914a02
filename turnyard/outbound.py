"""Where requests to addresses that somebody else names may go, and how much they may take.

A name is resolved once, every address it has is checked, and the connection is made to exactly one of those: what the name
means a moment later is of no account. What is refused is refused before anything is sent. Each redirect is a request of its
own, and checked as one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import httpx

from turnyard.errors import OutboundFailed, OutboundRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_PORTS = {"https": 443, "http": 80}
# What is not public by IANA's registries, some of which a Python does not know, and what a cloud keeps for itself at a public address.
_CLOSED = tuple(
    ipaddress.ip_network(n)
    for n in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24"),
        *("192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "168.63.129.16/32"),
    )
)
_UNICAST = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
# What a reader of addresses may take for a number: 0x7f.1, 017700000001, 2130706433.
_NUMERIC = re.compile(r"(?:.*\.)?(?:0[xX][0-9a-fA-F]*|[0-9]+)\.?\Z")
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is allowed.

    `hosts` are globs of names, empty meaning any public one. `ports` None means the one of the scheme. `networks` are private
    ones that may be called nonetheless, such as 10.1.0.0/16. `http` allows connections that are not encrypted. `timeout_s` is
    for a whole request, its answer included, and `most_bytes` for the body of that answer.
    """

    hosts: tuple[str, ...] = ()
    ports: frozenset[int] | None = None
    networks: tuple[str, ...] = ()
    http: bool = False
    timeout_s: float = 30.0
    most_bytes: int = 1_000_000
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the networks, so that a wrong one is found where it is written."""
        object.__setattr__(self, "_networks", tuple(ipaddress.ip_network(n) for n in self.networks))

    def check_url(self, url: httpx.URL) -> None:
        """Refuse a URL for what it says.

        Raises:
            OutboundRefused: its scheme, host, port or the way it is written is not allowed.
        """
        host = url.raw_host.decode("ascii").lower()
        port = url.port or _PORTS.get(url.scheme, 0)
        if url.scheme != "https" and not (self.http and url.scheme == "http"):
            raise OutboundRefused(f"only {'http and https' if self.http else 'https'} may be called, not {url.scheme or 'nothing'!s:.20}")
        if url.userinfo:
            raise OutboundRefused("a URL with a user name or password in it is not called; use a header")
        if not host or "%" in host or (_NUMERIC.match(host) and _literal(host) is None):
            raise OutboundRefused(f"{host!s:.100} is no host: use a name, or an address in its usual form")
        if port not in (self.ports if self.ports is not None else {_PORTS[url.scheme]}):
            raise OutboundRefused(f"port {port} may not be called")
        if self.hosts and not any(fnmatchcase(host.rstrip("."), glob.lower()) for glob in self.hosts):
            raise OutboundRefused(f"{host!s:.100} is not among the hosts that may be called: {', '.join(self.hosts):.300}")

    def check_address(self, text: str) -> None:
        """Refuse an address that is not public.

        Raises:
            OutboundRefused: it is private, local, a cloud's own, or none at all.
        """
        address = _literal(text)
        allowed = address is not None and any(each in n for n in self._networks for each in (address, _meant(address)))
        if address is None or not (allowed or is_public(address)):
            raise OutboundRefused("the host has an address that is not public; only public ones may be called")


class Guard(httpx.AsyncBaseTransport):
    """A transport that goes only where `rules` allow. Each request has a connection of its own."""

    def __init__(
        self,
        rules: Rules,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        inner: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._rules = rules
        self._resolve = resolve or resolve_name
        # no connection is kept: one to an address may have been made for another name
        limits = httpx.Limits(max_keepalive_connections=0)
        self._inner = inner or httpx.AsyncHTTPTransport(verify=tls or True, limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to an address that was checked.

        Raises:
            OutboundRefused: it must not be sent.
            httpx.TransportError: it could not be sent, or was not answered.
        """
        url = request.url
        self._rules.check_url(url)
        addresses = await self._addresses(url)
        for address in addresses[:-1]:
            try:
                return await self._inner.handle_async_request(_aimed(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(_aimed(request, addresses[-1]))

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._inner.aclose()

    async def _addresses(self, url: httpx.URL) -> list[str]:
        host = url.raw_host.decode("ascii")
        found = [host] if _literal(host) is not None else list(await self._resolve(host, url.port or _PORTS[url.scheme]))
        if not found:
            raise OutboundRefused(f"{host:.100} has no address")
        for address in found:
            self._rules.check_address(address)
        return found[:_TRIES]


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer. With `cut` the body was longer than allowed, and is its beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False


def open_client(rules: Rules, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """Return a client that goes only where `rules` allow, follows no redirect, and takes no proxy or password from its surroundings.

    `tls` says whose certificates are trusted, None meaning those of the package certifi; whoever makes many clients makes it once.
    """
    guard = Guard(rules, resolve=resolve, tls=tls)
    return httpx.AsyncClient(transport=guard, trust_env=False, timeout=rules.timeout_s, follow_redirects=False)


async def fetch(
    client: httpx.AsyncClient, method: str, url: str, *, rules: Rules, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Fetched:
    """Send one request and read its answer, within the bounds of `rules`.

    Raises:
        OutboundRefused: it must not be sent; nothing was.
        OutboundFailed: it was not answered, or not in time, or in a way that cannot be read; whether it had its effect is unknown.
    """
    try:
        async with asyncio.timeout(rules.timeout_s):
            request = client.build_request(method, url, headers={**(headers or {}), "Accept-Encoding": "identity"}, content=body)
            answer = await client.send(request, stream=True)
            try:
                return await _read(answer, rules.most_bytes)
            finally:
                await answer.aclose()
    except TimeoutError as error:
        raise OutboundFailed(f"no complete answer within {rules.timeout_s:g} s") from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError, TypeError, ValueError) as error:
        raise OutboundRefused(f"this request cannot be sent: {error!s:.200}") from error
    except httpx.HTTPError as error:
        raise OutboundFailed(f"{type(error).__name__}: {error!s:.200}") from error


async def _read(answer: httpx.Response, most_bytes: int) -> Fetched:
    if answer.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        # what is small on the way may be of any size once it is unpacked
        raise OutboundFailed("the answer is compressed, though it was asked for as it is")
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > most_bytes:
            break
    return Fetched(answer.status_code, dict(answer.headers), bytes(body[:most_bytes]), len(body) > most_bytes)


def is_public(address: Address) -> bool:
    """Tell whether an address belongs to the public internet, by what it means where it stands for another one."""
    meant = _meant(address)
    if any(meant in network for network in _CLOSED) or not meant.is_global:
        return False
    return isinstance(meant, ipaddress.IPv4Address) or meant in _UNICAST


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, the address itself where it stands for none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _aimed(request: httpx.Request, address: str) -> httpx.Request:
    """Return the request to the host's address: what the host is called stays in the Host header and in what its certificate is checked for."""
    url = request.url
    headers = request.headers.copy()
    headers["Host"] = url.netloc.decode("ascii")
    extensions = {**request.extensions, "sni_hostname": url.raw_host.decode("ascii").rstrip(".")}
    return httpx.Request(
        request.method, url.copy_with(host=address.strip("[]")), headers=headers, stream=request.stream, extensions=extensions
    )


async def resolve_name(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, none when it has none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
