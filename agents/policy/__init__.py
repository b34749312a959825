"""What to do when things go wrong or run side by side: tables and pure functions."""
