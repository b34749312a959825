"""The ``longhaul`` command."""
