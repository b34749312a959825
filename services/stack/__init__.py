"""The embedded stack: Temporal, NATS, SeaweedFS, PostgreSQL and our own processes under one launcher."""
