"""The network thread: connections one after the other, messages in, acknowledgements out.

It never waits for the journal, so the broker's pings are answered and ours are sent whatever is
stored meanwhile, or is not.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from penstock.errors import PenstockError, ReceiverError
from penstock.receivers.backoff import Backoff
from penstock.receivers.mqtt.buffer import MessageBuffer
from penstock.receivers.mqtt.client import KEEPALIVE_S, BrokerClient
from penstock.receivers.mqtt.deliveries import Deliveries, Receipt
from penstock.receivers.mqtt.failures import lost
from penstock.receivers.mqtt.options import MqttOptions
from penstock.receivers.mqtt.packets import Messages
from penstock.receivers.mqtt.wakeup import Wakeup

_log = logging.getLogger(__name__)

_POLL_MS = 100
_FAILURES = OSError, ValueError, PenstockError
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL
_STABLE_S = 10.0
"""A connection that held this long worked: two clients that take a session from each other do not
count each of their short ones as a success."""
_SILENCE_S = 1.5 * KEEPALIVE_S
_GOODBYE_S = 2.0


class Network:
    """Keeps one client connected until it is closed. Calls ``buffer.fail`` when it cannot continue.

    Args:
        options: where to connect and what to subscribe to.
        client_id: names the session at the broker.
        buffer: takes the messages.
        report: is told of each failed or lost connection: a sentence and its cause.
    """

    def __init__(
        self,
        options: MqttOptions,
        client_id: str,
        buffer: MessageBuffer,
        report: Callable[[str, BaseException | None], None],
    ) -> None:
        self._options = options
        self._client_id = client_id
        self._buffer = buffer
        self._report = report
        self._deliveries = Deliveries()
        self._client: BrokerClient
        self._durable: deque[Sequence[Receipt]] = deque()
        self._wakeup = Wakeup()
        self._receiving = True
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-mqtt-{client_id}", daemon=True
        )

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def durable(self, receipts: Sequence[Receipt]) -> None:
        """Have messages acknowledged. From any thread, in the order of the messages."""
        self._durable.append(receipts)
        self.wake()

    def wake(self) -> None:
        """Check for changes at once: for example messages were taken from a full buffer."""
        self._wakeup.wake()

    def stop_receiving(self) -> None:
        """Take no more messages; acknowledgements still go out.

        What the broker sends is read all the same, and dropped for it to deliver again: a broker
        that cannot write may not come to read the acknowledgements.
        """
        self._receiving = False

    def close(self) -> None:
        """Send what is to be acknowledged, disconnect, and end the thread."""
        self.stop_receiving()
        self._closing.set()
        self.wake()
        self._thread.join()
        self._wakeup.close()

    # -- the thread --

    def _run(self) -> None:
        try:
            self._connect_until_closed()
        except Exception as error:
            self._buffer.fail(error)

    def _connect_until_closed(self) -> None:
        backoff = Backoff()
        while not self._closing.is_set():
            self._client = BrokerClient(self._options, self._client_id, self)
            began_s = time.monotonic()
            failure = self._connection()
            if time.monotonic() - began_s > _STABLE_S:
                backoff.worked()
            if failure is not None:
                delay_ms = backoff.failed()
                self._report(f"MQTT connection lost, next attempt in {delay_ms} ms", failure)
                self._closing.wait(delay_ms / 1000)

    def _connection(self) -> ReceiverError | None:
        """Connect, serve, disconnect; return why it ended, None when it was to be closed."""
        client = self._client
        try:
            client.open()
            self._serve()
        except _FAILURES as error:
            client.failure = client.failure or error
        finally:
            self._disconnect()
            self._deliveries.disconnected()
        return None if self._closing.is_set() else self._described(client.failure)

    def _serve(self) -> None:
        client = self._client
        heard_s = pinged_s = time.monotonic()
        heard_bytes = 0
        while client.is_usable() and not self._closing.is_set():
            may_read = not (self._receiving and self._buffer.is_full)
            if self._wait(may_read):
                client.loop_read()
            self._acknowledge()
            now_s = time.monotonic()
            if client.received_bytes != heard_bytes or not may_read:
                heard_bytes, heard_s = client.received_bytes, now_s
            if now_s - heard_s > _SILENCE_S:
                raise TimeoutError(f"the broker was silent for {_SILENCE_S:g} s")
            if client.is_subscribed and now_s - pinged_s > client.ping_interval_s:
                pinged_s = now_s
                client.ping()

    def _wait(self, may_read: bool) -> bool:
        """Wait for something to do; return whether there is something to read."""
        client, connection = self._client, self._client.socket()
        if connection is None:
            return False
        poll = select.poll()  # unlike select(), not limited to descriptors below 1024
        poll.register(self._wakeup, select.POLLIN)
        wanted = select.POLLIN * may_read | select.POLLOUT * client.want_write()
        poll.register(connection.fileno(), wanted)
        found = dict(poll.poll(0 if may_read and client.pending() else _POLL_MS))
        if self._wakeup.fileno() in found:
            self._wakeup.drain()
        state = found.get(connection.fileno(), 0)
        if state & select.POLLOUT:
            client.loop_write()
        if not may_read:
            return bool(state & _BROKEN)  # which polling would report again and again
        return bool(state & ~select.POLLOUT) or client.pending()

    def _acknowledge(self) -> None:
        while self._durable:
            acks = [self._deliveries.durable(receipt) for receipt in self._durable.popleft()]
            self._client.send(b"".join(acks))

    def _disconnect(self) -> None:
        """Acknowledge what is durable, say goodbye, and wait until the broker has read that.

        It tells by closing. Closed by us, with something of the broker's unread, TCP would discard
        what we sent last.
        """
        client = self._client
        try:
            self._acknowledge()
            client.goodbye()
            deadline_s = time.monotonic() + _GOODBYE_S
            while client.is_usable() and time.monotonic() < deadline_s:
                if self._wait(may_read=True):
                    client.loop_read()
        except _FAILURES as error:
            client.failure = client.failure or error
        finally:
            client.close()

    def _described(self, failure: Exception | None) -> ReceiverError:
        address = f"{self._options.host}:{self._options.port}"
        ids = {"broker": address, "client_id": self._client_id}
        error = failure if isinstance(failure, ReceiverError) else lost(failure)
        error.ids.update(ids)
        return error

    # -- what the client tells --

    def on_connected(self, *, session_present: bool) -> None:
        """See client.Listener."""
        if self._deliveries.connected(session_present=session_present):
            self._report(
                "the broker lost this client's session: messages that were published since the "
                "connection broke may be missing",
                None,
            )
        _log.info(
            "Connected to MQTT broker %s:%d as %s, %s",
            self._options.host,
            self._options.port,
            self._client_id,
            "continuing its session" if session_present else "with a new session",
        )

    def on_messages(self, messages: Messages) -> None:
        """See client.Listener."""
        if not self._receiving:
            return
        receipt, acks = self._deliveries.admit(messages)
        self._client.send(acks)
        if len(messages):
            self._buffer.put(messages, receipt)

    def on_release(self, mid: bytes) -> None:
        """See client.Listener."""
        self._client.send(self._deliveries.release(mid))
