"""The master: reads a scenario, plans it, hands out jobs, collects and saves results, reports."""
