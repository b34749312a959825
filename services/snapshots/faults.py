"""What can be wrong with a snapshot, each with what to do about it."""

from agents.contracts.errors import ErrorCode, LonghaulError


def broken(what: str) -> LonghaulError:
    """Its stored bytes are not those that were kept. Nothing was restored from it."""
    return LonghaulError(
        ErrorCode.SNAPSHOT_FAILED,
        f"the snapshot is damaged: {what}; nothing was restored. Use an earlier one, and look after the object store",
    )


def cannot_be_kept(what: str) -> LonghaulError:
    """The folder is one that no snapshot can hold."""
    return LonghaulError(ErrorCode.SNAPSHOT_FAILED, f"no snapshot was taken: {what}")


def no_snapshot(name: str) -> LonghaulError:
    """It was never kept, or was collected since."""
    return LonghaulError(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no snapshot {name}, or not any more")
