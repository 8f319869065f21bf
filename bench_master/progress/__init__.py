"""What is on the screen while a run goes on: one view of many, fed with snapshots and batches of finished jobs."""
