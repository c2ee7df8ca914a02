"""Where requests to addresses that somebody else names may go, and that none gets further than it may."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.errors import OutboundFailed, OutboundRefused
from turnyard.outbound import Guard, Rules, fetch, is_public, open_client

PUBLIC, OTHER = "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"
LOCAL = Rules(http=True, networks=("127.0.0.0/8",), ports=None)

PRIVATE = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15",
    "192.0.2.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32",
    "::/128", "::1/128", "fc00::/7", "fd00:ec2::254/128", "fe80::/10", "fec0::/10", "ff00::/8", "2001::/32", "2001:db8::/32", "2002::/16",
    "64:ff9b:1::/48", "100::/64", "4000::/3",
]  # fmt: skip


class Names:
    """A resolver that answers with one list after the other; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(f"{host}:{port}")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Wire(httpx.AsyncBaseTransport):
    """What would go out, and what comes back."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers) or [httpx.Response(200)]
        self.sent: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(b""))


def client(wire: Wire, names: Names, rules: Rules | None = None, **options: Any) -> httpx.AsyncClient:
    """A client whose wire and names a test holds."""
    return httpx.AsyncClient(transport=Guard(rules or Rules(), resolve=names, inner=wire), trust_env=False, **options)


@asynccontextmanager
async def serving(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncGenerator[int]:
    """A server of this machine; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


# -- what a URL may say


@pytest.mark.spec("S7")
@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://user@example.com/",
        "https://user:word@example.com/",
        "https://example.com:8443/",
        "https://example.com:22/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://017700000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://0x7f.0.0.1/",
        "https://127.0.0.1./",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:7f00:1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::7f00:1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://[fe80::1]/",
        "https://[fd00:ec2::254]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://100.64.0.1/",
        "https:///path",
        "//example.com/",
        "nonsense",
    ],
)
async def test_a_url_that_leads_inside_is_refused_before_anything_is_sent(url: str) -> None:
    wire = Wire()
    async with client(wire, Names(["127.0.0.1"])) as http:
        with pytest.raises(OutboundRefused):
            await fetch(http, "GET", url, rules=Rules())
    assert wire.sent == []


@given(net=st.sampled_from(PRIVATE), drawn=st.integers(min_value=0))
def test_no_address_of_a_network_that_is_not_public_passes_in_any_of_its_forms(net: str, drawn: int) -> None:
    network = ipaddress.ip_network(net)
    address = network[drawn % network.num_addresses]
    assert not is_public(address)
    if isinstance(address, ipaddress.IPv4Address):
        number = int(address)
        for form in (0xFFFF << 32 | number, number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
            assert not is_public(ipaddress.IPv6Address(form))


@pytest.mark.parametrize("address", [PUBLIC, OTHER, "8.8.8.8", "1.1.1.1", "2a00:1450:4001::1", f"::ffff:{PUBLIC}", f"64:ff9b::{PUBLIC}"])
def test_public_addresses_pass(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


# -- names


@pytest.mark.spec("S7")
async def test_a_request_goes_to_the_address_that_was_checked_whatever_the_name_means_later() -> None:
    names, wire = Names([PUBLIC], ["127.0.0.1"]), Wire()
    async with client(wire, names) as http:
        await fetch(http, "GET", "https://example.com/a?b=c", rules=Rules())
        with pytest.raises(OutboundRefused, match="not public"):
            await fetch(http, "GET", "https://example.com/", rules=Rules())
    (sent,) = wire.sent
    assert (sent.url, sent.headers["host"]) == (httpx.URL(f"https://{PUBLIC}/a?b=c"), "example.com")
    assert sent.extensions["sni_hostname"] == "example.com"
    assert names.asked == ["example.com:443"] * 2


@pytest.mark.spec("S7")
@pytest.mark.parametrize("addresses", [[PUBLIC, "10.0.0.1"], [OTHER, "::1"], ["169.254.169.254", PUBLIC], ["fe80::1%eth0"], ["what"], []])
async def test_a_name_of_which_one_address_is_not_public_is_refused_as_a_whole(addresses: list[str]) -> None:
    wire = Wire()
    async with client(wire, Names(addresses)) as http:
        with pytest.raises(OutboundRefused):
            await fetch(http, "GET", "https://example.com/", rules=Rules())
    assert wire.sent == []


@pytest.mark.spec("S7")
async def test_a_redirect_is_not_followed_and_where_it_is_it_is_checked() -> None:
    away = httpx.Response(302, headers={"Location": "http://169.254.169.254/latest/meta-data/"})
    rules = Rules(http=True)
    async with client(Wire(away), Names([PUBLIC]), rules) as http:
        assert (await fetch(http, "GET", "https://example.com/", rules=rules)).status == 302
    wire = Wire(away)
    async with client(wire, Names([PUBLIC]), rules, follow_redirects=True) as http:
        with pytest.raises(OutboundRefused, match="not public"):
            await fetch(http, "GET", "https://example.com/", rules=rules)
    assert len(wire.sent) == 1


async def test_the_next_checked_address_is_tried_when_nobody_answers_at_the_first() -> None:
    wire = Wire(httpx.ConnectError("no route"), httpx.Response(204))
    async with client(wire, Names([OTHER, PUBLIC])) as http:
        assert (await fetch(http, "POST", "https://example.com/", rules=Rules(), body=b"x")).status == 204
    assert [request.url.host for request in wire.sent] == [OTHER, PUBLIC]


async def test_a_name_of_this_machine_is_refused_by_what_it_resolves_to() -> None:
    async with open_client(Rules()) as http:
        for host in ("localhost", "no-such-host.invalid"):
            with pytest.raises(OutboundRefused):
                await fetch(http, "GET", f"https://{host}/", rules=Rules())


@pytest.mark.parametrize(
    ("url", "rules", "passes"),
    [
        ("https://api.acme.io/", Rules(hosts=("*.acme.io",)), True),
        ("https://API.acme.io./", Rules(hosts=("api.acme.io",)), True),
        ("https://acme.io.evil.com/", Rules(hosts=("*.acme.io",)), False),
        ("https://evil-acme.io/", Rules(hosts=("*.acme.io", "acme.io")), False),
        ("http://acme.io/", Rules(http=True), True),
        ("https://acme.io:8443/", Rules(ports=frozenset({8443})), True),
        ("https://acme.io/", Rules(ports=frozenset({8443})), False),
    ],
)
async def test_hosts_schemes_and_ports_are_those_that_the_rules_name(url: str, rules: Rules, passes: bool) -> None:
    wire = Wire()
    async with client(wire, Names([PUBLIC]), rules) as http:
        if passes:
            await fetch(http, "GET", url, rules=rules)
        else:
            with pytest.raises(OutboundRefused):
                await fetch(http, "GET", url, rules=rules)
    assert len(wire.sent) == passes


async def test_a_private_network_may_be_allowed_by_name() -> None:
    wire = Wire()
    rules = Rules(networks=("10.1.0.0/16", "::1/128"))
    async with client(wire, Names(["10.1.2.3"], ["::1"], ["10.2.0.1"]), rules) as http:
        for _ in range(2):
            await fetch(http, "GET", "https://vault.internal/", rules=rules)
        with pytest.raises(OutboundRefused):
            await fetch(http, "GET", "https://vault.internal/", rules=rules)
    assert [request.url.host for request in wire.sent] == ["10.1.2.3", "::1"]


# -- real connections


@pytest.mark.spec("S7")
async def test_the_name_is_what_the_other_side_is_asked_for_and_its_certificate_checked_against() -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(4096))

    async with serving(listen) as port:
        rules = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}))
        async with open_client(rules, resolve=Names(["127.0.0.1"])) as http:
            with pytest.raises(OutboundFailed):
                await fetch(http, "GET", f"https://shop.example.com:{port}/", rules=rules)
    assert heard[0] == 22  # a TLS handshake
    assert b"shop.example.com" in heard


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return how a server of this name shows its certificate, and how a client trusts it."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = folder / "server.pem"
    path.write_bytes(pem + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=str(path))


