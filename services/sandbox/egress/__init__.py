"""The one way out of a sandbox: a proxy on the host that decides on each connection."""
