"""Guest benchmarks, one module each, behind the interface of `base`; found through entry points."""
