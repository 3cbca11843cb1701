"""What the controllers that run pods share: pods of a template, claiming, expectations, ranking, readiness, pacing."""
