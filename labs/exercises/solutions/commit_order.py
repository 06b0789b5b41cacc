"""Work and commit are two steps. The crash that matters comes between them.

lose_nothing: work first, commit second. Killed in between, the record is handled but not committed, so it comes
again: at least once. Nothing is lost, because nothing was committed that was not handled.

double_nothing: commit first, work second. Killed in between, the record is committed but not handled, and never
comes again: at most once. One commit per record, so that a crash costs one record and not a whole batch.

No third order exists. Commit in the middle of the work is either before its effect or after it.
"""


def lose_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        handle(message)
        consumer.commit()


def double_nothing(consumer, handle):
    while (message := consumer.poll()) is not None:
        consumer.commit()
        handle(message)
