"""The activities: one class a set of ports, the ports injected."""
