"""One run as measured: a stats file read once and summed up, which reports, charts and archives are made of."""
