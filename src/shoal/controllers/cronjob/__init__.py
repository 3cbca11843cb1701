"""CronJob: a job at each time of a schedule."""
