"""The recorder: what a process does with torch.distributed, written down as it happens."""
