"""Container engines, one file each, behind the interface of `base`; found through entry points."""
