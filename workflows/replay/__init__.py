"""Playing a recorded task through the real turn loop, on ports that answer from the recording. Start at `play`."""
