"""Records of runs and analyses: their contents, and how they are read, written and checked."""
