"""How a problem object becomes the exception that it stands for."""

from __future__ import annotations

from typing import Any, cast

import httpx

from turnyard import errors
from turnyard.errors import TurnyardError

_CLASSES: tuple[type[TurnyardError], ...] = (
    errors.InvalidRequest,
    errors.TooLarge,
    errors.InvalidInput,
    errors.NotFound,
    errors.UnknownAgent,
    errors.SessionBusy,
    errors.NotApprover,
    errors.AlreadyDecided,
    errors.AlreadyFinished,
    errors.Expired,
    errors.IdempotencyMismatch,
    errors.InboxFull,
    errors.QuotaExceeded,
    errors.RateLimited,
    errors.StoreUnavailable,
    errors.FilesUnavailable,
    errors.Overloaded,
)
_BY_CODE = {cls.code: cls for cls in _CLASSES}


class ServerError(TurnyardError):
    """The server answered with an error that this client does not know; `code`, `status` and `ref` say which."""

    def __init__(self, message: str, *, code: str, status: int, ref: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.ref = ref


def error_of(response: httpx.Response) -> TurnyardError:
    """Return what a response that is no success stands for; its body has been read."""
    body = _object(response)
    code, detail = str(body.get("code", "")), str(body.get("detail") or f"{response.status_code} {response.reason_phrase}")
    cls = _BY_CODE.get(code)
    if cls is None:
        ref = body.get("ref") or response.headers.get("request-id")
        return ServerError(f"{detail} (ref {ref})", code=code or "internal", status=response.status_code, ref=ref)
    if issubclass(cls, errors.InvalidRequest):
        return cls(_with_pointers(detail, body), pointer=_first_pointer(body))
    return cls(detail)


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _first_pointer(body: dict[str, Any]) -> str:
    found = cast("list[dict[str, Any]]", body.get("errors") or [])
    return str(found[0].get("pointer", "")) if found else ""


def _with_pointers(detail: str, body: dict[str, Any]) -> str:
    pointer = _first_pointer(body)
    return detail if not pointer or pointer in detail else f"{pointer}: {detail}"
