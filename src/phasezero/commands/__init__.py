"""The larger commands of `phasezero`, one file each."""
