"""The engine: the trainer, its steps, and the devices that they run on."""
