"""Commands of `phasezero` that have a file of their own."""
