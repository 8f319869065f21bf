"""Launchers start workers on the hosts of a fleet; the entry point ``weighbridge.launchers`` names them."""
