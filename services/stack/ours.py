"""Our own processes: each main's environment and how to know that it is ready."""

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from services.stack import disk
from services.stack.layout import CHECKOUT
from services.stack.ports import HOST
from services.stack.probe import Answer, ask, listed
from services.stack.servers import postgres, seaweed, temporal
from services.stack.servers.context import Context
from services.stack.unit import NotReady, Unit

WORKERS = 2
TASK_QUEUES = {"lh-wf": "WORKFLOW", "lh-burst": "ACTIVITY", "lh-task": "ACTIVITY", "lh-long": "ACTIVITY"}
_SERVERS = ("PG_", "TEMPORAL_", "NATS_")
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "api": ("PG_", "NATS_", "S3_", "API_", "STORAGE_", "RUNNER_", "MODEL_BASE_URL", "MODEL_FAST", "MODEL_FULL"),
    "worker": (*_SERVERS, "S3_", "STORAGE_", "RUNNER_", "REPLAY_", "MODEL_", "APPROVAL_", "SNAPSHOT_"),
    "relay": (*_SERVERS, "S3_", "RUNNER_", "RUNNING_TASKS"),
    "runner": ("RUNNER_", "STORAGE_", "S3_", "MULTI_TENANT"),
    "migrate": ("PG_",),
}
"""Beginnings of the variables that a role gets; it can lose no secret that it never had."""
_THEIRS = (
    "LONGHAUL_MODEL_",
    "LONGHAUL_APPROVAL_",
    "LONGHAUL_SNAPSHOT_",
    "LONGHAUL_RUNNING_TASKS",
    "LONGHAUL_RUNNER_PRIVATE_HOSTS",
    "LONGHAUL_RUNNER_CREDENTIALS_FILE",
    "LONGHAUL_MULTI_TENANT",
    *("LONGHAUL_RUNNER_BACKEND", "LONGHAUL_RUNNER_ENGINE_URL", "LONGHAUL_RUNNER_RUNTIME", "LONGHAUL_RUNNER_IMAGE"),
)
"""What the user sets for our processes."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_PASSED_ON = (*_PROXIES, "SSL_CERT_FILE", "SSL_CERT_DIR")


def environment(context: Context, role: str, template: Path, user: Mapping[str, str]) -> dict[str, str]:
    """The environment of one of our processes: what its role needs and no more."""
    ports, secrets = context.ports, context.secrets
    nats = {
        "api": secrets.nats_api_password,
        "worker": secrets.nats_worker_password,
        "relay": secrets.nats_relay_password,
    }
    values = {
        "PG_HOST": HOST,
        "PG_PORT": ports["postgres"],
        "PG_USER": postgres.ROLE,
        "PG_PASSWORD": secrets.pg_password,
        "PG_DATABASE": postgres.DATABASE,
        "TEMPORAL_ADDRESS": f"{HOST}:{ports['temporal']}",
        "TEMPORAL_NAMESPACE": temporal.NAMESPACE,
        "NATS_URL": f"nats://{HOST}:{ports['nats']}",
        "NATS_USER": role if role in nats else "",
        "NATS_PASSWORD": nats.get(role, ""),
        "S3_ENDPOINT": f"http://{HOST}:{ports['s3']}",
        "S3_REGION": seaweed.REGION,
        "S3_ACCESS_KEY": secrets.s3_access_key,
        "S3_SECRET_KEY": secrets.s3_secret_key,
        "S3_BUCKET": seaweed.BUCKET,
        "API_HOST": HOST,
        "API_PORT": ports["api"],
        "STORAGE_DIR": context.data.root,
        "STORAGE_FLOOR_BYTES": disk.floor_of(user),
        "RUNNER_HOST": HOST,
        "RUNNER_PORT": ports["runner"],
        "RUNNER_TOKEN": secrets.runner_token,
        "RUNNER_DATA_DIR": context.data.sandboxes,
        "RUNNER_TEMPLATE_DIR": template,
        "REPLAY_URL": f"http://{HOST}:{ports['replay']}/v1",
        "REPLAY_TOKEN": secrets.replay_token,
    }
    wanted = tuple(f"LONGHAUL_{beginning}" for beginning in _NEEDS[role])
    theirs = {name: value for name, value in user.items() if name.startswith(_THEIRS)}
    every = theirs | {f"LONGHAUL_{name}": str(value) for name, value in values.items()}
    return _python(context, user) | {name: value for name, value in every.items() if name.startswith(wanted)}


def migrate_environment(context: Context, template: Path, user: Mapping[str, str]) -> dict[str, str]:
    """As the others, and the digest of the first API key: the key itself stays with the launcher."""
    digest = hashlib.sha256(context.secrets.api_key.encode()).hexdigest()
    return environment(context, "migrate", template, user) | {"LONGHAUL_BOOTSTRAP_KEY_SHA256": digest}


def units(context: Context, template: Path, user: Mapping[str, str], pipe_fd: int) -> list[Unit]:
    """All of them. Only the runner inherits `pipe_fd`, whose end of file tells it that the launcher is gone."""
    replay = _python(context, user) | {
        "LONGHAUL_REPLAY_HOST": HOST,
        "LONGHAUL_REPLAY_PORT": str(context.ports["replay"]),
        "LONGHAUL_REPLAY_TOKEN": context.secrets.replay_token,
    }
    replay |= {name: user[name] for name in ("LONGHAUL_RECORDINGS_DIR", "LONGHAUL_REPLAY_PACE_MS") if name in user}
    runner = environment(context, "runner", template, user) | {"LONGHAUL_RUNNER_PIPE_FD": str(pipe_fd)}
    worker = environment(context, "worker", template, user)
    found = [
        _unit(context, "runner", "services.sandbox.main", runner, port="runner", pass_fds=(pipe_fd,)),
        _unit(context, "replay", "gpu.engine.main", replay, port="replay"),
        _unit(context, "relay", "services.relay.main", environment(context, "relay", template, user)),
    ]
    found += [_unit(context, f"worker-{n}", "services.worker.main", worker, polls=True) for n in range(1, WORKERS + 1)]
    return [*found, _unit(context, "api", "services.api.main", environment(context, "api", template, user), port="api")]


def _unit(
    context: Context,
    name: str,
    module: str,
    env: Mapping[str, str],
    *,
    port: str = "",
    polls: bool = False,
    pass_fds: tuple[int, ...] = (),
) -> Unit:
    async def ready(pid: int) -> bool:
        if port:
            return said_ready(await ask(context.ports[port], "/readyz"))
        return await (_polls(context, pid) if polls else _connected(context, name))

    return Unit(
        name=name,
        argv=(sys.executable, "-m", module),
        env=env,
        cwd=CHECKOUT,
        log=context.data.log(name),
        ready=ready,
        ready_within_s=120.0,  # a machine that is busy loads our libraries slowly; starting anew would not help
        pass_fds=pass_fds,
    )


def said_ready(answer: Answer) -> bool:
    """Whether an answer of ``/readyz`` says so.

    Raises:
        NotReady: with the reason that it gives.
    """
    if answer.status in (0, 200):
        return answer.status == 200
    try:
        told = json.loads(answer.body)
        away = [name for name, state in told.get("servers", {}).items() if state != "ok"]
    except (ValueError, AttributeError):
        return False
    raise NotReady(told.get("detail") or f"it waits for {', '.join(away) or 'what it needs'}")


async def _connected(context: Context, user: str) -> bool:
    """Whether NATS has a connection of that user."""
    answer = await ask(context.ports["nats_monitor"], "/connz?auth=1&limit=1024")
    return any(connection.get("authorized_user") == user for connection in listed(answer, "connections"))


async def _polls(context: Context, pid: int) -> bool:
    """Whether Temporal sees this worker at every queue; the names of those before it stay there for minutes."""
    for queue, kind in TASK_QUEUES.items():
        path = f"/api/v1/namespaces/{temporal.NAMESPACE}/task-queues/{queue}?taskQueueType=TASK_QUEUE_TYPE_{kind}"
        answer = await ask(context.ports["temporal_http"], path)
        pollers = listed(answer, "pollers")
        if not any(str(poller.get("identity", "")).startswith(f"{pid}@") for poller in pollers):
            return False
    return True


def _python(context: Context, user: Mapping[str, str]) -> dict[str, str]:
    """What our Python processes need: UTF-8 whatever the locale, few malloc arenas, the user's way to the network."""
    ours = {"PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "MALLOC_ARENA_MAX": "2"}
    network = {name: user[name] for name in _PASSED_ON if name in user}
    if any(name in user for name in _PROXIES):  # a proxy must never see what we say to each other
        inner = ",".join(filter(None, (user.get("NO_PROXY") or user.get("no_proxy"), HOST, "localhost")))
        network |= {"NO_PROXY": inner, "no_proxy": inner}
    return context.environment(context.data.root) | ours | network
