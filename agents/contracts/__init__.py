"""Every model that crosses a process. Import the module you need: `from agents.contracts import task`."""
