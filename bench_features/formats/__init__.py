"""Reports that programs read: JUnit, OpenMetrics, samples, a job summary of GitHub."""
