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
