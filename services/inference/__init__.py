"""The client of a model: any OpenAI-compatible endpoint, or the replay engine beside it."""

from services.inference.client import OpenAiModel

__all__ = ["OpenAiModel"]
