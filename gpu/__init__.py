"""The inference side: engines and, later, the gateway and training. It knows `agents.contracts` and nothing else of ours."""
