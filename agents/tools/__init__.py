"""What a model may call, one file a tool. Start at `registry` and `parse`."""
