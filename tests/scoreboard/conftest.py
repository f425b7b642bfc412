"""What the scoreboard's tests share."""

from hypothesis import settings

settings.register_profile("noisy machines", deadline=None)
settings.load_profile("noisy machines")
