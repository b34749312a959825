"""Whatever is sent, the answer is one problem of one shape; never a 500, never a hang."""

import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from agents.contracts.errors import Problem
from agents.contracts.task import TaskSpec
from tests.service.api.process import ApiProcess
from tests.service.api.routes import concrete, routes
from tests.service.api.world import Tenant, submit

JSON = {"Content-Type": "application/json"}
SPEC = {"instruction": "do it", "tier": "replay"}


@pytest.fixture
async def http(someone: Tenant) -> AsyncIterator[httpx.AsyncClient]:
    """One tenant for all: nothing here changes anything that matters."""
    async with someone.http() as client:
        yield client


def problem_of(answer: httpx.Response, status: int, code: str) -> Problem:
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem = Problem.model_validate_json(answer.content)
    assert (problem.status, problem.code.value) == (status, code)
    assert problem.code.rule.status == status
    assert problem.retryable is problem.code.rule.retryable
    assert len(answer.content) < 20_000
    return problem


async def post(http: httpx.AsyncClient, body: bytes, content_type: str = "application/json") -> httpx.Response:
    return await http.post("/v1/tasks", content=body, headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"instruction": "x"',
        b'{"instruction": "x"}{}',
        b"{\"instruction\": 'x'}",
        b'{"instruction": "\xff\xfe"}',
        b'{"instruction": "\xed\xa0\x80"}',
        b'{"instruction": "\\ud800"}',
        b'{"instruction": "\\udc00\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"limits": {"tokens": 1e}}',
        b"\xef\xbb\xbf{}",
    ],
    ids=range(14),
)
async def test_what_is_not_json(http: httpx.AsyncClient, body: bytes) -> None:
    problem_of(await post(http, body), 400, "INVALID_JSON")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ([], "body"),
        ("text", "body"),
        (None, "body"),
        (7, "body"),
        ({}, "instruction"),
        ({"instruction": ""}, "instruction"),
        ({"instruction": "  \n\t"}, "instruction"),
        ({"instruction": None}, "instruction"),
        ({"instruction": ["x"]}, "instruction"),
        ({"instruction": "x" * 65_537}, "instruction"),
        ({"instruction": "ü" * 40_000}, "instruction"),
        ({"instruction": "a\x00b"}, "instruction"),
        ({**SPEC, "nonsense": 1}, "nonsense"),
        ({**SPEC, "tokens": 1, "Tier": "x"}, "Tier"),
        ({**SPEC, "x" * 100_000: 1}, "x" * 199 + "…"),
        ({**SPEC, "tier": "long"}, "tier"),
        ({**SPEC, "limits": {"tokens": -1}}, "limits.tokens"),
        ({**SPEC, "limits": {"tokens": 10**30}}, "limits.tokens"),
        ({**SPEC, "limits": {"tokens": 2**63}}, "limits.tokens"),
        ({**SPEC, "limits": {"cost_micro": 10**19}}, "limits.cost_micro"),
        ({**SPEC, "limits": {"tokens": 1.5}}, "limits.tokens"),
        ({**SPEC, "limits": {"wall_s": 0}}, "limits.wall_s"),
        ({**SPEC, "limits": {"turn": 3}}, "limits.turn"),
        ({**SPEC, "sandbox": {"cpu": 1e999}}, "sandbox.cpu"),
        ({**SPEC, "sandbox": {"memory_mb": 1}}, "sandbox.memory_mb"),
        ({**SPEC, "network": {"allow": ["pypi.org", "169.254.169.254"]}}, "network.allow.1"),
        ({**SPEC, "network": {"allow": "pypi.org"}}, "network.allow"),
        ({**SPEC, "network": {"open": True}}, "network.open"),
        ({**SPEC, "network": True}, "network"),
        ({**SPEC, "files": [{"file_id": "file_1234567890", "path": "../x"}]}, "files.0.path"),
        ({**SPEC, "files": [{"file_id": "file_1234567890", "path": "/etc/x"}]}, "files.0.path"),
        ({**SPEC, "files": [{"file_id": "file_1234567890", "path": "./."}]}, "files.0.path"),
        ({**SPEC, "files": [{"file_id": "x" * 50_000, "path": "x"}]}, "files.0.file_id"),
        ({**SPEC, "files": [{"file_id": "file_1234567890\n", "path": "x"}]}, "files.0.file_id"),
        ({**SPEC, "files": [{"file_id": "file_1234567890", "path": "x"}] * 101}, "files"),
        ({**SPEC, "checks": [""]}, "checks.0"),
        ({**SPEC, "checks": ["true\x00"]}, "checks.0"),
        ({**SPEC, "checks": ["true"] * 21}, "checks"),
        ({**SPEC, "recording": "a\x00"}, "recording"),
        ({**SPEC, "metadata": {"a": "\x00"}}, "metadata.a"),
        ({**SPEC, "metadata": {"a\x00": "b"}}, "metadata"),
        ({**SPEC, "metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({**SPEC, "metadata": {"a": 1}}, "metadata.a"),
        ({**SPEC, "repo": "https://example.org/x.git"}, "repo"),
    ],
    ids=range(44),
)
async def test_a_wrong_field_is_named(http: httpx.AsyncClient, spec: Any, field: str) -> None:
    problem = problem_of(await post(http, json.dumps(spec).encode()), 422, "VALIDATION_FAILED")
    assert field in [e.field for e in problem.errors]
    assert all(e.message for e in problem.errors)


