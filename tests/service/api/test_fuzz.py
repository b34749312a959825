"""Whatever JSON, or almost JSON, is submitted: never a 5xx, and accepted only what is stored as it was said."""

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.contracts.task import TaskSpec
from tests.service.api.world import Tenant

texts = st.text(st.characters(codec=None), max_size=40)
numbers = st.integers() | st.floats() | st.booleans() | st.none()
values = st.recursive(numbers | texts, lambda v: st.lists(v, max_size=4) | st.dictionaries(texts, v, max_size=4))
fields = st.sampled_from([*TaskSpec.model_fields, "unknown", ""])
specs = st.dictionaries(fields, values, max_size=6)
near = st.fixed_dictionaries(
    {"instruction": texts, "tier": st.sampled_from(["replay", "auto", "x"])},
    optional={
        "files": st.lists(st.dictionaries(st.sampled_from(["file_id", "path", "x"]), texts), max_size=3) | values,
        "repo": st.dictionaries(st.just("file_id"), texts) | values,
        "checks": st.lists(texts, max_size=3) | values,
        "limits": st.dictionaries(st.sampled_from(["tokens", "cost_micro", "wall_s", "turns"]), numbers) | values,
        "sandbox": st.dictionaries(st.sampled_from(["cpu", "best_effort", "pids"]), numbers) | values,
        "metadata": st.dictionaries(texts, texts, max_size=4) | values,
        "recording": texts,
    },
)


@pytest.fixture
def client(someone: Tenant) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {someone.key}", "Content-Type": "application/json"}
    with httpx.Client(base_url=someone.url, headers=headers, timeout=30) as found:
        yield found


def check(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/v1/tasks", content=body)
    assert answer.status_code in (202, 400, 413, 422, 503), (answer.status_code, body[:500])
    if answer.status_code == 503:
        assert answer.json()["code"] == "RUNNER_UNAVAILABLE"
    elif answer.status_code == 202:
        said = json.loads(body)
        assert answer.json()["instruction"] == said["instruction"][:200]
        assert client.get(answer.headers["location"]).status_code == 200
    else:
        assert answer.headers["content-type"] == "application/problem+json"


bounded = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@bounded
@given(spec=specs | near | values, ascii_only=st.booleans())
def test_json(client: httpx.Client, spec: object, ascii_only: bool) -> None:
    check(client, json.dumps(spec, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))


@bounded
@given(body=st.binary(max_size=200) | st.from_regex(rb'\{"instruction":.{0,80}', fullmatch=True))
def test_bytes(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/v1/tasks", content=body)
    assert answer.status_code in (202, 400, 422)


@bounded
@given(path=texts, query=st.dictionaries(texts, texts, max_size=3))
def test_paths_and_queries(client: httpx.Client, path: str, query: dict[str, str]) -> None:
    clean = {k.encode("utf-8", "replace").decode(): v.encode("utf-8", "replace").decode() for k, v in query.items()}
    for prefix in ("/v1/tasks/", "/v1/artifacts/", "/v1/tasks?cursor=", "/"):
        try:
            answer = client.get(prefix + path.encode("utf-8", "replace").decode(), params=clean)
        except (httpx.InvalidURL, httpx.RemoteProtocolError):
            continue
        assert answer.status_code < 500
