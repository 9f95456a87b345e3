"""The engine: the one trainer, its steps, and where they run."""
