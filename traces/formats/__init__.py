"""Foreign formats that become a trace."""
