"""How to reach any server that speaks OpenAI's Chat Completions: OpenAI, vLLM, Ollama, LiteLLM, OpenRouter and others.

One request is one attempt: nothing is retried here, because whoever asked holds a lease and a budget. Every way an
answer can fail ends in a `ModelError` that says whether another attempt may help and how long to wait before it.
"""

from __future__ import annotations

import asyncio
import codecs
import math
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from turnyard.errors import ConfigError, ModelError
from turnyard.ports import Clock, Delta, Done, ModelRequest
from turnyard.providers.openai_wire import Assembly, encode_request, error_of, read_json
from turnyard.records.sse import Event, SSEParser

OPENAI_URL = "https://api.openai.com/v1"
_END = "[DONE]"
# How long the rest of a body may take after [DONE]; reading it lets the connection be used again.
_DRAIN_S = 0.2
_REFUSAL_BYTES = 65_536
_OK, _TOO_MANY = 200, 429
_RETRYABLE = frozenset({408, 409, 425, _TOO_MANY})
_OVERLOADED = frozenset({503, 529})


@dataclass(frozen=True, slots=True)
class OpenAISettings:
    """Where the server is and how long it may be silent.

    `stall_timeout_s` is the longest gap between two pieces of the body, of any kind; `silence_timeout_s` the longest
    time in which only keep-alives come. `api_key` "" sends no credential.
    """

    base_url: str
    api_key: str = ""
    connect_timeout_s: float = 5.0
    stall_timeout_s: float = 60.0
    silence_timeout_s: float = 300.0


def read_settings(settings: Mapping[str, Any]) -> OpenAISettings:
    """Return the settings given, and for those not given OPENAI_BASE_URL and OPENAI_API_KEY.

    Raises:
        ConfigError: a setting is unknown or wrong, or OpenAI's own server is used without a key.
    """
    names = OpenAISettings.__slots__
    unknown = sorted(settings.keys() - set(names))
    if unknown:
        raise ConfigError(f"openai: setting {unknown[0]!r} is not known; known are {', '.join(names)}")
    given = {name: value for name, value in settings.items() if value is not None}
    read = OpenAISettings(
        base_url=str(given.pop("base_url", None) or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/"),
        api_key=str(given.pop("api_key", None) or os.environ.get("OPENAI_API_KEY") or "").strip(),
        **{name: _seconds(name, value) for name, value in given.items()},
    )
    if not _is_web_url(read.base_url):
        raise ConfigError(f"openai: base_url {read.base_url!r} must be a whole URL that starts with http:// or https://")
    if not (read.api_key.isascii() and read.api_key.isprintable()):
        raise ConfigError("openai: the API key holds characters that no key has; copy it again")
    if not read.api_key and read.base_url == OPENAI_URL:
        raise ConfigError("openai: no API key; set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none")
    return read


def _is_web_url(text: str) -> bool:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"openai: {name} must be a number of seconds above 0, not {value!r}")
    return float(value)


