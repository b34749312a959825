"""What an agent is doing, in the few words that a watcher reads beside its name."""

import json

from agents.contracts.tool import ToolCall

ASKING = "asking the model"
_CHARS = 100
_VERBS = {
    "shell": ("running", "command"),
    "read_file": ("reading", "path"),
    "write_file": ("writing", "path"),
    "edit_file": ("editing", "path"),
    "save_artifact": ("keeping", "path"),
    "send_message": ("writing to", "to"),
}
_CONTROL = {
    "ask": "asking a question",
    "submit_plan": "handing in the plan",
    "finish_step": "handing in the step",
    "give_up": "giving up",
    "submit_review": "handing in the review",
}


def doing(calls: tuple[ToolCall, ...]) -> str:
    """Such as ``running: pytest -q``; the first call, and how many more there are."""
    if not calls:
        return ASKING
    more = f" (+{len(calls) - 1})" if len(calls) > 1 else ""
    return (_CONTROL.get(calls[0].name) or _work(calls[0])) + more


def _work(call: ToolCall) -> str:
    verb, field = _VERBS.get(call.name, (f"calling {call.name}", ""))
    try:
        what = str(json.loads(call.arguments).get(field, "")) if field else ""
    except (ValueError, AttributeError):
        what = ""
    line = " ".join(what.split())
    return f"{verb}: {line if len(line) <= _CHARS else line[: _CHARS - 1] + '…'}" if line else verb


_PLACES = {"workspace": "The workspace", "clean_copy": "Your clean copy of the workspace"}


def restored(purpose: str, step: str | None, turn: int, behind: int) -> str:
    """What an agent is told of its sandbox that was lost and made again: which files there are, and what is gone.
    `behind` is in how many of its turns it called tools since."""
    if purpose == "workspace" and step is not None:
        state = f"as it was after turn {turn} of step {step}"
    elif purpose == "workspace":
        state = "as it was when the task began: the uploaded files and nothing else (turn 0)"
    else:
        state = "as it was when this review began (turn 0)"
    own = f"What your last {_turns(behind)} changed is gone" if behind else "No turn of yours is missing from it"
    return (
        f"{_PLACES[purpose]} was lost by a fault of its host and has been restored {state}. {own}; what others changed "
        "since then is gone, too, and so is everything in /tmp and $HOME and every command that still ran. Nothing was "
        "repeated for you. Look at the files before you rely on them, and do again what is missing."
    )


def _turns(count: int) -> str:
    return "turn with calls" if count == 1 else f"{count} turns with calls"
