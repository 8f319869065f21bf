"""Reports that programs read: JUnit, OpenMetrics, Parquet, traces, samples, a job summary of GitHub."""
