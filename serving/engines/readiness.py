"""Whether something answers over HTTP: what a starter waits for. It proves no more; a hung engine answers too."""

import requests

TIMEOUT_S = 2.0


def answers(url: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether GET `url` is answered with a status below 400 within `timeout_s`. Never raises."""
    try:
        with requests.get(url, timeout=timeout_s, stream=True) as answer:
            return answer.status_code < 400  # noqa: PLR2004 - client and server errors begin here
    except requests.RequestException:
        return False
