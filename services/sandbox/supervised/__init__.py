"""The controller's side of a sandbox's supervisor."""
