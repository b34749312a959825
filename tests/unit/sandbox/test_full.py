"""A host without space is an infrastructure fault; a workspace without space is an observation."""

import errno
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import RunnerFault
from services.sandbox.app import _faults
from services.storage import Storage

E = ErrorCode


@pytest.mark.parametrize(
    ("fault", "floor", "told"),
    [
        (LonghaulError(E.DISK_FULL, "a.txt: the disk is full"), 0, E.DISK_FULL),
        (LonghaulError(E.DISK_FULL, "a.txt: the disk is full"), 1 << 60, E.STORAGE_FULL),
        (LonghaulError(E.FILE_NOT_FOUND, "a.txt"), 1 << 60, E.FILE_NOT_FOUND),
        (OSError(errno.ENOSPC, "the journal"), 0, E.STORAGE_FULL),
        (OSError(errno.EIO, "the journal"), 0, E.INTERNAL),
    ],
)
async def test_whose_fault_it_is(tmp_path: Path, fault: Exception, floor: int, told: ErrorCode) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise fault

    answer = await _faults(Storage(tmp_path, floor))(make_mocked_request("POST", "/"), handler)
    assert isinstance(answer, web.Response)
    assert (RunnerFault.model_validate_json(answer.text or "").code, answer.status) == (told, told.rule.status)
