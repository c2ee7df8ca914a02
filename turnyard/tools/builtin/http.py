"""A tool by which a model calls HTTP servers: those that the agent's author names, in a way that no argument can widen.

Redirects are not followed: the model is told where they lead, and calls again if it may. What changes something carries the
call's idempotency key and its fence, so that a repeated or a stale attempt can be told by the server.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import Message
from typing import Annotated, Any, Literal

import httpx
import orjson
from pydantic import Field

from turnyard.errors import ConfigError, OutboundFailed, OutboundRefused, ToolError
from turnyard.fence import FENCE_HEADER, KEY_HEADER, claim_headers
from turnyard.outbound import Fetched, Resolve, Rules, fetch, open_client
from turnyard.tools.context import ToolContext
from turnyard.tools.secrets import Secret, all_revealed
from turnyard.tools.tool import Tool, tool

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_READS = frozenset({"GET", "HEAD"})
_KNOWN: tuple[Method, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SHOWN = ("content-type", "location", "retry-after", "etag", "last-modified", "link")
# What says whom a request is for, how it is framed, and which attempt it is, is not the model's to say.
_OURS = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "accept-encoding",
    "proxy-authorization", "proxy-connection", KEY_HEADER.lower(), FENCE_HEADER.lower(),
})  # fmt: skip
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_MIN_SECRET_CHARS = 6
_MAX_URL_CHARS = 4_000
_MAX_BODY_CHARS = 200_000


def http_request(
    hosts: Sequence[str],
    *,
    methods: Sequence[Method] = ("GET",),
    headers: Mapping[str, str | Secret] | None = None,
    rules: Rules | None = None,
    name: str = "http_request",
    description: str | None = None,
    idempotent: bool | None = None,
    timeout: timedelta | float = timedelta(minutes=1),
    approval: Any = False,
    resolve: Resolve | None = None,
) -> Tool[..., Any]:
    """Return a tool that calls servers over HTTP.

    Args:
        hosts: globs of the hosts that may be called, as in "api.acme.io" or "*.acme.io"; "*" is any public one.
        methods: what may be done there.
        headers: sent with every request, secrets among them; the model neither sees nor replaces them.
        rules: what else is allowed; None: https on its usual port, answers up to 1 MB, 30 s for each. Its `hosts` are those above.
        name: what the tool is called; an agent may have several.
        description: what models are told of it; None says which hosts and methods there are.
        idempotent: whether a call may be repeated after a crash; None: if it can only read. Say True where the servers heed
            the header Idempotency-Key.
        timeout: how long a call may take as a whole, a timedelta or seconds.
        approval: which calls wait until people allow them, as for `@tool`.
        resolve: what finds the addresses of a host; None: the system.

    Raises:
        ConfigError: there are no hosts, a method is unknown, or a header is one that cannot be given.
    """
    caller = _Caller(_rules(name, hosts, rules), dict(headers or {}), resolve)
    _check(name, methods, caller.headers)

    async def call(ctx: ToolContext[Any], method: Any, url: Any, headers: Any = None, body: Any = None) -> str:
        return await caller.call(ctx, method, url, headers or {}, body)

    call.__name__ = call.__qualname__ = name
    call.__annotations__ = {
        "method": Literal[tuple(methods)],
        "url": Annotated[str, Field(max_length=_MAX_URL_CHARS, description="the whole URL, beginning with https://")],
        "headers": Annotated[dict[str, str] | None, Field(max_length=50, description="more headers")],
        "body": Annotated[Any, Field(description="what is sent: a text as it is, anything else as JSON")],
    }
    call.__doc__ = description or f"Call an HTTP server: {', '.join(methods)}. Hosts: {', '.join(hosts)}."
    again = set(methods) <= _READS if idempotent is None else idempotent
    return tool(idempotent=again, timeout=timeout, approval=approval)(call)


@dataclass(slots=True)
class _Caller:
    rules: Rules
    headers: dict[str, str | Secret]
    resolve: Resolve | None
    _tls: ssl.SSLContext | None = field(default=None, repr=False)

    async def call(self, ctx: ToolContext[Any], method: str, url: str, given: Mapping[str, str], body: Any) -> str:
        """Send one request; return its answer as text.

        Raises:
            ToolError: it was refused, failed, or was answered with an error.
        """
        fixed = all_revealed(self.headers)
        sent = _model_headers(given, fixed) | fixed | ({} if method in _READS else claim_headers(ctx))
        content = _encoded(body, sent) if body is not None else None
        # made once: it reads a file of certificates, which takes longer than many a request
        self._tls = self._tls or httpx.create_ssl_context(trust_env=False)
        try:
            async with open_client(self.rules, resolve=self.resolve, tls=self._tls) as client:
                answer = await fetch(client, method, url, rules=self.rules, headers=sent, body=content)
        except OutboundRefused as error:
            raise ToolError(f"not sent: {error}") from None
        except OutboundFailed as error:
            effect = "" if method in _READS else "; whether it had its effect is unknown"
            raise ToolError(_hidden(f"{error}{effect}", fixed, self.headers)) from None
        text = _hidden(_shown(answer), fixed, self.headers)
        if answer.status >= 400:
            raise ToolError(text)
        return text


def _rules(name: str, hosts: Sequence[str], rules: Rules | None) -> Rules:
    if not hosts or isinstance(hosts, str):
        raise ConfigError(f"tool {name}: hosts= is a list of the hosts that may be called, such as ['api.acme.io']")
    given = rules or Rules()
    return Rules(
        hosts=tuple(hosts),
        ports=given.ports,
        networks=given.networks,
        http=given.http,
        timeout_s=given.timeout_s,
        most_bytes=given.most_bytes,
    )


def _check(name: str, methods: Sequence[str], headers: Mapping[str, str | Secret]) -> None:
    unknown = [method for method in methods if method not in _KNOWN]
    if unknown or not methods:
        raise ConfigError(f"tool {name}: methods= are some of {', '.join(_KNOWN)}, not {', '.join(unknown) or 'none'}")
    wrong = [header for header in headers if header.lower() in _OURS or not _NAME.match(header)]
    if wrong:
        raise ConfigError(f"tool {name}: the header {wrong[0]!r} cannot be given")


def _model_headers(given: Mapping[str, str], fixed: Mapping[str, str]) -> dict[str, str]:
    taken = _OURS | {name.lower() for name in fixed}
    for name, value in given.items():
        if name.lower() in taken or not _NAME.match(name) or any(ord(char) < 32 or ord(char) > 126 for char in value):
            raise ToolError(f"not sent: the header {name[:100]!r} cannot be given")
    return dict(given)


def _encoded(body: Any, headers: dict[str, str]) -> bytes:
    """Return the body as bytes; of JSON the headers say that it is."""
    if isinstance(body, str):
        content = body.encode("utf-8", "replace")
    else:
        content = orjson.dumps(body)
        if all(name.lower() != "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
    if len(content) > _MAX_BODY_CHARS:
        raise ToolError(f"not sent: the body has {len(content):,} bytes and may have {_MAX_BODY_CHARS:,}")
    return content


def _shown(answer: Fetched) -> str:
    head = [f"HTTP {answer.status}", *(f"{name}: {answer.headers[name]}" for name in _SHOWN if name in answer.headers)]
    if 300 <= answer.status < 400 and "location" in answer.headers:
        head.append("(redirects are not followed; call the location if you want what is there)")
    kind = Message()
    kind["content-type"] = answer.headers.get("content-type", "")
    text = _decoded(answer.body, kind.get_content_charset() or "utf-8")
    if text is None:
        return "\n".join((*head, "", f"({len(answer.body):,} bytes that are no text)"))
    return "\n".join((*head, "", text, *(("(cut: the answer goes on)",) if answer.cut else ())))


def _decoded(body: bytes, charset: str) -> str | None:
    if b"\0" in body[:1024]:
        return None
    try:
        return body.decode(charset, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _hidden(text: str, fixed: Mapping[str, str], headers: Mapping[str, str | Secret]) -> str:
    """Return a text without the secrets that a server may have sent back."""
    for name, value in fixed.items():
        if isinstance(headers[name], Secret) and len(value) >= _MIN_SECRET_CHARS:
            text = text.replace(value, f"({headers[name]})")
    return text