async def test_not_a_number_is_no_number(http: httpx.AsyncClient) -> None:
    for word in ("NaN", "Infinity", "-Infinity", "1" * 10_000):
        answer = await post(http, b'{"instruction": "x", "tier": "replay", "sandbox": {"cpu": %s}}' % word.encode())
        assert answer.status_code in (400, 422)
        problem_of(answer, answer.status_code, answer.json()["code"])


async def test_hundreds_of_faults_are_a_short_answer(http: httpx.AsyncClient) -> None:
    spec = {**SPEC, **{f"field{n}": "v" * 500 for n in range(1_000)}}
    problem = problem_of(await post(http, json.dumps(spec).encode()), 422, "VALIDATION_FAILED")
    assert 10 < len(problem.errors) <= 50


async def test_no_body_that_is_too_large(http: httpx.AsyncClient) -> None:
    big = json.dumps({**SPEC, "x": "y" * (1 << 20)}).encode()
    problem_of(await post(http, big), 413, "BODY_TOO_LARGE")

    async def unannounced() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    answer = await http.post("/v1/tasks", content=unannounced(), headers=JSON)
    problem_of(answer, 413, "BODY_TOO_LARGE")


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"]
)
async def test_media_types(http: httpx.AsyncClient, content_type: str) -> None:
    problem_of(await post(http, json.dumps(SPEC).encode(), content_type), 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1", "/v2/tasks", "/v1/tasks/", "/v1/tasks//events", "/v1/task", "/docs", "/redoc", "/v1/%00", "/%ff%fe",
        "/v1/../etc/passwd", "/v1/tasks/task_0000000000000/nothing", "//v1/tasks", "/v1/tasks/" + "x" * 5_000 + "/y",
    ],
)  # fmt: skip
async def test_where_nothing_is(http: httpx.AsyncClient, path: str) -> None:
    problem_of(await http.get(path), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    "task_id",
    [
        "x",
        "task_%00abcdefgh",
        "task_" + "a" * 5_000,
        "task_abcd'--efgh",
        "%2e%2e",
        "task_ünïcödé123",
        "TASK_12345678",
        "task_12345678%0A",
    ],
)
@pytest.mark.parametrize("suffix", ["", "/result", "/events", "/events/stream", "/artifacts"])
async def test_ids_that_cannot_be(http: httpx.AsyncClient, task_id: str, suffix: str) -> None:
    problem_of(await http.get(f"/v1/tasks/{task_id}{suffix}"), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=-1", "limit=201", "limit=99999999999999999999999", "limit=x", "limit=", "limit=1.5",
        "limit=%00", "order=up", "status=nothing", "status=%00", "limt=3", "access_token=abc",
        "&".join(["status=queued"] * 500),
    ],
)  # fmt: skip
async def test_absurd_list_queries(http: httpx.AsyncClient, query: str) -> None:
    problem = problem_of(await http.get(f"/v1/tasks?{query}"), 422, "VALIDATION_FAILED")
    assert problem.errors[0].field.split(".")[0] == query.split("=")[0]


@pytest.mark.parametrize(
    "cursor",
    ["x", "", "%00", "=" * 50, "a" * 60_000, "ZGVzYyAxIHgn", "ZGVzYyA5OTk5OTk5OTk5OTk5OTk5OTk5OTk5IHRhc2tfMQ"],
)
async def test_cursors_that_were_never_given(http: httpx.AsyncClient, cursor: str) -> None:
    answer = await http.get(f"/v1/tasks?cursor={cursor}")
    problem_of(answer, 422, "INVALID_CURSOR")


@pytest.mark.parametrize(
    "query",
    [
        "after=-1", "after=99999999999999999999", "after=x", "before=0", "limit=1001", "kind=%00", "kind=a.b.c",
        "kind=" + "a" * 9_999, "agent=%00", "agent=x", "order=x", "unknown=1", "&".join(["kind=tool"] * 51),
    ],
)  # fmt: skip
async def test_absurd_event_queries(http: httpx.AsyncClient, query: str) -> None:
    task_id = await submit(http)
    problem_of(await http.get(f"/v1/tasks/{task_id}/events?{query}"), 422, "VALIDATION_FAILED")


