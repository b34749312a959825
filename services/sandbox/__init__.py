"""Where code runs: the runner process, its backends and the client that workers use."""
