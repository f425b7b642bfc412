"""The order book: carries out orders on a pool, and stores them before they count."""

from pathlib import Path

from serving.clock import Clock
from serving.gateway.orders import Operation, Order, OrderVerb, Refusal, carry_out
from serving.gateway.pool import Pool
from serving.gateway.state_file import save_orders


class OrderBook:
    """Orders of one door, kept in `path`, or in memory only when None."""

    def __init__(self, pool: Pool, path: Path | None, clock: Clock) -> None:
        self._pool = pool
        self._path = path
        self._clock = clock

    def carry_out(self, order: Order) -> Operation | Refusal:
        """Carry out one order. Raises StateFileError, with nothing changed, when it cannot be stored."""
        result = carry_out(self._pool.orders, order, self._clock.now())
        if isinstance(result, Refusal):
            return result
        orders, operation = result
        if orders is not self._pool.orders:
            if self._path is not None:
                save_orders(self._path, orders)
            self._pool.orders = orders
            if order.verb is OrderVerb.UNDRAIN:
                self._pool.forgive(order.engine)
        return operation
