"""A `ToolContext` over a dictionary: files are real text, commands are answered from a table."""

import hashlib

from agents.contracts.artifact import Artifact
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.message import Receipt
from agents.contracts.sandbox import ExecStatus, FileChange, FileText
from tests.unit.agents.make import NOW


class DictHands:
    """Files by path; `fault`, where set, is raised by everything."""

    def __init__(self, files: dict[str, str] | None = None, answer: ExecStatus | None = None) -> None:
        self.files = dict(files or {})
        self.answer = answer
        self.fault: LonghaulError | None = None
        self.sent: list[tuple[str, str]] = []
        self.commands: list[tuple[str, float]] = []

    async def run(self, command: str, timeout_s: float) -> ExecStatus:
        self._maybe_fail()
        self.commands.append((command, timeout_s))
        assert self.answer is not None
        return self.answer

    async def read(self, path: str, offset: int, limit: int) -> FileText:
        self._maybe_fail()
        text = self._get(path)
        lines = text.splitlines(keepends=True)
        return FileText(
            path=path,
            text="".join(lines[offset - 1 : offset - 1 + limit]),
            total_lines=len(lines),
            total_bytes=len(text.encode()),
            truncated=len(lines) > offset - 1 + limit,
        )

    async def write(self, path: str, content: str) -> FileChange:
        self._maybe_fail()
        created = path not in self.files
        self.files[path] = content
        return self._change(path, created)

    async def edit(self, path: str, old: str, new: str) -> FileChange:
        self._maybe_fail()
        count = self._get(path).count(old)
        if count != 1:
            code = ErrorCode.EDIT_AMBIGUOUS if count else ErrorCode.EDIT_NO_MATCH
            raise LonghaulError(code, f"{count} matches")
        self.files[path] = self.files[path].replace(old, new)
        return self._change(path, created=False)

    async def send(self, to: str, text: str) -> Receipt:
        self._maybe_fail()
        self.sent.append((to, text))
        return Receipt(message_id="msg_00000001", to=to, note="It is read before the next turn.")

    async def save(self, path: str, media_type: str | None) -> Artifact:
        self._maybe_fail()
        data = self._get(path).encode()
        return Artifact(
            id="artifact_00000001",
            task_id="task_00000001",
            path=path,
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            media_type=media_type or "text/plain",
            created_at=NOW,
        )

    def _get(self, path: str) -> str:
        if path not in self.files:
            raise LonghaulError(ErrorCode.FILE_NOT_FOUND, f"{path}: no such file")
        return self.files[path]

    def _change(self, path: str, created: bool) -> FileChange:
        data = self.files[path].encode()
        return FileChange(path=path, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), created=created)

    def _maybe_fail(self) -> None:
        if self.fault is not None:
            raise self.fault
