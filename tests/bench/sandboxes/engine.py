"""What there is without us: the engine, through docker-py, as most harnesses use it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from docker.types import Mount

from services.sandbox.engine.image import host_image
from tests.bench.sandboxes.measure import Spread, spread
from tests.support.engine import Engine

IDLE = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"]


def _host(engine: Engine) -> object:
    mounts = [Mount("/usr", "/usr", type="bind", read_only=True)]
    return engine.client.api.create_host_config(network_mode="none", mounts=mounts)


def _image(engine: Engine) -> str:
    """The image that our own sandboxes have: links over this host's programs."""
    return host_image(engine.client.api)


def started(engine: Engine) -> str:
    """A container that does nothing."""
    name = f"lh-bench-{secrets.token_hex(4)}"
    api = engine.client.api
    api.create_container(_image(engine), command=IDLE, name=name, network_disabled=True, host_config=_host(engine))
    api.start(name)
    return name


@contextmanager
def container(engine: Engine) -> Iterator[str]:
    """One, and its end."""
    name = started(engine)
    try:
        yield name
    finally:
        engine.client.api.remove_container(name, force=True)


def execs(engine: Engine, count: int) -> Spread:
    """``docker exec true``: what docker-py does for it is three calls."""
    with container(engine) as name:
        found = engine.client.containers.get(name)

        def one() -> None:
            code, _ = found.exec_run(["/bin/true"])
            assert code == 0

        one()
        return spread(count, one)


def starts(engine: Engine, count: int) -> Spread:
    """Bare create and start; removal is not counted."""
    made: list[str] = []
    try:
        return spread(count, lambda: made.append(started(engine)))
    finally:
        for name in made:
            engine.client.api.remove_container(name, force=True)


def runs(engine: Engine, count: int) -> Spread:
    """``docker run --rm true``."""

    def one() -> None:
        api = engine.client.api
        name = f"lh-bench-{secrets.token_hex(4)}"
        api.create_container(_image(engine), command=["/bin/true"], name=name, host_config=_host(engine))
        api.start(name)
        api.wait(name)
        api.remove_container(name)

    return spread(count, one)
