"""The stats file: frames on disk, rows in them, who writes and who reads them."""
