"""The paper's tables and figures, each from one command: what to run, in which order, and what to show."""
