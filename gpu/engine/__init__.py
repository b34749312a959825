"""Engines that answer model calls: recorded words (replay), and scripted trouble (fault)."""
