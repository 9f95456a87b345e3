"""The command `phasezero`, one file per command. Heavy imports are inside the functions that need them."""
