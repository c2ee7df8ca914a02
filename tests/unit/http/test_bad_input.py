"""Whatever is sent, the answer is a problem with a code and a reference, and the process goes on."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from platforms.http.options import HttpOptions
from tests.unit.http.fake_edge import FakeEdge
from turnyard.errors import ConfigError

JOBS = "/v1/jobs"
JSON = {"content-type": "application/json"}


def assert_problem(response: httpx.Response, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert set(body) == {"type", "title", "status", "detail", "instance", "code", "ref", "errors"}
    assert (response.status_code, body["status"], body["code"]) == (status, status, code), body
    assert body["ref"] == response.headers["request-id"]
    assert "Traceback" not in response.text
    if pointer is not None:
        assert pointer in [e["pointer"] for e in body["errors"]], body
    return body


async def post(http: httpx.AsyncClient, body: Any, *, path: str = JOBS, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return await http.post(path, content=content, headers={**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}})


def job(**more: Any) -> dict[str, Any]:
    return {"agent": "hello", "input": "hi", **more}


@pytest.mark.spec("S8")
async def test_a_body_over_the_limit_is_refused_while_it_arrives(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 16_384

    response = await http.post(JOBS, content=endless(), headers=JSON)
    assert_problem(response, 413, "too-large")
    # It never ends; what comes after the refusal is thrown away within bounds, so that the answer arrives.
    assert sent * 16_384 < 100 * 1024 * 1024
    assert_problem(await post(http, job(input="x" * 70_000)), 413, "too-large")
    assert edge.messages == []


@pytest.mark.spec("S8")
async def test_a_compressed_body_is_refused(http: httpx.AsyncClient) -> None:
    assert_problem(await post(http, b"\x1f\x8b", content_encoding="gzip"), 400, "invalid-request")


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"\xff\xfe", b'{"agent": "hello", "input": "a"} extra', b'{"agent": "he\nllo"}'])
async def test_what_is_not_json_is_said_to_be_that(http: httpx.AsyncClient, body: bytes) -> None:
    assert_problem(await post(http, body), 400, "invalid-request")


@pytest.mark.spec("S8")
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1000 + b"]" * 1000,
        b"[" * 60_000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        b'{"agent": "hello", "input": ' + b"[" * 40 + b"]" * 40 + b"}",
    ],
)
async def test_deep_json_is_refused_without_harm(http: httpx.AsyncClient, body: bytes) -> None:
    response = await post(http, body)
    assert_problem(response, 400, "invalid-request")
    assert (await post(http, job())).status_code == 202


@pytest.mark.spec("S8")
async def test_a_body_with_a_thousand_keys_is_refused(http: httpx.AsyncClient) -> None:
    assert_problem(await post(http, job(metadata={str(i): "" for i in range(1001)})), 400, "invalid-request")


@pytest.mark.spec("S9")
@pytest.mark.parametrize(
    "number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"123456789012345678901234", b"9" * 5000, b"9223372036854775808"]
)
async def test_a_number_that_others_would_read_differently_is_refused(http: httpx.AsyncClient, number: bytes) -> None:
    assert_problem(await post(http, b'{"agent": "hello", "input": "hi", "priority": ' + number + b"}"), 400, "invalid-request")


@pytest.mark.spec("S9")
async def test_a_key_given_twice_is_refused(http: httpx.AsyncClient) -> None:
    assert_problem(await post(http, b'{"agent": "hello", "input": "hi", "input": "ho"}'), 400, "invalid-request")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ([], ""),
        ("hello", ""),
        ({"input": "hi"}, "/agent"),
        (job(agent=3), "/agent"),
        (job(input=3), "/input"),
        (job(input={"text": "hi"}), "/input"),
        (job(input=["hi"]), "/input"),
        (job(input=[{"type": "image"}]), "/input/0/type"),
        (job(input=[{"type": "text", "text": 3}]), "/input/0/text"),
        (job(input=[{"type": "text", "text": "a", "b/c": 1}]), "/input/0/b~1c"),
        (job(session=3), "/session"),
        (job(session={}), "/session"),
        (job(priority="1"), "/priority"),
        (job(priority=10), "/priority"),
        (job(priority=True), "/priority"),
        (job(mode="now"), "/mode"),
        (job(complete_when="soon"), "/complete_when"),
        (job(start_after=-1), "/start_after"),
        (job(metadata=[]), "/metadata"),
        (job(metadata={"a": 1}), "/metadata/a"),
        (job(metadata={str(i): "" for i in range(17)}), "/metadata"),
        (job(metadata={"a": "x" * 1025}), "/metadata/a"),
        (job(tenant="acme"), "/tenant"),
        (job(timeout_s=0), "/timeout_s"),
        (job(timeout_s="3"), "/timeout_s"),
    ],
)
async def test_a_wrong_or_unknown_field_is_named_by_its_pointer(http: httpx.AsyncClient, edge: FakeEdge, body: Any, pointer: str) -> None:
    assert_problem(await post(http, body), 422, "invalid-input", pointer)
    assert edge.messages == []


@pytest.mark.parametrize("content", ["", "   ", [], [{"type": "text", "text": " "}]])
async def test_a_message_without_text_is_refused(http: httpx.AsyncClient, edge: FakeEdge, content: Any) -> None:
    assert_problem(await post(http, job(input=content)), 422, "invalid-input", "/input")
    edge.session("s1")
    assert_problem(await post(http, {"input": content}, path="/v1/sessions/s1/messages"), 422, "invalid-input", "/input")


async def test_an_agent_that_nobody_published_is_not_found(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    assert_problem(await post(http, job(agent="nobody")), 404, "unknown-agent")
    assert_problem(await http.get("/v1/agents/nobody"), 404, "unknown-agent")
    assert edge.messages == []


@pytest.mark.parametrize("path", ["", "/entries", "/events", "/explain", "/messages"])
async def test_a_session_that_does_not_exist_is_not_found(http: httpx.AsyncClient, path: str) -> None:
    assert_problem(await http.get(f"/v1/sessions/nobody{path}"), 404, "not-found")


@pytest.mark.parametrize("path", ["/cancel", "/new", "/messages"])
async def test_nothing_can_be_sent_to_a_session_that_does_not_exist(http: httpx.AsyncClient, edge: FakeEdge, path: str) -> None:
    assert_problem(await post(http, {} if path != "/messages" else {"input": "hi"}, path=f"/v1/sessions/nobody{path}"), 404, "not-found")
    assert (edge.messages, edge.controls) == ([], [])


@pytest.mark.parametrize("job_id", ["nobody", "job_00", "job_zz" + "a" * 16, "job_00" + "a" * 16, "x" * 3000])
@pytest.mark.parametrize("path", ["", "/events"])
async def test_a_job_that_does_not_exist_is_not_found(http: httpx.AsyncClient, job_id: str, path: str) -> None:
    assert_problem(await http.get(f"/v1/jobs/{job_id}{path}"), 404, "not-found")


@pytest.mark.spec("S10")
@pytest.mark.parametrize(
    "raw",
    [rb"a\ud800b", rb"a\udc00b", b"a\xed\xa0\x80b", rb"a\u0000b"],
    ids=["lone high", "lone low", "raw surrogate", "NUL"],
)
async def test_broken_text_is_cleaned_and_broken_ids_are_refused(http: httpx.AsyncClient, edge: FakeEdge, raw: bytes) -> None:
    assert (await post(http, b'{"agent": "hello", "input": "' + raw + b'"}')).status_code == 202
    assert edge.messages[0].body == {"text": "a\ufffdb"} or edge.messages[0].body == {"text": "a\ufffd\ufffd\ufffdb"}
    for name in (b"session", b"user"):
        body = b'{"agent": "hello", "input": "hi", "' + name + b'": "' + raw + b'"}'
        assert_problem(await post(http, body), 422, "invalid-input", f"/{name.decode()}")


@pytest.mark.spec("S10")
async def test_unusual_but_valid_text_passes_unchanged(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    text = "a\u202eb \u200d \U0001f468\u200d\U0001f469 \\ud800 \ufffd"
    assert (await post(http, job(input=text))).status_code == 202
    assert edge.messages[0].body == {"text": text}


@pytest.mark.parametrize(
    "session", ["a:b", "{x}", "a*b?[c]", "a/b", "a%2Fb", "a b", "ü", "...", "e\u0301", "\u00e9", "a/events", "x" * 255]
)
async def test_any_printable_id_is_taken_and_found_again_as_itself(http: httpx.AsyncClient, edge: FakeEdge, session: str) -> None:
    response = await post(http, job(session=session))
    assert response.status_code == 202
    assert [m.session for m in edge.messages] == [session]
    quoted = "".join(f"%{b:02X}" for b in session.encode())
    assert response.json()["links"]["session"].startswith("/v1/sessions/")
    for path in (f"/v1/sessions/{quoted}", response.json()["links"]["session"]):
        found = await http.get(path)
        assert (found.status_code, found.json()["id"]) == (200, session)


@pytest.mark.parametrize("session", ["", "..", ".", "x" * 10_000, "x" * 256, "a\nb", "a\tb", "\x7f", "a\x85"])
async def test_an_id_that_is_empty_long_or_has_controls_is_refused(http: httpx.AsyncClient, edge: FakeEdge, session: str) -> None:
    assert_problem(await post(http, job(session=session)), 422, "invalid-input", "/session")
    if session.strip("."):
        quoted = "".join(f"%{b:02X}" for b in session.encode())
        assert_problem(await http.get(f"/v1/sessions/{quoted}"), 422, "invalid-input", "/session")
    assert edge.messages == []


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
async def test_an_idempotency_key_that_cannot_be_kept_is_refused(http: httpx.AsyncClient, edge: FakeEdge, key: str) -> None:
    response = await post(http, job(), idempotency_key=key)
    assert response.status_code in (400, 422)
    assert edge.messages == []


@pytest.mark.parametrize("prefer", ["wait=61", "wait=100000", "wait=-1", "wait=1.5", "wait=soon", "wait"])
async def test_a_wait_that_is_too_long_or_no_number_is_refused(http: httpx.AsyncClient, edge: FakeEdge, prefer: str) -> None:
    assert_problem(await post(http, job(), prefer=prefer), 400, "invalid-request")
    assert edge.messages == []


@pytest.mark.spec("turn-62")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions?before=x",
        "/v1/sessions?before=-1",
        "/v1/jobs?before=x",
        "/v1/sessions?limit=0",
        "/v1/sessions?limit=1000",
        "/v1/sessions?limit=x",
        "/v1/jobs?state=lost",
        "/v1/sessions/s1/entries?after=x",
        "/v1/sessions/s1/events?after=x",
        "/v1/sessions/s1/events?after=1.2.3",
        "/v1/sessions/s1/events?after=0.99999999999999999999999-0",
        "/v1/sessions/s1/events?after=1.1-0",
        "/v1/sessions/s1/events?deltas=maybe",
        "/v1/sessions/s1/events?types=[a",
    ],
)
async def test_a_bad_cursor_or_parameter_is_refused(http: httpx.AsyncClient, edge: FakeEdge, path: str) -> None:
    edge.session("s1")
    assert_problem(await http.get(path), 400, "invalid-request")


@pytest.mark.spec("turn-62")
@pytest.mark.parametrize("last", ["17", "0.17-x", "1.1-0"])
async def test_a_last_event_id_that_is_none_of_the_stream_is_refused(http: httpx.AsyncClient, edge: FakeEdge, last: str) -> None:
    edge.session("s1")
    response = await http.get("/v1/sessions/s1/events", headers={"Last-Event-ID": last})
    assert_problem(response, 400, "invalid-request", "/after" if last == "1.1-0" else "/Last-Event-ID")


async def test_an_unknown_path_or_method_is_a_problem_too(http: httpx.AsyncClient) -> None:
    assert_problem(await http.get("/v2/jobs"), 404, "not-found")
    response = await http.delete("/v1/jobs")
    assert "does not take DELETE" in assert_problem(response, 405, "not-found")["detail"]


async def test_json_must_be_sent_as_json(http: httpx.AsyncClient, edge: FakeEdge) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = await http.post(JOBS, content=orjson.dumps(job()), headers={"content-type": kind})
        assert_problem(response, 400, "invalid-request")
    assert edge.messages == []


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"host": ""}, {"origin": "http://evil.example"}, {"origin": "null"}])
async def test_a_page_in_a_browser_cannot_reach_an_open_server(http: httpx.AsyncClient, edge: FakeEdge, headers: dict[str, str]) -> None:
    response = await http.post(JOBS, json=job(), headers=headers)
    assert_problem(response, 400, "invalid-request")
    assert edge.messages == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com"])
def test_without_keys_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(ConfigError, match="ALLOW_OPEN"):
        HttpOptions(host=host).check()
    HttpOptions(host=host, allow_open=True).check()
    HttpOptions(host="127.0.0.1").check()
    HttpOptions(host="::1").check()


async def test_an_unexpected_error_is_a_problem_with_a_reference_and_no_detail(
    http: httpx.AsyncClient, edge: FakeEdge, caplog: pytest.LogCaptureFixture
) -> None:
    edge.broken = RuntimeError("the password is hunter2")
    body = assert_problem(await post(http, job()), 500, "internal")
    assert "hunter2" not in str(body)
    assert [r.ref for r in caplog.records if r.message == "request failed"] == [body["ref"]]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "send",
    [
        lambda http: post(http, job()),
        lambda http: post(http, job(), prefer="wait=5"),
        lambda http: http.get("/v1/jobs/job_00aaaaaaaaaaaaaaaa"),
        lambda http: http.get("/v1/sessions/s1"),
        lambda http: http.get("/v1/sessions/s1/events"),
        lambda http: http.get("/v1/agents"),
        lambda http: http.get("/v1/workers"),
        lambda http: http.get("/v1/scale/default"),
        lambda http: http.get("/readyz"),
    ],
)
async def test_while_the_store_is_away_the_answer_is_503_and_never_202(http: httpx.AsyncClient, edge: FakeEdge, send: Any) -> None:
    edge.down = True
    response = await send(http)
    assert_problem(response, 503, "redis-unavailable")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ("busy", 409, "session-busy"),
        ("inbox_full", 429, "inbox-full"),
        ("quota", 429, "quota-exceeded"),
        ("mismatch", 422, "idempotency-mismatch"),
    ],
)
async def test_a_refusal_of_the_store_is_told_as_what_it_is(
    http: httpx.AsyncClient, edge: FakeEdge, answer: str, status: int, code: str
) -> None:
    edge.answers = [answer]
    response = await post(http, job())
    assert_problem(response, status, code)
    assert ("retry-after" in response.headers) == (status == 429)
