"""What starts workers on the hosts of a fleet: one module each, found by entry point ``weighbridge.launchers``."""
