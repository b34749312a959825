"""Commands on approvals: approvals, approve, deny."""

from typing import Annotated

import typer

from agents.contracts.approval import Approval, ApprovalState, Decision
from services.cli.exits import guarded
from services.cli.stack import DataDirOption
from services.cli.tasks import AsJson, access_of
from services.cli.words import age, arguments_line, one_line
from services.stack.program import runnable

ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="An approval's id.")]
Note = Annotated[str | None, typer.Option(help="Why; the model reads the note of a denial.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (approvals, approve, deny):
        app.command()(command)


def approvals(
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="Only of this task.")] = None,
    state: Annotated[
        list[ApprovalState] | None, typer.Option(help="Of this state; may be repeated. Without it: what waits.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """List the calls that wait for a person."""
    with guarded(), access_of(data_dir).client() as client:
        page = client.approvals(task, state or (ApprovalState.PENDING,), limit=limit)
        if as_json:
            typer.echo(page.model_dump_json(indent=1))
            return
        if not page.data:
            typer.echo("Nothing waits for a decision." if not state else "None.")
        for approval in page.data:
            _show(approval)


def approve(approval: ApprovalId, note: Note = None, as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """Let a call run. A decision is made once."""
    _decide(approval, "approve", note, as_json, data_dir)


def deny(approval: ApprovalId, note: Note = None, as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """Refuse a call: it is not run, and the model is told so."""
    _decide(approval, "deny", note, as_json, data_dir)


def _decide(approval: str, decision: Decision, note: str | None, as_json: bool, data_dir: DataDirOption) -> None:
    with guarded(), access_of(data_dir).client() as client:
        decided = client.decide(approval, decision, note)
        typer.echo(decided.model_dump_json(indent=1) if as_json else f"{decided.id}  {decided.state.value}")


def _show(approval: Approval) -> None:
    typer.echo(f"{approval.id}  {approval.state.value}  task {approval.task_id}  [{approval.step_id}]")
    typer.echo(f"  {approval.tool} {arguments_line(approval.arguments)}")
    if approval.kind == "unknown_outcome":
        typer.echo("  It was begun before and nobody knows how it ended; to approve is to run it again.")
    if approval.state is ApprovalState.PENDING:
        left = age(approval.requested_at, approval.expires_at)
        typer.echo(f"  asked {approval.requested_at.astimezone():%Y-%m-%d %H:%M:%S}, decide within {left}")
        typer.echo(runnable(f"  longhaul approve {approval.id}    longhaul deny {approval.id} --note WHY"))
    elif approval.actor:
        note = f": {one_line(approval.note)}" if approval.note else ""
        typer.echo(f"  by {one_line(approval.actor)}{note}")
