"""From the rows to the outside: events to NATS, missing workflows to Temporal, what was forgotten to its end."""
