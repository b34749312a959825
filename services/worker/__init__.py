"""The worker: builds the adapters, runs workflows and activities."""