class OpenAIChat:
    """A server that speaks Chat Completions. Holds one HTTP client, whose connections are kept alive."""

    def __init__(self, settings: OpenAISettings, *, clock: Clock, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._clock = clock
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if settings.api_key:
            headers["authorization"] = f"Bearer {settings.api_key}"
        stall_s = settings.stall_timeout_s
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(stall_s, connect=settings.connect_timeout_s, pool=None),
            # How many calls run at once is decided by who takes turns, not here.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0),
            transport=transport,
        )

    @property
    def base_url(self) -> str:
        """Return where the server is."""
        return self._settings.base_url

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer one request as a stream that ends with `Done`.

        Raises:
            ModelError: the server refused, failed, fell silent, or its answer was cut, empty or malformed.
        """
        assembly = Assembly(request.model)
        try:
            async with self._client.stream(
                "POST", f"{self._settings.base_url}/chat/completions", content=encode_request(request)
            ) as response:
                await self._check(response)
                async for data in self._events(response, assembly):
                    for delta in assembly.add(data):
                        yield delta
        except httpx.HTTPError as error:
            # Once the server said why it finished the answer is whole, whatever happens to the connection.
            if not assembly.finished:
                raise self._broken(error) from error
        yield assembly.done()

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def _events(self, response: httpx.Response, assembly: Assembly) -> AsyncIterator[str]:
        """Yield the data of each event up to the end mark, then read what is left for a moment."""
        parser = SSEParser()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        heard = self._clock.monotonic()
        chunks = response.aiter_bytes()
        async for chunk in chunks:
            events = _feed(parser, decoder.decode(chunk))
            if events:
                heard = self._clock.monotonic()
            elif self._clock.monotonic() - heard > self._settings.silence_timeout_s:
                raise ModelError(f"the model sent only keep-alives for {self._settings.silence_timeout_s:g} s", retryable=True)
            for event in events:
                if event.data.strip() == _END:
                    await _drain(chunks)
                    return
                yield event.data
        # Some servers leave out the empty line after the last event.
        for event in [] if assembly.finished else _feed(parser, decoder.decode(b"", final=True) + "\n\n"):
            if event.data.strip() != _END:
                yield event.data

    async def _check(self, response: httpx.Response) -> None:
        """Let only a stream through."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == _OK and kind == "text/event-stream":
            return
        body = await _head(response)
        told = _error_object(body)
        if response.status_code != _OK:
            raise self._refused(response, told)
        if told is not None:
            raise error_of(told, where="instead of an answer")
        raise ModelError(f"the model's server answered with {kind or 'no content type'} instead of a stream; check base_url")

    def _refused(self, response: httpx.Response, told: Any) -> ModelError:
        status = response.status_code
        if status in (401, 403):
            return ModelError(f"the model's server refused the credential ({status}); check OPENAI_API_KEY and what it may use")
        error = error_of(told or {}, where=f"with HTTP status {status}")
        retryable = error.retryable if status == _TOO_MANY else status in _RETRYABLE or status >= 500
        text = str(error).replace(self._settings.api_key, "***") if self._settings.api_key else str(error)
        code = "rate_limited" if status == _TOO_MANY else "model_overloaded" if status in _OVERLOADED else error.code
        return ModelError(text, retryable=retryable, retry_after_s=self._retry_after(response) if retryable else None, code=code)

    def _retry_after(self, response: httpx.Response) -> float | None:
        """Return how many seconds the server asks to wait, or None when it does not say."""
        told = response.headers.get("retry-after-ms")
        scale = 0.001
        if told is None:
            told, scale = response.headers.get("retry-after"), 1.0
        if told is None:
            return None
        try:
            seconds = float(told) * scale
            return max(0.0, seconds) if math.isfinite(seconds) else None
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(told).timestamp() - self._clock.now_ms() / 1000)
        except (ValueError, OverflowError):
            return None

    def _broken(self, error: httpx.HTTPError) -> ModelError:
        where = httpx.URL(self._settings.base_url).netloc.decode()
        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
            return ModelError(f"no connection to the model's server at {where}: check base_url and the network", retryable=True)
        if isinstance(error, httpx.TimeoutException):
            return ModelError(f"the model's server at {where} fell silent for {self._settings.stall_timeout_s:g} s", retryable=True)
        return ModelError(f"the connection to the model's server at {where} broke off ({type(error).__name__})", retryable=True)


def _feed(parser: SSEParser, text: str) -> list[Event]:
    try:
        return parser.feed(text)
    except ValueError as error:
        raise ModelError("the model's stream holds a piece that is too large", retryable=True) from error


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx.HTTPError):
        return


async def _head(response: httpx.Response) -> bytes:
    """Return the beginning of a body; a server that floods or stalls costs no more than this."""
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= _REFUSAL_BYTES:
            break
    return body


def _error_object(body: bytes) -> Any:
    """Return the error that a JSON body holds, or None."""
    try:
        told = read_json(body.decode("utf-8", "replace"))
    except ModelError:
        return None
    if not isinstance(told, dict):
        return None
    return told.get("error") or told.get("detail")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
