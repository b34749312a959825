"""Durable orchestration: Temporal workflows, their activities, and the ports these reach the world through."""
