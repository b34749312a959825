"""Split bills among friends, to the cent."""
