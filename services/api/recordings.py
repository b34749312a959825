"""``/v1/tasks/{id}/recording``: a task to be played again elsewhere."""

from fastapi import APIRouter, Response

from services.api.auth import Reader
from services.api.ids import TaskId
from services.api.parts import Using

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])


@router.get("/{task_id}/recording", summary="A recording of the task", response_class=Response)
async def get_recording(caller: Reader, parts: Using, task_id: TaskId) -> Response:
    """What the task's agents were asked and said, as a file for `longhaul replay` and for the replay tier; of a task
    that has not ended, as far as it is. What looks like a secret is taken out. 413 `RECORDING_TOO_LARGE` where its
    turns hold more than 16 MiB."""
    body = await parts.recorder.recording(caller.tenant_id, task_id)
    headers = {"Content-Disposition": f'attachment; filename="{task_id}.json"', "Cache-Control": "private, no-store"}
    return Response(body, media_type="application/json", headers=headers)
