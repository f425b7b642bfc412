"""What every test of reporting needs."""

import pytest
from hypothesis import settings

settings.register_profile("noisy machines", deadline=None)  # how long an example takes there says nothing
settings.load_profile("noisy machines")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go straight to the test's own server."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
