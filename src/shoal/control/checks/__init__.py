"""What is asked and told elsewhere during rollouts: checks, and notifications."""
