"""The archive in a browser: runs, any two compared, series over time, hosts; read-only."""
