"""Peak of TensorFlow's device allocators, read only where it is proven to count.

TensorFlow is imported on use: the other memory figures are taken without it.
"""

from __future__ import annotations

from collections.abc import Sequence

_PROBE_BYTES = 8 << 20


class AllocatorPeak:
    """Reads the most memory that any one device's allocator held since `reset`.

    A device's statistics are believed once an allocation of 8 MiB was seen in them. They count
    whole chunks, and on a CPU nothing under 256 KiB; all logical CPU devices share one allocator.

    Args:
        devices: names of logical devices, such as "CPU:0".

    Attributes:
        note: why there is no figure; empty where there is one.
    """

    def __init__(self, devices: Sequence[str] = ("CPU:0",)) -> None:
        self._devices = tuple(devices)
        self._earlier = 0
        silent = [device for device in self._devices if not _counts(device)]
        self.note = f"the allocator of {', '.join(silent)} keeps no statistics" if silent else ""

    def reset(self) -> None:
        """Start anew: the peak becomes what is held now."""
        self._earlier = 0
        self._reset_devices()

    def window(self) -> int | None:
        """Return the peak since the last call, and begin a new window; `peak` spans them all."""
        highest = self._most("peak")
        self._earlier = max(self._earlier, highest or 0)
        self._reset_devices()
        return highest

    def _reset_devices(self) -> None:
        import tensorflow as tf

        if not self.note:
            for device in self._devices:
                tf.config.experimental.reset_memory_stats(device)

    def held(self) -> int | None:
        """Return what the fullest device's allocator holds now, in bytes; None as with `peak`."""
        return self._most("current")

    def peak(self) -> int | None:
        """Return the largest device's peak since `reset`, in bytes; None where `note` says why."""
        highest = self._most("peak")
        return None if highest is None else max(highest, self._earlier)

    def _most(self, figure: str) -> int | None:
        import tensorflow as tf

        if self.note:
            return None
        info = tf.config.experimental.get_memory_info
        return max(int(info(device)[figure]) for device in self._devices)


def _counts(device: str) -> bool:
    import tensorflow as tf

    info = tf.config.experimental.get_memory_info
    try:
        before = info(device)["current"]
        with tf.device(device):
            probe = tf.zeros([_PROBE_BYTES], tf.uint8)
        held = info(device)["current"] - before
        tf.config.experimental.reset_memory_stats(device)
        reset_to = info(device)["peak"]
        del probe
    except (ValueError, tf.errors.OpError):
        return False
    return bool(held >= _PROBE_BYTES and reset_to >= before + _PROBE_BYTES)
