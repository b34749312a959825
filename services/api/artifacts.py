"""Artifacts: what a team kept, and the bytes themselves."""

from collections.abc import AsyncIterator
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from agents.contracts.artifact import Artifact, BlobRef
from services.api.auth import Reader
from services.api.ids import ArtifactId, TaskId
from services.api.parts import Using
from services.api.ranges import Span, asked_span
from services.store import artifacts, task_views

router = APIRouter(prefix="/v1", tags=["artifacts"])


@router.get("/tasks/{task_id}/artifacts", summary="A task's artifacts")
async def of_task(caller: Reader, parts: Using, task_id: TaskId) -> list[Artifact]:
    """What its team kept, in the order of keeping."""
    async with parts.db.begin() as conn:
        await task_views.require(conn, caller.tenant_id, task_id)
        return await artifacts.of_task(conn, caller.tenant_id, task_id)


@router.get("/artifacts/{artifact_id}", summary="Look at an artifact")
async def get_artifact(caller: Reader, parts: Using, artifact_id: ArtifactId) -> Artifact:
    """Its path, size and digest."""
    async with parts.db.begin() as conn:
        return await artifacts.get(conn, caller.tenant_id, artifact_id)


@router.head("/artifacts/{artifact_id}/content", summary="What the bytes of an artifact come with")
async def head_content(request: Request, caller: Reader, parts: Using, artifact_id: ArtifactId) -> Response:
    """The headers of the bytes, or of one range of them."""
    async with parts.db.begin() as conn:
        artifact = await artifacts.get(conn, caller.tenant_id, artifact_id)
    headers, span = _answer(request, artifact)
    if _is_known(request, headers):
        return Response(status_code=304, headers={"ETag": headers["ETag"]})
    return Response(None, 206 if span.partial else 200, headers, media_type=artifact.media_type)


@router.get("/artifacts/{artifact_id}/content", summary="The bytes of an artifact")
async def get_content(request: Request, caller: Reader, parts: Using, artifact_id: ArtifactId) -> Response:
    """The bytes, or one range of them. The `ETag` is their sha256."""
    async with parts.db.begin() as conn:
        artifact = await artifacts.get(conn, caller.tenant_id, artifact_id)
    headers, span = _answer(request, artifact)
    if _is_known(request, headers):
        return Response(status_code=304, headers={"ETag": headers["ETag"]})
    ref = BlobRef(sha256=artifact.sha256, bytes=artifact.bytes)
    body = (
        await _begun(parts.objects.get_stream(caller.tenant_id, ref, span.first, span.last)) if span.length else _none()
    )
    return StreamingResponse(body, 206 if span.partial else 200, headers, media_type=artifact.media_type)


def _answer(request: Request, artifact: Artifact) -> tuple[dict[str, str], Span]:
    headers = _headers(artifact)
    span = asked_span(request.headers, artifact.bytes, headers["ETag"])
    headers["Content-Length"] = str(span.length)
    if span.partial:
        headers["Content-Range"] = f"bytes {span.first}-{span.last}/{artifact.bytes}"
    return headers, span


def _is_known(request: Request, headers: dict[str, str]) -> bool:
    return headers["ETag"] in request.headers.get("if-none-match", "")


def _headers(artifact: Artifact) -> dict[str, str]:
    name = quote(artifact.path.rsplit("/", 1)[-1], safe="")
    return {
        "ETag": f'"{artifact.sha256}"',
        "Accept-Ranges": "bytes",
        # never shown in place: what a team wrote is not trusted
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Cache-Control": "private, no-cache",
    }


async def _begun(data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, of which the first have come: what S3 refuses is told before the answer begins."""
    first = await anext(data)

    async def rest() -> AsyncIterator[bytes]:
        yield first
        async for piece in data:
            yield piece

    return rest()


async def _none() -> AsyncIterator[bytes]:
    return
    yield b""
