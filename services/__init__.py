"""Everything that does I/O: the API, the worker, storage, sandboxes, the command line, the embedded stack."""
