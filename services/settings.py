"""The settings of every process under services/: read once by each main, from ``LONGHAUL_*`` variables.

The embedded stack's launcher sets them for its children; elsewhere an operator does. No other module reads the
environment.
"""

from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.storage import FLOOR_BYTES


class Settings(BaseSettings):
    """Where everything is. Unset secrets are empty; a process that needs one refuses to start without it."""

    model_config = SettingsConfigDict(env_prefix="LONGHAUL_", frozen=True, extra="ignore")

    # PostgreSQL
    pg_host: str = "127.0.0.1"
    pg_port: int = 5432
    pg_user: str = "longhaul"
    pg_password: SecretStr = SecretStr("")
    pg_database: str = "longhaul"
    bootstrap_key_sha256: str = ""
    # Temporal
    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "longhaul"
    # NATS: one user a role (api, worker, relay)
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: SecretStr = SecretStr("")
    # the relay: how many tasks run at once, the others wait in the queue
    running_tasks: int = Field(default=20, ge=1, le=10_000)
    # S3
    s3_endpoint: str = "http://127.0.0.1:8333"
    s3_region: str = "us-east-1"
    s3_access_key: str = ""
    s3_secret_key: SecretStr = SecretStr("")
    s3_bucket: str = "longhaul"
    s3_checksum_mode: Literal["when_supported", "when_required"] = "when_supported"
    # our own API
    api_host: str = "127.0.0.1"
    api_port: int = 8420
    # after how many turns that may have changed files the workspace is kept; 0: only when a step is handed in
    snapshot_turns: int = Field(default=10, ge=0, le=100_000)
    # how long a person has to decide on a call, where a task does not say
    approval_s: int = 259_200
    # where the data lies: below the floor nothing new is taken
    storage_dir: Path | None = None
    storage_floor_bytes: int = FLOOR_BYTES
    # the runner of sandboxes
    runner_host: str = "127.0.0.1"
    runner_port: int = 8421
    runner_token: SecretStr = SecretStr("")
    runner_data_dir: Path = Path(".longhaul/sandboxes")
    runner_template_dir: Path = Path(".longhaul/template")
    runner_pipe_fd: int = -1
    runner_pool: int = Field(default=4, ge=0, le=1_000)
    runner_private_hosts: str = ""
    runner_credentials_file: Path | None = None
    # how sandboxes are kept apart; for docker and gvisor: the engine, its name for a runtime, the image (empty: this
    # host's programs)
    runner_backend: Literal["namespace", "docker", "gvisor"] = "namespace"
    runner_engine_url: str = "unix:///var/run/docker.sock"
    runner_runtime: str = ""
    runner_image: str = ""
    # people who do not trust each other share this deployment: only sandboxes with a kernel of their own, or these
    multi_tenant: bool = False
    multi_tenant_allows: Literal["", "namespace", "docker"] = ""
    # models: any OpenAI-compatible endpoint; the replay engine beside it
    model_base_url: str = ""
    model_api_key: SecretStr = SecretStr("")
    model_fast: str = ""
    model_full: str = ""
    model_max_tokens: int = 4_096
    model_timeout_s: float = 600.0
    model_prompt_price_micro: int = 0
    model_completion_price_micro: int = 0
    replay_url: str = "http://127.0.0.1:8422/v1"
    replay_token: SecretStr = SecretStr("")

    @property
    def pg_url(self) -> str:
        """SQLAlchemy's URL; it holds the password, so it is never logged."""
        secret = quote(self.pg_password.get_secret_value(), safe="")
        return f"postgresql+asyncpg://{self.pg_user}:{secret}@{self.pg_host}:{self.pg_port}/{self.pg_database}"

    @property
    def runner_url(self) -> str:
        """The runner's base URL."""
        return f"http://{self.runner_host}:{self.runner_port}"
