"""Files over HTTP, and long answers from outside."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from email.message import Message
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platforms.http.app import create_api
from platforms.http.desk import Desk, tenant_of
from platforms.http.files import disposition, read_range
from platforms.http.guard import Guard
from tests.unit.http.fake_edge import FakeEdge
from turnyard.errors import FilesUnavailable
from turnyard.records.blobs import is_file_id
from turnyard.records.ids import new_call_token
from turnyard.state.call_facts import CallFacts
from turnyard.testing.blobs import HOSTILE
from turnyard.text import OUTPUT_BYTES

DATA = bytes(range(256)) * 8_000  # over one piece of an answer


@pytest.fixture
async def tenants(desk: Desk) -> AsyncIterator[Callable[[str], httpx.AsyncClient]]:
    """Clients of several tenants, as keys will tell them apart."""
    api = create_api(desk)
    asks = ""

    async def who() -> str:
        return asks

    api.dependency_overrides[tenant_of] = who
    transport = httpx.ASGITransport(Guard(api, desk.options), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

        def of(tenant: str) -> httpx.AsyncClient:
            nonlocal asks
            asks = tenant
            return client

        yield of


async def put(http: httpx.AsyncClient, data: bytes = b"hello", name: str = "a.txt", **more: str) -> str:
    response = await http.post("/v1/files", content=data, params={"name": name}, headers=more)
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def test_a_file_is_taken_as_the_body_told_of_given_back_listed_and_deleted(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/files", content=DATA, params={"name": "numbers.bin"}, headers={"content-type": "image/png"})
    file = response.json()
    assert (response.status_code, response.headers["location"]) == (201, f"/v1/files/{file['id']}")
    assert (file["object"], file["name"], file["size"]) == ("file", "numbers.bin", len(DATA))
    assert (file["media_type"], file["sha256"]) == ("application/octet-stream", hashlib.sha256(DATA).hexdigest())
    assert (await http.get(file["links"]["self"])).json() == file
    assert (await http.get(file["links"]["content"])).content == DATA
    assert (await http.get("/v1/files")).json()["data"] == [file]
    assert (await http.delete(file["links"]["self"])).status_code == 204
    for method, path in (("GET", "self"), ("GET", "content"), ("DELETE", "self")):
        answer = await http.request(method, file["links"][path])
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


@pytest.mark.parametrize("data", [b"", b"hello", DATA])
async def test_a_form_brings_a_file(http: httpx.AsyncClient, data: bytes) -> None:
    response = await http.post("/v1/files", files={"file": ("a b.csv", data, "text/csv")}, data={"purpose": "any"})
    assert response.status_code == 201, response.text
    assert (response.json()["name"], response.json()["size"]) == ("a b.csv", len(data))
    assert (await http.get(response.json()["links"]["content"])).content == data


async def test_a_form_without_one_file_or_that_is_none_is_refused(http: httpx.AsyncClient) -> None:
    many = [("file", ("a", b"1")), ("file", ("b", b"2"))]
    assert (await http.post("/v1/files", files=many)).status_code == 400
    for kind, body in (
        ("multipart/form-data", b""),
        ("multipart/form-data; boundary=x", b"no form"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'),
    ):
        answer = await http.post("/v1/files", content=body, headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request"), answer.text
    assert (await http.post("/v1/files", content=b"x", headers={"content-encoding": "gzip"})).status_code == 400


@pytest.mark.spec("S15")
async def test_what_is_over_a_limit_is_refused_however_it_comes_and_leaves_nothing(http: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000

    async def endless_form() -> AsyncIterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for n in range(10_000):
            assert n < 1_000, "it is read on and on"
            yield b"x" * 100_000

    most = 2_500_000
    answers = [
        await http.post("/v1/files", content=b"x" * (most + 1)),
        await http.post("/v1/files", content=endless()),
        await http.post("/v1/files", files={"file": ("a", b"x" * (most + 1))}),
        await http.post("/v1/files", content=endless_form(), headers={"content-type": "multipart/form-data; boundary=x"}),
    ]
    assert [(a.status_code, a.json()["code"]) for a in answers] == [(413, "too-large")] * 4
    assert (await http.get("/v1/files")).json()["data"] == []
    for n in range(20):
        await put(http, b"%d" % n)
    full = await http.post("/v1/files", content=b"x")
    assert (full.status_code, full.json()["code"]) == (429, "quota-exceeded")


@pytest.mark.spec("S15")
async def test_a_file_of_another_tenant_looks_like_none(tenants: Callable[[str], httpx.AsyncClient]) -> None:
    mine = await put(tenants("acme"), b"mine", name="same.txt")
    theirs = await put(tenants("umbrella"), b"theirs", name="same.txt")
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        foreign = await tenants("umbrella").request(method, f"/v1/files/{mine}{path}")
        absent = await tenants("umbrella").request(method, f"/v1/files/{mine[:-1]}0{path}")
        assert foreign.status_code == absent.status_code == 404
        assert {**foreign.json(), "ref": "", "instance": ""} == {
            **absent.json(),
            "ref": "",
            "instance": "",
            "detail": absent.json()["detail"].replace(f"{mine[:-1]}0", mine),
        }
    assert [f["id"] for f in (await tenants("umbrella").get("/v1/files")).json()["data"]] == [theirs]
    assert (await tenants("acme").get(f"/v1/files/{mine}/content")).content == b"mine"


@pytest.mark.spec("S15")
@pytest.mark.parametrize("name", [n for n in HOSTILE if "\0" not in n] + ["x" * 300 + ".txt", '"; filename=evil.exe', "naïve – ☃.txt"])
async def test_a_name_is_told_back_harmless_and_means_nothing(http: httpx.AsyncClient, name: str) -> None:
    by_query = await http.post("/v1/files", content=b"hello", params={"name": name})
    by_form = await http.post("/v1/files", files={"file": (name or "file", b"hello")})
    for response in (by_query, by_form):
        file = response.json()
        assert response.status_code == 201, response.text
        assert is_file_id(file["id"])
        assert not set(file["name"]) & set("/\\\r\n\0")
        answer = await http.get(file["links"]["content"])
        header = Message()
        header["content-disposition"] = answer.headers["content-disposition"]
        assert header.get_content_disposition() == "attachment"
        params = dict(header.get_params(header="content-disposition"))
        assert set(params) == {"attachment", "filename", "filename*"} or set(params) == {"attachment", "filename"}
        assert unquote(answer.headers["content-disposition"].rpartition("UTF-8''")[2]) == file["name"]


@pytest.mark.spec("S15")
@pytest.mark.parametrize("path", ["..%2f..%2fx", "..%5cx", "%2fetc%2fpasswd", "a%00b", "x" * 300, "...", "file_" + "z" * 34])
async def test_no_path_leads_to_a_file_that_is_none(http: httpx.AsyncClient, path: str) -> None:
    for tail in ("", "/content"):
        assert (await http.get(f"/v1/files/{path}{tail}")).status_code == 404


@pytest.mark.spec("S15")
async def test_a_name_in_a_header_of_the_request_is_a_name_like_any_other(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/files", content=b"x", headers={"content-disposition": 'attachment; filename="../../etc/passwd"'})
    assert response.json()["name"] == "passwd"


@pytest.mark.spec("S15")
@pytest.mark.parametrize("page", [b"<!doctype html><script>alert(1)</script>", b'<svg xmlns="http://www.w3.org/2000/svg" onload="x"/>'])
async def test_a_page_is_never_shown_as_one(http: httpx.AsyncClient, page: bytes) -> None:
    file = await put(http, page, name="a.png", content_type="image/png")
    answer = await http.get(f"/v1/files/{file}/content")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("asked", "span"),
    [
        ("bytes=0-3", (0, 4)),
        ("bytes=5-", (5, len(DATA))),
        ("bytes=-7", (len(DATA) - 7, len(DATA))),
        (f"bytes=1048000-{10**9}", (1_048_000, len(DATA))),
        (f"bytes=-{10**9}", (0, len(DATA))),
        ("bytes=3-1", (0, len(DATA))),
        ("bytes=0-1,5-6", (0, len(DATA))),
        ("lines=0-1", (0, len(DATA))),
        ("bytes=-", (0, len(DATA))),
    ],
)
async def test_a_range_is_read_and_one_that_is_not_understood_is_all_of_it(
    http: httpx.AsyncClient, asked: str, span: tuple[int, int]
) -> None:
    file = await put(http, DATA)
    answer = await http.get(f"/v1/files/{file}/content", headers={"range": asked})
    whole = span == (0, len(DATA))
    assert answer.status_code == (200 if whole else 206)
    assert answer.content == DATA[slice(*span)]
    assert answer.headers["content-length"] == str(span[1] - span[0])
    assert answer.headers.get("content-range") == (None if whole else f"bytes {span[0]}-{span[1] - 1}/{len(DATA)}")


async def test_a_range_outside_the_file_is_refused_with_its_size_and_a_known_content_is_not_sent_again(http: httpx.AsyncClient) -> None:
    file = await put(http, b"hello")
    for asked in ("bytes=5-", "bytes=-0"):
        answer = await http.get(f"/v1/files/{file}/content", headers={"range": asked})
        assert (answer.status_code, answer.headers["content-range"], answer.json()["code"]) == (416, "bytes */5", "invalid-range")
    tag = (await http.get(f"/v1/files/{file}/content")).headers["etag"]
    assert (await http.get(f"/v1/files/{file}/content", headers={"if-none-match": tag})).status_code == 304


@given(st.text(max_size=30), st.integers(0, 50))
def test_whatever_a_range_header_says_it_is_some_of_the_file_or_none(header: str, size: int) -> None:
    for text in (header, f"bytes={header}"):
        span = read_range(text, size)
        assert span is None or 0 <= span[0] <= span[1] <= size


@given(st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=40))
def test_a_name_travels_whole_in_its_header_and_breaks_out_of_none(name: str) -> None:
    header = disposition(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2
    assert unquote(header.rpartition("UTF-8''")[2]) == name


async def test_files_are_listed_in_pages(http: httpx.AsyncClient) -> None:
    files = {await put(http, b"%d" % n) for n in range(5)}
    found, after = [], None
    while True:
        page = (await http.get("/v1/files", params={"limit": 2} | ({"after": after} if after else {}))).json()
        found += [file["id"] for file in page["data"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(found) == sorted(files)
    assert found == sorted(found)


async def test_a_store_that_fails_is_a_503_and_a_server_without_one_has_no_files(desk: Desk, http: httpx.AsyncClient) -> None:
    file = await put(http)

    async def away(*_: object) -> None:
        raise FilesUnavailable

    desk.blobs._shelf.card = away  # type: ignore[union-attr]
    answer = await http.get(f"/v1/files/{file}")
    assert (answer.status_code, answer.json()["code"]) == (503, "files-unavailable")
    assert "retry-after" in answer.headers
    desk.blobs = None
    assert (await http.get("/v1/files")).status_code == 404


def test_the_routes_of_files_are_described(desk: Desk) -> None:
    paths = create_api(desk).openapi()["paths"]
    assert set(paths["/v1/files"]["post"]["requestBody"]["content"]) == {"application/octet-stream", "multipart/form-data"}
    assert paths["/v1/files/{file}"]["get"]["responses"]["200"]["content"]["application/json"]["example"]["object"] == "file"


# -- long answers from outside ------------------------------------------------------------------------------------------

CALL = "call_abcdefgh"
TOKEN, HASH = new_call_token(0, "a" * 26 + ".0", CALL)
LONG = "é" * 50_000


@pytest.mark.spec("runner-35")
async def test_a_long_answer_from_outside_is_cut_and_kept_whole_and_repeated_it_is_the_same(
    http: httpx.AsyncClient, edge: FakeEdge, tenants: Callable[[str], httpx.AsyncClient]
) -> None:
    edge.calls[CALL] = CallFacts("acme", HASH, False, None)
    desk_limit = 65_536
    sent = LONG[: desk_limit // 2]
    assert (await http.post(f"/v1/calls/{TOKEN}", content=sent.encode())).status_code == 200
    body = edge.outcomes[-1]["body"]
    assert len(body["content"].encode()) <= OUTPUT_BYTES
    assert "\ufffd" not in body["content"]
    assert body["size"] == len(sent.encode())
    assert (await tenants("acme").get(f"/v1/files/{body['ref']}/content")).text == sent
    assert (await tenants("default").get(f"/v1/files/{body['ref']}")).status_code == 404
    edge.calls[CALL] = replace(edge.calls[CALL], body=body)
    await http.post(f"/v1/calls/{TOKEN}", content=sent.encode())
    assert edge.outcomes[-1]["body"] == body
    assert len((await tenants("acme").get("/v1/files")).json()["data"]) == 1


@pytest.mark.spec("S15")
async def test_nothing_is_kept_for_whoever_has_not_the_secret_of_a_call(
    http: httpx.AsyncClient, edge: FakeEdge, tenants: Callable[[str], httpx.AsyncClient]
) -> None:
    guessed, _ = new_call_token(0, "a" * 26 + ".0", CALL)
    edge.calls[CALL] = CallFacts("acme", HASH, False, None)
    edge.answers = ["gone"]
    assert (await http.post(f"/v1/calls/{guessed}", content=LONG.encode()[:60_000])).status_code == 404
    assert (await tenants("acme").get("/v1/files")).json()["data"] == []
