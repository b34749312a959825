"""A path as a tool takes it. The runner decides what is inside the workspace; here is only what can never be a path."""

from typing import Annotated

from pydantic import Field

Path = Annotated[
    str,
    Field(min_length=1, max_length=4_096, pattern=r"^[^\x00]+$", description="Relative to the workspace."),
]
