"""Sandboxes: made once, destroyed for good; limits that hold or are refused; the HTTP manners."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import SandboxSpec, SandboxState, Trait, WriteFile
from services.sandbox.client import RunnerClient
from services.sandbox.namespace import find_bwrap
from tests.contract.sandbox.runner import (
    TOKEN,
    Box,
    RunnerProcess,
    ask,
    make_box,
    new_key,
    owner,
    sleeping,
    until,
)


async def test_made_once_found_after(client: RunnerClient, box: Box, runner: RunnerProcess) -> None:
    again = await make_box(client)
    info = await client.info(again.id)
    assert (info.state, info.backend, info.fence) == (SandboxState.READY, runner.backend, 1)
    assert info.created_at.tzinfo is not None
    await again.out("touch kept")
    spec = SandboxSpec(id=again.id, tenant_id="t", task_id="task_1", fence=3)
    assert (await client.create(spec)).created_at == info.created_at
    assert (await client.info(again.id)).fence == 3
    assert (await client.list_files(again.id, 5))[1] == 1
    with pytest.raises(LonghaulError) as caught:
        await client.create(spec.model_copy(update={"tenant_id": "other"}))
    assert caught.value.code is ErrorCode.VALIDATION_FAILED
    await client.destroy(again.id)


async def test_all_are_listed_and_one_that_is_gone_is_not(client: RunnerClient) -> None:
    one, other = await make_box(client), await make_box(client)
    there = {info.id: info for info in await client.list_sandboxes()}
    assert there[one.id] == await client.info(one.id)
    await client.destroy(one.id)
    left = {info.id for info in await client.list_sandboxes()}
    assert one.id not in left
    assert other.id in left
    await client.destroy(other.id)


async def test_destroy_ends_everything_and_takes_all_files(client: RunnerClient, runner: RunnerProcess) -> None:
    box = await make_box(client)
    home = runner.home(box.id)
    await box.out(
        "mkdir -p ro/deep; touch ro/deep/f; chmod 000 ro/deep/f; chmod 555 ro/deep; chmod 000 ro; "
        "d=.; for i in $(seq 200); do d=$d/nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn; done; mkdir -p $d"
    )
    running = asyncio.create_task(box.run("setsid sleep 87654.5 & sleep 87654.5"))
    await until(lambda: len(sleeping("87654.5")) == 2)
    await client.destroy(box.id)
    assert not sleeping("87654.5")
    assert not home.root.exists()
    assert not list((runner.data / "trash").iterdir())
    await client.destroy(box.id)
    await asyncio.wait([running])
    for call in (client.info(box.id), box.run("true"), client.list_files(box.id, 1)):
        with pytest.raises(LonghaulError) as caught:
            await call
        assert caught.value.code is ErrorCode.SANDBOX_NOT_FOUND


async def test_a_copy_waits_for_commands_under_way(box: Box, client: RunnerClient, runner: RunnerProcess) -> None:
    running = asyncio.create_task(box.run("echo half > f; sleep 1; echo whole > f"))
    await until((runner.home(box.id).workspace / "f").exists)
    copy = await make_box(client, copy_of=box.id)
    assert await copy.out("cat f") == "whole\n"
    assert (await running).exit_code == 0
    await client.destroy(copy.id)


async def test_a_copy_of_nothing_is_an_error(client: RunnerClient) -> None:
    with pytest.raises(LonghaulError) as caught:
        await make_box(client, copy_of="sbx_none")
    assert caught.value.code is ErrorCode.SANDBOX_NOT_FOUND


async def test_limits_hold_or_are_refused(client: RunnerClient) -> None:
    can = (await client.capabilities()).limits
    assert "disk_mb" not in can
    for name, value in {"memory_mb": 128, "cpu": 0.5, "pids": 32, "disk_mb": 100}.items():
        if name in can:
            continue
        with pytest.raises(LonghaulError, match=name) as caught:
            await make_box(client, limits={name: value})
        assert caught.value.code is ErrorCode.CAPABILITY_MISSING
        made = await make_box(client, limits={name: value, "best_effort": True})
        await client.destroy(made.id)


async def test_memory_is_held(client: RunnerClient) -> None:
    box = await _limited(client, memory_mb=128)
    if box is None:
        return
    status = await box.run("python3 -c \"x = b'x' * (600 << 20)\"")
    told = Trait.OOM_TOLD in (await client.capabilities()).traits
    assert (status.exit_code, status.reason) == ((137, "oom") if told else (None, "lost"))
    assert await box.out("echo alive") == "alive\n"
    await client.destroy(box.id)


async def test_processes_are_held(client: RunnerClient) -> None:
    box = await _limited(client, pids=32)
    if box is None:
        return
    script = """
import os, time
made = 0
try:
    while os.fork():
        made += 1
    time.sleep(3)
except OSError:
    print(made)
