"""Roles: which tools each has, and where its prompt is."""

from agents.roles.table import ROLES, RoleSpec

__all__ = ["ROLES", "RoleSpec"]
