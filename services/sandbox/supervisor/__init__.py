"""Process 1 of a sandbox, in C, and how it is built."""