"""
    out = await box.out(f'python3 -c "{script}"')
    assert 0 < int(out) < 32
    await client.destroy(box.id)


async def test_where_no_process_can_be_made_nothing_was_started(client: RunnerClient, runner: RunnerProcess) -> None:
    box = await _limited(client, pids=16)
    if box is None:
        return
    hog = "import os, time\ntry:\n    while os.fork(): pass\nexcept OSError: open('full', 'w')\ntime.sleep(60)"
    first, second = ask(f'python3 -c "{hog}"'), ask("echo ran >> ran; cat ran")
    hogging = asyncio.create_task(client.exec(box.id, first))
    await until((runner.home(box.id).workspace / "full").exists)
    with pytest.raises(LonghaulError) as caught:
        await client.exec(box.id, second)
    assert caught.value.code is ErrorCode.SPAWN_FAILED
    await client.kill(box.id, first.exec_id, owner())
    assert (await hogging).reason == "killed"
    assert (await client.exec(box.id, second)).output == "ran\n"
    await client.destroy(box.id)


async def test_cpu_is_held(client: RunnerClient) -> None:
    box = await _limited(client, cpu=0.2)
    if box is None:
        return
    script = """
import time
end = time.monotonic() + 1.5
while time.monotonic() < end:
    pass
print(time.process_time())
"""
    out = await box.out(f'python3 -c "{script}"')
    assert float(out) < 1.0
    await client.destroy(box.id)


async def _limited(client: RunnerClient, **limits: float) -> Box | None:
    """A sandbox with a limit, or None where the host has just refused it, as it must when it cannot enforce it."""
    if set(limits) <= set((await client.capabilities()).limits):
        return await make_box(client, limits=limits)
    with pytest.raises(LonghaulError) as caught:
        await make_box(client, limits=limits)
    assert caught.value.code is ErrorCode.CAPABILITY_MISSING
    return None


def call(
    runner: RunnerProcess, method: str, path: str, body: bytes | None = None, token: str = TOKEN
) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(runner.url + path, body, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def test_faults_have_one_shape_and_the_status_of_their_code(runner: RunnerProcess, box: Box) -> None:
    cases = [
        ("GET", "/v1/capabilities", None, "wrong", 401, "UNAUTHENTICATED"),
        ("GET", "/v1/capabilities", None, "ünï", 401, "UNAUTHENTICATED"),
        ("GET", "/v1/nothing", None, TOKEN, 404, "NOT_FOUND"),
        ("PATCH", "/v1/capabilities", None, TOKEN, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/sandboxes/sbx_none", None, TOKEN, 404, "SANDBOX_NOT_FOUND"),
        ("GET", "/v1/sandboxes/..%2f..%2fetc", None, TOKEN, 422, "VALIDATION_FAILED"),
        ("POST", f"/v1/sandboxes/{box.id}/execs", b"{", TOKEN, 422, "VALIDATION_FAILED"),
        ("POST", f"/v1/sandboxes/{box.id}/read", b'{"path": "none"}', TOKEN, 404, "FILE_NOT_FOUND"),
        ("PUT", f"/v1/sandboxes/{box.id}/archive?key=k", b"x", TOKEN, 422, "VALIDATION_FAILED"),
        ("GET", f"/v1/sandboxes/{box.id}/files?limit=many", None, TOKEN, 422, "VALIDATION_FAILED"),
    ]
    for method, path, body, token, status, code in cases:
        found, fault = await asyncio.to_thread(call, runner, method, path, body, token.encode().decode("latin-1"))
        assert (found, fault["code"]) == (status, code), path
        assert fault["detail"]


async def test_health_needs_no_token(runner: RunnerProcess) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await asyncio.to_thread(call, runner, "GET", path, None, ""))[0] == 200


async def test_a_body_too_large_is_refused(box: Box) -> None:
    request = WriteFile(key=new_key(), owner=owner(), path="a", content="x" * (65 << 20))
    with pytest.raises(LonghaulError) as caught:
        await box.client.write_file(box.id, request)
    assert caught.value.code is ErrorCode.BODY_TOO_LARGE


async def test_without_user_namespaces_nothing_runs_and_the_fix_is_told(template: Path) -> None:
    """A host without them, made by taking them away from one runner."""
    prefix = (
        str(find_bwrap()),
        "--dev-bind",
        "/",
        "/",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--",
    )
    process = RunnerProcess("namespace/ordinary", template, prefix=prefix)
    try:
        process.start(ready=False)
        async with process.client() as client:
            found = await client.capabilities()
            assert not found.ready
            assert "user namespaces" in found.detail
            with pytest.raises(LonghaulError) as caught:
                await make_box(client)
            assert caught.value.code is ErrorCode.SANDBOX_UNAVAILABLE
            assert caught.value.detail == found.detail
        assert (await asyncio.to_thread(call, process, "GET", "/readyz", None, ""))[0] == 503
    finally:
        process.remove()


async def test_a_start_that_fails_can_be_asked_again(client: RunnerClient, runner: RunnerProcess) -> None:
    box = await make_box(client)
    runner.watch.kill(runner.home(box.id).root)  # one from the pool runs already
    private = runner.home(box.id).private
    private.rename(private.with_name("away"))
    request = ask("echo ran")
    with pytest.raises(LonghaulError) as caught:
        await client.exec(box.id, request)
    assert caught.value.code is ErrorCode.SPAWN_FAILED
    private.with_name("away").rename(private)
    assert (await client.exec(box.id, request)).output == "ran\n"
    await client.destroy(box.id)


async def test_an_exec_round_trip_is_quick(box: Box) -> None:
    taken = []
    for _ in range(5):
        begun = time.monotonic()
        await box.out("true")
        taken.append(time.monotonic() - begun)
    own_kernel = Trait.OWN_KERNEL in (await box.client.capabilities()).traits  # and it may be emulated
    assert min(taken) < (5.0 if own_kernel else 1.0)
