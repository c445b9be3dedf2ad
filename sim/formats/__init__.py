"""Foreign formats that become a schedule or a topology."""
