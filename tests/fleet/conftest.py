"""Property tests here run on machines that are shared and noisy: how long an example takes says nothing."""

from hypothesis import settings

settings.register_profile("noisy machines", deadline=None)
settings.load_profile("noisy machines")
