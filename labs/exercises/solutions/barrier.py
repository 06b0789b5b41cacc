"""Alignment: what came behind a barrier waits, until everything in front of the other barrier is counted.

1. Block the channel whose barrier has come: what comes behind it does not belong to the checkpoint.
2. Count on with the other channel: what it still brings in front of its barrier does belong to it.
3. With the last barrier, the count holds what lies in front of the barriers, and nothing else: store it.
4. Send the barrier on behind what was sent so far: to the next task it says the same.
5. Only then take what has waited.

The price is step 1: the fast channel waits for the slow one. Unaligned checkpoints do not wait: the task stores at the
first barrier, and records what the other channel brings in front of its own:

    if not task.stored:
        task.snapshot()
        task.forward()
        for other in task.channels - task.arrived:
            task.record(other)
"""


def on_barrier(task, channel):
    task.block(channel)
    if task.arrived == task.channels:
        task.snapshot()
        task.forward()
        task.unblock()
