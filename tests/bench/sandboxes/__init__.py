"""The parts of the sandbox benchmark (`tests/bench/sandbox.py`)."""
