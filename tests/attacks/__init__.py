"""Attacks from inside a sandbox, on every backend: ``make attacks``."""
