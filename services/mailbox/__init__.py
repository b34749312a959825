"""NATS: the connection, the subjects, what is fast and may be lost."""
