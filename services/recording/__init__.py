"""Recordings of tasks, made from the ledger."""
