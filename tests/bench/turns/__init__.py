"""The parts of the turn benchmark (`tests/bench/turn.py`)."""
