"""The domain: what a team thinks. Pure code: no I/O, no clock, no randomness."""
