"""The engine `native`: plain processes."""
