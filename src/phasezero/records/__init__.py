"""Records of runs and analyses: what they hold, how they are read, written and checked."""
