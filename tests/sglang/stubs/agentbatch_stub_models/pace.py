"""The stated step times, kept on average whatever else the machine does.

A step begins when the one before it was to end, so that what the scheduler does in between is part of the stated time;
after the scheduler was idle it begins now.
"""

import time


class Pace:
    """When the running step was to end; one for the scheduler's process."""

    def __init__(self):
        self.due_s = None
        self.late_s = 0.0
        """Worst delay of a step since somebody set it to 0."""

    def idle(self):
        """Note that nothing runs and nothing waits."""
        self.due_s = None

    def step(self, seconds):
        """Sleep until the step that begins now is to end."""
        now_s = time.monotonic()
        self.due_s = (now_s if self.due_s is None else self.due_s) + seconds
        if self.due_s > now_s:
            time.sleep(self.due_s - now_s)
        self.late_s = max(self.late_s, time.monotonic() - self.due_s)


PACE = Pace()
