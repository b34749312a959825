"""Other distributions own modules called `agents` and `workflows`: none of them may be in our environment."""

from importlib.metadata import packages_distributions

import pytest

import agents
import gpu
import services
import workflows
from services.stack.layout import CHECKOUT


@pytest.mark.parametrize("name", ["agents", "workflows", "services", "gpu"])
def test_nobody_else_owns_our_names(name: str) -> None:
    assert set(packages_distributions().get(name, ["longhaul"])) <= {"longhaul"}


@pytest.mark.parametrize("module", [agents, workflows, services, gpu])
def test_they_are_imported_from_this_checkout(module: object) -> None:
    assert str(getattr(module, "__file__", "")).startswith(str(CHECKOUT))
