"""Which schemas of the database this code knows. Light: the launcher reads it without a database library."""

from pathlib import Path

VERSIONS = Path(__file__).with_name("migrations") / "versions"
EXIT_NEWER = 3
"""How ``python -m services.store.migrate`` ends where a newer Longhaul has migrated the database."""


def known(versions: Path = VERSIONS) -> frozenset[str]:
    """The revisions that this code can bring up to date, read off the migrations' file names."""
    return frozenset(path.name.partition("_")[0] for path in versions.glob("[0-9]*.py"))
