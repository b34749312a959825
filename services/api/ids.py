"""Ids in paths: one that cannot be ours is not there, so the database is never asked for it."""

import re
from typing import Annotated

from pydantic import AfterValidator

from agents.contracts.errors import ErrorCode, LonghaulError

_ID = re.compile(r"[a-z]+_[A-Za-z0-9]{8,40}")


def _id(text: str) -> str:
    if not _ID.fullmatch(text) or len(text) > 60:
        raise LonghaulError(ErrorCode.NOT_FOUND, "there is nothing with this id")
    return text


TaskId = Annotated[str, AfterValidator(_id)]
ArtifactId = Annotated[str, AfterValidator(_id)]
ApprovalId = Annotated[str, AfterValidator(_id)]
CheckpointId = Annotated[str, AfterValidator(_id)]
FileId = Annotated[str, AfterValidator(_id)]
