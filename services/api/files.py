"""``/v1/files``: uploads, the inputs of tasks. Bytes go through to S3 as they come."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from agents.contracts.artifact import UploadedFile
from agents.contracts.base import Edge
from services.api.auth import Reader, Submitter
from services.api.ids import FileId
from services.api.parts import Using
from services.api.uploads import MAX_BYTES, UPLOAD_DOCS, open_upload
from services.ids import new_id
from services.store import files

router = APIRouter(prefix="/v1/files", tags=["files"])


class UploadQuery(Edge):
    """What an upload is called, where its body does not say."""

    name: str | None = None


@router.post("", status_code=201, summary="Upload a file", openapi_extra=UPLOAD_DOCS)
async def upload(
    request: Request, response: Response, caller: Submitter, parts: Using, query: Annotated[UploadQuery, Query()]
) -> UploadedFile:
    """Keep a file for a later task: a form with one file, or the bytes themselves as the body with `?name=`."""
    parts.storage.check()
    incoming = await open_upload(request, query.name)
    blob = await parts.objects.put_stream(caller.tenant_id, incoming.data, max_bytes=MAX_BYTES)
    async with parts.db.begin() as conn:
        file = await files.add(conn, caller.tenant_id, file_id=new_id("file"), name=incoming.name, blob=blob)
    response.headers["Location"] = f"/v1/files/{file.id}"
    return file


@router.get("/{file_id}", summary="Look at an uploaded file")
async def get_file(caller: Reader, parts: Using, file_id: FileId) -> UploadedFile:
    """Its name, size and digest."""
    async with parts.db.begin() as conn:
        return await files.get(conn, caller.tenant_id, file_id)
