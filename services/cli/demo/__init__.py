"""The demos: real tasks on the real stack, with recorded model replies."""
