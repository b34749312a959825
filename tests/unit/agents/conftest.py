"""Property tests judge results, not the speed of a busy machine; pytest's own time limit still holds."""

from hypothesis import HealthCheck, settings

settings.register_profile("longhaul", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("longhaul")
