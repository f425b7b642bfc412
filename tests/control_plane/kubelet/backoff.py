"""How long a container that ended waits before it is started again.

initialCrashLoopBackOff and MaxCrashLoopBackOff in pkg/kubelet/kubelet.go, the doubling in util/flowcontrol of client-go.
The first restart comes at once; then 10 s, 20 s and so on up to 5 min; all is forgotten after 10 min without a restart.
"""

FORGOTTEN_S = 600.0


class Backoff:
    """One container's delays. Times are Unix seconds."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first, self._most = first_s, most_s
        self._delay = 0.0
        self._updated = 0.0

    def delay(self, ended_at: float, now: float) -> float:
        """The delay that holds back a restart now; 0 when it may go."""
        if self._delay == 0 or ended_at - self._updated > FORGOTTEN_S or now - ended_at >= self._delay:
            return 0.0
        return self._delay

    def restarted(self, ended_at: float, now: float) -> None:
        """A restart was made; the next one waits longer."""
        known = self._delay > 0 and ended_at - self._updated <= FORGOTTEN_S
        self._delay = min(2 * self._delay, self._most) if known else self._first
        self._updated = now
