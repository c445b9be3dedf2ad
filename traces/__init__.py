"""What happened: the trace, its files, its diff and its recorder."""
