"""The inference side: engines and, later, the gateway and training. Of ours it knows `agents.contracts` alone."""
