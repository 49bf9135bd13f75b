"""The network between all parts: how long a message takes, and whether it arrives at all."""

from tests.fakes.sync_system.timeline import Timeline


class Network:
    """`loses_until`/`delays_until`: while it lasts, a message in two is lost, or comes up to five seconds late."""

    def __init__(self, time: Timeline) -> None:
        self._time = time
        self.loses_until = self.delays_until = 0.0

    def delay(self) -> float:
        late = self._time.now < self.delays_until and self._time.random.random() < 0.5
        return self._time.between(0.5, 5.0) if late else self._time.between(0.001, 0.01)

    def loses(self) -> bool:
        return self._time.now < self.loses_until and self._time.random.random() < 0.5