@pytest.mark.spec("S7")
async def test_a_certificate_is_checked_for_the_name_though_the_connection_goes_to_an_address(tmp_path: Path) -> None:
    shows, trusts = certificate(tmp_path, "shop.example.com")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()

    async with serving(answer, tls=shows) as port:
        rules = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}))
        async with open_client(rules, resolve=Names(["127.0.0.1"]), tls=trusts) as http:
            assert (await fetch(http, "GET", f"https://shop.example.com:{port}/", rules=rules)).body == b"hi"
            with pytest.raises(OutboundFailed, match="certificate verify failed"):
                await fetch(http, "GET", f"https://other.example.com:{port}/", rules=rules)


async def test_an_answer_is_read_as_it_is_and_the_host_header_is_the_name() -> None:
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello")
        await writer.drain()

    async with serving(answer) as port:
        rules = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}), http=True)
        async with open_client(rules, resolve=Names(["127.0.0.1"])) as http:
            got = await fetch(http, "GET", f"http://shop.example.com:{port}/", rules=rules, headers={"Host": "inside"})
    assert (got.status, got.body, got.cut, got.headers["x-a"]) == (200, b"hello", False, "b")
    assert f"Host: shop.example.com:{port}".encode() in heard
    assert b"inside" not in heard


@pytest.mark.spec("S7")
async def test_a_body_that_is_too_long_is_cut_and_the_rest_is_never_read() -> None:
    stopped = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            stopped.set()

    async with serving(answer) as port:
        rules = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}), http=True, most_bytes=1000)
        async with open_client(rules) as http:
            got = await fetch(http, "GET", f"http://127.0.0.1:{port}/", rules=rules)
            await asyncio.wait_for(stopped.wait(), 10)
    assert (len(got.body), got.cut) == (1000, True)


@pytest.mark.spec("S7")
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"])
async def test_an_answer_that_takes_too_long_is_given_up(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()
        await reader.read()

    async with serving(answer) as port:
        patient = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}), http=True, timeout_s=1.0)
        async with open_client(patient) as http:  # which would go on as long as a byte comes now and then
            with pytest.raises(OutboundFailed, match="no complete answer"):
                await fetch(http, "GET", f"http://127.0.0.1:{port}/", rules=replace(patient, timeout_s=0.05))


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"nonsense\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
    ],
)
async def test_an_answer_that_cannot_be_read_is_a_failure(raw: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()

    async with serving(answer) as port:
        rules = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}), http=True)
        async with open_client(rules) as http:
            with pytest.raises(OutboundFailed):
                await fetch(http, "GET", f"http://127.0.0.1:{port}/", rules=rules)


@pytest.mark.parametrize(
    "bad", [{"method": "GE T"}, {"headers": {"X-A": "b\r\nHost: inside"}}, {"headers": {"X A": "b"}}, {"url": "https://exa mple.com/"}]
)
async def test_a_request_that_says_more_than_it_may_is_not_sent(bad: dict[str, Any]) -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())

    async with serving(listen) as port:
        rules = Rules(networks=("127.0.0.0/8",), ports=frozenset({port}), http=True)
        request: dict[str, Any] = {"method": "GET", "url": f"http://127.0.0.1:{port}/"} | bad
        async with open_client(rules) as http:
            with pytest.raises((OutboundRefused, OutboundFailed)):
                await fetch(http, request.pop("method"), request.pop("url"), rules=rules, **request)
    assert heard == b""
