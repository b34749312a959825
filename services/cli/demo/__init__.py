"""The demo: a real task on the real stack, with recorded model replies."""
