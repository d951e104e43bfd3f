"""The process that cuts documents: `python -m services.knowledge.clients.cutter_process BYTES`.

It reads requests from standard input and answers on standard output until the former ends, as it
does when the service dies. A document that takes too long, or all of the BYTES of memory, takes
this process along and nothing else.
"""

import os
import resource
import signal
import sys

from services.knowledge.clients.cutter_answers import Head, answers
from services.knowledge.clients.frames import pack, read
from services.knowledge.domain.ingest.cutting import CutRequest

_NICENESS = 5


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends us
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.nice(_NICENESS)
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    replies.write(pack(Head()))  # ready: what counts against a document's time begins now
    replies.flush()
    while True:
        try:
            request = read(requests, CutRequest)
        except EOFError:
            return
        for answer in answers(request):
            replies.write(pack(answer))
        replies.flush()


if __name__ == "__main__":
    main()
