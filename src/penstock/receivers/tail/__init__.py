"""Files followed as ``tail -F`` does: pure decisions in ``follow``, everything else around them."""

from penstock.receivers.tail.receiver import TailReceiver

__all__ = ["TailReceiver"]
