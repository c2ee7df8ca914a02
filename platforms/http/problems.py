"""How errors are told: application/problem+json, always with a code and a reference, never with a traceback.

The reference is the request's id, which stands in the log beside whatever else is known.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from turnyard.errors import InvalidRequest, RateLimited, TurnyardError
from turnyard.records.input import escape_pointer
from turnyard.wire.approvals import Unfit

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = {429: 1, 503: 1}
_MAX_ERRORS = 20
_SECRET_PATHS = ("/v1/calls/", "/v1/outcomes/")

_BY_STATUS = {400: "invalid-request", 404: "not-found", 405: "not-found", 413: "too-large", 422: "invalid-input", 503: "overloaded"}


class Invalid(TurnyardError):
    """Several values of a request are not acceptable: correct each and send it again."""

    code = "invalid-input"
    status = 422

    def __init__(self, errors: list[dict[str, str]]) -> None:
        first = f"{errors[0]['pointer'] or 'the body'}: {errors[0]['detail']}" if errors else "the body is not acceptable"
        super().__init__(first)
        self.errors = errors


def from_validation(error: ValidationError | RequestValidationError, *, skip: int = 0) -> Invalid:
    """Return a validation error as JSON pointers with advice; values themselves are not repeated."""
    found: list[dict[str, str]] = []
    for item in list(error.errors())[:_MAX_ERRORS]:
        location = item.get("loc", ())[skip:]
        found.append(
            {"pointer": "".join(f"/{escape_pointer(str(part))}" for part in location), "detail": str(item.get("msg", "not acceptable"))}
        )
    return Invalid(found)


def problem(
    request: Request,
    *,
    status: int,
    code: str,
    detail: str,
    errors: list[dict[str, str]] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the answer that tells a problem."""
    ref = str(request.scope.get("state", {}).get("request_id", ""))
    body = problem_body(status=status, code=code, detail=detail, ref=ref, instance=_instance(request), errors=errors)
    sent = dict(headers or {})
    if status in RETRY_AFTER_S:
        sent.setdefault("Retry-After", str(RETRY_AFTER_S[status]))
    return Response(orjson.dumps(body), status, headers=sent, media_type=MEDIA_TYPE)


def problem_body(
    *, status: int, code: str, detail: str, ref: str, instance: str | None = None, errors: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    """Return a problem object."""
    return {
        "type": f"urn:turnyard:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        "ref": ref,
        "errors": errors or [],
    }


def _instance(request: Request) -> str:
    path = request.url.path
    for prefix in _SECRET_PATHS:
        if path.startswith(prefix):
            # The rest of the path is a secret; it must not travel on in somebody's error report.
            return prefix.rstrip("/")
    return path


def answer(request: Request, error: Exception) -> Response:
    """Return the problem that an exception stands for."""
    match error:
        case Invalid() | Unfit():
            return problem(request, status=error.status, code=error.code, detail=str(error), errors=error.errors)
        case InvalidRequest():
            errors = [{"pointer": error.pointer, "detail": str(error)}]
            return problem(request, status=error.status, code=error.code, detail=str(error), errors=errors)
        case RateLimited():
            later = {"Retry-After": str(math.ceil(error.retry_after_s))}
            return problem(request, status=error.status, code=error.code, detail=str(error), headers=later)
        case TurnyardError():
            return problem(request, status=error.status, code=error.code, detail=str(error))
        case RequestValidationError():
            invalid = from_validation(error, skip=1)
            return problem(request, status=400, code="invalid-request", detail=str(invalid), errors=invalid.errors)
        case HTTPException():
            code = _BY_STATUS.get(error.status_code, "invalid-request")
            headers = {k: v for k, v in (error.headers or {}).items() if k.lower() == "allow"}
            return problem(request, status=error.status_code, code=code, detail=_of_framework(request, error), headers=headers)
        case _:
            return problem(
                request, status=500, code="internal", detail="something broke on our side; give the ref to whoever runs this server"
            )


def _of_framework(request: Request, error: HTTPException) -> str:
    """Return what to do about a refusal that no route of ours made."""
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"this address does not take {request.method}; /openapi.json says what it takes"
    if error.status_code == HTTPStatus.NOT_FOUND:
        return "the API has no such address; /openapi.json lists those it has"
    return str(error.detail)


def install(app: FastAPI) -> None:
    """Have an app answer every expected error as a problem; the unexpected ones are caught around the app."""

    async def handle(request: Request, error: Exception) -> Response:
        return answer(request, error)

    for kind in (TurnyardError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)
