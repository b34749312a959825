"""The settings of every process under gpu/: read once by each main, from ``LONGHAUL_*`` variables."""

from pathlib import Path

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class GpuSettings(BaseSettings):
    """`recordings_dir` adds a folder to the recordings that come with the engine. `replay_pace_ms` is the pause after
    each word, so that a person sees a model think; 0 in tests."""

    model_config = SettingsConfigDict(env_prefix="LONGHAUL_", frozen=True, extra="ignore")

    replay_host: str = "127.0.0.1"
    replay_port: int = 8422
    replay_token: SecretStr = SecretStr("")
    replay_pace_ms: float = 12.0
    recordings_dir: Path | None = None
