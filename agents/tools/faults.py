"""Faults as observations: what happened, then what to do about it."""

from agents.contracts.errors import ErrorCode
from agents.contracts.tool import ToolResult
from agents.tools.text import cap

E = ErrorCode

ADVICE: dict[ErrorCode, str] = {
    E.INVALID_ARGUMENTS: "Nothing was run. Call it again with corrected arguments.",
    E.UNKNOWN_TOOL: "Nothing was run. Use one of the tools you were given.",
    E.TOOL_NOT_ALLOWED: "Nothing was run.",
    E.APPROVAL_DENIED: "Nothing was run. Do not try the same again: find a way without it, or say that there is none.",
    E.APPROVAL_EXPIRED: "Nothing was run, and nobody has said no. Go on without it, or ask again if it is needed.",
    E.CONTROL_CALL_NOT_ALONE: "It was not acted on. Read the other results first, then call it alone.",
    E.FILE_NOT_FOUND: "List the folder with the shell (ls) to find the right path.",
    E.NOT_A_FILE: "Name a regular file; use the shell (ls) to look into a folder.",
    E.PATH_ESCAPE: "Paths are relative to the workspace and must stay inside it.",
    E.PERMISSION_DENIED: "Only the workspace and /tmp can be changed.",
    E.FILE_TOO_LARGE: "Work on a part of it with the shell (head, tail, sed -n, grep).",
    E.DISK_FULL: "Delete what you no longer need (build output, caches, large logs), then try again.",
    E.EDIT_NO_MATCH: "Nothing was changed. Copy `old` exactly from the file, or use write_file for the whole file.",
    E.EDIT_AMBIGUOUS: "Nothing was changed. Put more of the surrounding lines into `old` so that it occurs once.",
    E.EXEC_TIMEOUT: "It was ended with everything it had started. Do less in one command, or set a larger timeout_s.",
    E.EXEC_KILLED: "It did not end by itself, and did only a part of what it should. Try it with less data at a time.",
    E.EXEC_OUTCOME_UNKNOWN: "It may have run wholly, in part or not at all. Look at how things are, then decide.",
    E.INVALID_PLAN: "Nothing was planned. Submit the whole plan again, corrected.",
    E.CHECKS_FAILED: "Nothing is approved while a check of the task fails. Ask for a revision; say what to mend.",
    E.UNKNOWN_RECIPIENT: "Nothing was sent. Use one of these names.",
    E.RECIPIENT_GONE: "Nothing was asked. Decide it yourself, ask a person, or leave a message with send_message.",
    E.ASK_TIMED_OUT: "Go on without it: decide it yourself and say what you assumed, or ask somebody else.",
    E.ARTIFACT_MISSING: "Create the file first, or leave it out of the list.",
}
"""One line of advice for every code of class *tool*."""


def observe(tool: str, code: ErrorCode, detail: str) -> ToolResult:
    """A fault as the model reads it."""
    return ToolResult(tool=tool, error_code=code, content=f"{cap(detail).text.rstrip()}\n{ADVICE[code]}")
