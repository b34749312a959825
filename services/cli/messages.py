"""Commands on messages: messages, send, answer."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agents.contracts.message import PERSON, MessageBody, MessageView, small
from services.cli import exits
from services.cli.connect import find
from services.cli.exits import guarded
from services.cli.stack import DataDirOption, data_dir_of
from services.cli.words import one_line
from services.client import Client
from services.stack.program import runnable

Task = Annotated[str, typer.Argument(metavar="TASK", help="A task's id.")]
Text = Annotated[str, typer.Argument(help="What to say; `-` reads it from stdin.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for scripts, on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (messages, send, answer):
        app.command()(command)


def messages(
    task: Task,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """Show what agents and people wrote to each other, the newest last."""
    with guarded(), _client(data_dir) as client:
        page = client.messages(task, limit=limit)
        if as_json:
            typer.echo(page.model_dump_json(indent=1))
            return
        if page.next_cursor:
            typer.echo(f"(only the newest {limit}; --limit shows more)")
        for message in reversed(page.data):
            for line in lines(message):
                typer.echo(line)
        if not page.data:
            typer.echo(runnable(f"No messages yet. Write one: longhaul send {task} 'what to say'"))


def send(
    task: Task,
    text: Text,
    to: Annotated[
        str | None, typer.Option(help="planner, a step's id, reviewer:STEP; without it who is at work.")
    ] = None,
    reply_to: Annotated[str | None, typer.Option(help="The id of the question that this answers.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key never sends it twice.")] = None,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """Steer a task: its agent reads this before its next turn."""
    with guarded(), _client(data_dir) as client:
        given = {name: value for name, value in (("to", to), ("reply_to", reply_to)) if value is not None}
        _show(client.send(task, _body(text, given), idempotency_key), as_json=as_json)


def answer(
    task: Task,
    text: Text,
    question: Annotated[
        str | None, typer.Option(metavar="ID", help="Which question; only needed where several are open.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """Answer the question that a task waits with."""
    with guarded(), _client(data_dir) as client:
        asked = question or _open_question(client, task)
        _show(client.send(task, _body(text, {"reply_to": asked})), as_json=as_json)


def lines(message: MessageView) -> list[str]:
    """A message as it is listed."""
    to_person = message.kind == "question" and message.recipient == PERSON
    state = _answered(message) if to_person else message.state
    at = f"{message.sent_at.astimezone():%H:%M:%S}"
    head = f"{at}  {message.id}  {message.kind} from {message.sender} to {message.recipient} ({state})"
    return [head, f"    {one_line(message.text, 2_000)}"]


def _open(question: MessageView) -> bool:
    return question.answered_by is None and question.closed_by is None


def _answered(question: MessageView) -> str:
    if question.answered_by:
        return f"answered by {question.answered_by}"
    if question.closed_by:
        return f"not answered, closed by {question.closed_by}"
    until = question.expires_at
    return f"open until {until.astimezone():%Y-%m-%d %H:%M:%S}" if until else "open"


def _client(data_dir: Path | None) -> Client:
    return find(data_dir_of(data_dir)).client()


def _body(text: str, given: dict[str, str]) -> MessageBody:
    said = sys.stdin.read() if text == "-" else text
    try:
        small(said)
    except ValueError as why:
        raise exits.CliError(f"The message {why}.") from None
    try:
        return MessageBody.model_validate({"text": said, **given})
    except ValueError:
        raise exits.CliError("--reply-to and --question take a message's id, such as msg_01J9….") from None


def _open_question(client: Client, task: str) -> str:
    """The only open question to a person.

    Raises:
        CliError: there is none, or there are several.
    """
    cursor: str | None = None
    found: list[MessageView] = []
    while True:
        page = client.messages(task, limit=200, cursor=cursor)
        found += [m for m in page.data if m.kind == "question" and m.recipient == PERSON and _open(m)]
        cursor = page.next_cursor
        if cursor is None:
            break
    if len(found) == 1:
        return found[0].id
    if not found:
        raise exits.CliError(f"Task {task} has no open question. To steer it: longhaul send {task} 'what to say'")
    listed = "\n".join(f"  --question {m.id}   {m.sender}: {one_line(m.text)}" for m in found)
    raise exits.CliError(f"Several questions are open; say which:\n{listed}")


def _show(sent: MessageView, *, as_json: bool) -> None:
    typer.echo(
        sent.model_dump_json(indent=1) if as_json else f"{sent.id}  {sent.kind} to {sent.recipient}\n{sent.note}"
    )
