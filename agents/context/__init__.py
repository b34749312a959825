"""What a model is shown: the layers of a prompt, rendered by a pure function. Start at `render`."""
