"""Sandboxes as containers of an engine that speaks Docker's API: docker with runc, and gVisor as a runtime of it."""
