"""The four servers of the embedded stack, one module each: how to prepare, start, ask and stop it."""
