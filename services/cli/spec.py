"""From the options of `longhaul submit` to a task's spec."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, cast, get_args

from pydantic import ValidationError

from agents.contracts.approval import ToolPolicy
from agents.contracts.network import NetworkPolicy, rule_of
from agents.contracts.plan import Tier
from agents.contracts.task import InputFile, Limits, Repo, TaskSpec
from services.cli.exits import CliError
from services.cli.pack import pack
from services.client import Client

M = TypeVar("M", Limits, NetworkPolicy, TaskSpec)
TIERS: tuple[str, ...] = get_args(Tier)


def limits_of(given: Sequence[str]) -> Limits:
    """Limits from ``name=number`` pairs.

    Raises:
        CliError: names what is wrong and what there is.
    """
    values: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or name not in Limits.model_fields:
            raise CliError(f"--limit {pair}: write NAME=NUMBER; names: {', '.join(Limits.model_fields)}.")
        values[name] = value.replace("_", "")
    return _validated(Limits, values, "--limit")


def tools_of(given: Sequence[str]) -> dict[str, str]:
    """What may happen to tools, from ``name=word`` pairs.

    Raises:
        CliError: names the words that there are.
    """
    words = get_args(ToolPolicy)
    pairs = [pair.partition("=") for pair in given]
    for name, _, word in pairs:
        if not name or word not in words:
            raise CliError(f"--tool {name}={word}: write NAME=WORD; words: {', '.join(words)}.")
    return {name: word for name, _, word in pairs}


def network_of(given: Sequence[str]) -> NetworkPolicy:
    """What commands may reach.

    Raises:
        CliError: says what a host looks like.
    """
    for host in given:
        try:
            rule_of(host)
        except ValueError as fault:
            raise CliError(f"--allow {host}: {fault}.") from None
    return _validated(NetworkPolicy, {"allow": list(given)}, "--allow")


def source_and_path(given: str) -> tuple[Path, str]:
    """``SRC[:DEST]``: the file here, and its place in the workspace."""
    source, colon, path = given.rpartition(":")
    if not colon or not source:
        source, path = given, Path(given).name
    if not Path(source).is_file():
        raise CliError(f"--file {given}: there is no file {source}.")
    return Path(source), path


def build(
    client: Client,
    instruction: str,
    *,
    repo: Path | None,
    files: Sequence[str],
    checks: Sequence[str],
    tier: str,
    limits: Sequence[str],
    tools: Sequence[str] = (),
    allow: Sequence[str] = (),
    template: str | None = None,
    recording: str | None = None,
) -> TaskSpec:
    """Check everything that can be checked here, upload what is needed, then make the spec."""
    if tier not in TIERS:
        raise CliError(f"--tier {tier}: choose one of {', '.join(TIERS)}.")
    values: dict[str, object] = {"instruction": instruction, "tier": cast(Tier, tier), "checks": list(checks)}
    values["limits"] = limits_of(limits)
    values["tools"] = tools_of(tools)
    values["network"] = network_of(allow)
    if template is not None:
        values["template"] = template
    if recording is not None:
        values["recording"] = recording
    places = [source_and_path(given) for given in files]
    _validated(TaskSpec, values, "the task")
    if places:
        values["files"] = [InputFile(file_id=client.upload(s, s.name).id, path=path) for s, path in places]
    if repo is not None:
        values["repo"] = uploaded(client, repo)
    return _validated(TaskSpec, values, "the task")


def uploaded(client: Client, folder: Path) -> Repo:
    """Pack a folder and upload it."""
    with pack(folder) as archive:
        return Repo(file_id=client.upload(archive, f"{folder.resolve().name or 'repo'}.tar.gz").id)


def _validated(model: type[M], values: object, what: str) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as fault:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in fault.errors(include_url=False))
        raise CliError(f"{what} is not valid: {wrong}") from None
