"""Two queues on PostgreSQL under the faults of a fleet. docs/adr/0048 has the table."""