@pytest.mark.parametrize("last", ["-1", "x", "9" * 40, "1.0", "٣"])
async def test_absurd_last_event_ids(http: httpx.AsyncClient, last: str) -> None:
    task_id = await submit(http)
    headers = {b"Last-Event-ID": last.encode()}
    answer = await http.get(f"/v1/tasks/{task_id}/events/stream", headers=headers)
    problem_of(answer, 422, "VALIDATION_FAILED")


async def test_a_number_that_is_not_there_yet(http: httpx.AsyncClient) -> None:
    task_id = await submit(http)
    problem_of(await http.get(f"/v1/tasks/{task_id}/events/stream?after=99"), 422, "VALIDATION_FAILED")


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "inf", "x", "1e999"])
async def test_absurd_waits(http: httpx.AsyncClient, wait: str) -> None:
    task_id = await submit(http)
    problem_of(await http.post(f"/v1/tasks/{task_id}/cancel?wait_s={wait}"), 422, "VALIDATION_FAILED")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Basic abc",
        "Bearer lh_unknown",
        "Bearer " + "x" * 5_000,
        "bearer \xff",
        "Bearer a b c",
    ],
)
async def test_without_a_good_key(someone: Tenant, header: str | None) -> None:
    async with httpx.AsyncClient(base_url=someone.url) as http:
        headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
        for method, path in (
            ("GET", "/v1/tasks"),
            ("POST", "/v1/tasks"),
            ("POST", "/v1/files"),
            ("GET", "/v1/artifacts/art_123456789"),
        ):
            answer = await http.request(method, path, headers=headers)
            problem_of(answer, 401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_scopes(someone: Tenant) -> None:
    async with someone.http(someone.reading_key) as http:
        assert (await http.get("/v1/tasks")).status_code == 200
        problem_of(await http.post("/v1/tasks", json=SPEC), 403, "FORBIDDEN")
        problem_of(await http.post("/v1/files?name=x", content=b"x"), 403, "FORBIDDEN")
    async with someone.http(someone.powerless_key) as http:
        problem_of(await http.get("/v1/tasks"), 403, "FORBIDDEN")


async def test_every_route_answers_a_problem_of_the_same_shape(someone: Tenant, http: httpx.AsyncClient) -> None:
    seen = 0
    async with httpx.AsyncClient(base_url=someone.url) as nobody:
        for route in routes():
            path = concrete(route, "task_00000000000000000000000000")
            wrong = await nobody.request("PATCH", path)
            problem_of(wrong, 405, "METHOD_NOT_ALLOWED")
            assert wrong.headers["allow"]
            if route.method == "HEAD":  # whose answer has no body
                answers = [await one.head(path, params={"nonsense": "1"}) for one in (nobody, http)]
                assert [a.content for a in answers] == [b"", b""]
                assert (answers[0].status_code, answers[1].status_code in (404, 422)) == (401, True)
            elif path.startswith("/v1"):
                problem_of(await nobody.request(route.method, path), 401, "UNAUTHENTICATED")
                answer = await http.request(route.method, path, params={"nonsense": "1"})
                problem_of(answer, answer.status_code, answer.json()["code"])
                assert answer.status_code in (404, 415, 422)
            seen += 1
    assert seen >= 14


async def test_the_document_knows_every_route(http: httpx.AsyncClient) -> None:
    answer = await http.get("/openapi.json")
    document = answer.json()
    assert "https://" not in answer.text.replace("https://json-schema.org", "")
    for route in routes():
        operation = document["paths"][route.path.replace(":path}", "}")][route.method.lower()]
        assert operation["summary"]
        assert operation["responses"]["default"]["content"]["application/problem+json"]
        assert "422" not in operation["responses"]
        if route.path.startswith("/v1"):
            assert operation["security"]
    schemas = document["components"]["schemas"]
    assert "instruction" in schemas["TaskSpec"]["properties"]
    assert schemas["Problem"]["properties"]["code"]
    references = {part.split('"')[0] for part in answer.text.split('"#/components/schemas/')[1:]}
    assert references <= set(schemas)
    examples = document["paths"]["/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    for example in examples.values():
        TaskSpec.model_validate(example["value"])


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /v1/tasks HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET /v1/t\xc3\xa4sks HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/tasks?status=\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://other.example/v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
    ids=range(10),
)
def test_bytes_that_are_hardly_http(api: ApiProcess, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", api.settings.api_port), timeout=5) as sock:
        sock.sendall(raw)
        sock.shutdown(socket.SHUT_WR)
        try:
            answer = sock.recv(65_536)
        except ConnectionResetError:
            answer = b""
    assert b" 500 " not in answer.split(b"\r\n", 1)[0]
    assert httpx.get(f"{api.url}/healthz").status_code == 200


async def test_headers_of_every_answer(http: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/v1/tasks", "/nothing", "/openapi.json"):
        headers = (await http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_nothing_of_all_this_was_unexpected(api: ApiProcess) -> None:
    lines = [json.loads(line) for line in api.log.read_text().splitlines() if line.startswith("{")]
    assert [line for line in lines if line["level"] == "error"] == []
