"""The life cycle of a receiver that is one blocking loop in one thread."""

from __future__ import annotations

import threading
from abc import abstractmethod

from penstock.errors import FencedError, ReceiverError, WriterBrokenError
from penstock.receivers.receiver import Receiver

_JOIN_TIMEOUT_S = 10.0


class ThreadedReceiver(Receiver):
    """A receiver whose subclass implements ``receive``, a loop that asks ``shallEnd()`` often.

    At most one thread lives: a thread that outlived its stop and stored into a later start would
    store what its successor reads again.
    """

    _thread: threading.Thread | None = None
    _ending: threading.Event | None = None

    @abstractmethod
    def receive(self) -> None:
        """Receive and store until ``shallEnd()``; free what is held, however it ends.

        An exception restarts the receiver, except that a fenced or broken writer just ends the
        loop: then the host restarts it.
        """

    def shallEnd(self) -> bool:
        """Whether ``receive`` shall return."""
        return self._ending is None or self._ending.is_set() or self.isStopped()

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond ``onStop``."""
        if self._ending is not None:
            self._ending.wait(seconds)

    def onStart(self) -> None:
        """Start the receiving thread.

        Raises:
            ReceiverError: the thread of an earlier start has not ended.
        """
        if self._thread is not None:
            raise ReceiverError(
                f"{self} is still running",
                operation="start receiver",
                hint="call onStop first, and let the process end if that fails",
            )
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._ending,), name=f"penstock-{self}", daemon=True
        )
        self._thread.start()

    def onStop(self) -> None:
        """End the receiving thread and wait for it.

        Raises:
            ReceiverError: the thread is still busy after 10 s, for example in a blocked store.
        """
        thread = self._thread
        if thread is None or self._ending is None:
            return
        self._ending.set()
        thread.join(_JOIN_TIMEOUT_S)
        if thread.is_alive():
            raise ReceiverError(
                f"{self} did not end within {_JOIN_TIMEOUT_S:.0f} s",
                operation="stop receiver",
                hint="the host must let a blocked store return or raise before it calls onStop",
            )
        self._thread = self._ending = None

    def _run(self, ending: threading.Event) -> None:
        try:
            self.receive()
        except (FencedError, WriterBrokenError):
            return
        except Exception as error:
            if not ending.is_set():
                self.restart(f"{self} failed", error)
