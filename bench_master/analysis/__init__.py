"""What a stats file says about its run: aggregates, percentiles, validity, and the document of a report."""
