"""The pages of queues, dead letters and schedules, and the acts on them."""

from collections.abc import Sequence
from functools import partial

from fleximq.broker.authorization import sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths import dead_letter_paths, queue_detail, queue_paths, schedule_paths, work_queue_paths
from fleximq.broker.paths.arguments import Answer, Arguments, Path, number, text
from fleximq.broker.schedules.waiting_messages import WaitingMessage
from fleximq.errors import NotFound
from fleximq.values.occurrences import NAME_BYTES
from fleximq.web.api.answers import LIMIT, PAGED, PAGED_BY_NUMBER, actOf, pathPage
from fleximq.web.request import Argument, Page

_TOPIC = Argument("topic", "The topic, and so the name, of the queue.")
_QUEUE = Argument("queue", "The queue in which they died.")
_CONDITIONS = (
    Argument("ids", "The ids of their messages.", "array"),
    Argument("reason", "Why they died."),
    Argument("consumer", "The name of the client with the last delivery."),
    Argument("before", "They died before this time, in milliseconds since 1970.", "integer"),
    Argument("after", "They did not die before this time, in milliseconds since 1970.", "integer"),
    Argument("words", "A part of the words of the consumer that rejected them."),
)
_PAUSED = Argument("paused", "False: go on.", "boolean")
_NAME = Argument("name", "The name of a recurring schedule.")


def queuePages(broker: Broker) -> dict[str, Page]:
    """Return the pages by path."""
    reads, acts = partial(pathPage, broker), partial(actOf, broker)
    return {
        "/api/queues": reads(
            queue_paths.queues,
            "Work queues by topic, with their rates, ages and consumers.",
            (
                _TOPIC,
                *PAGED,
                Argument("contains", "A part of the names, in any case of letters."),
                Argument("dead_letters", "Which kind: ``only`` those with dead letters, or ``none`` of them."),
            ),
        ),
        "/api/queues/detail": reads(
            queue_detail.queueDetail,
            "One queue: its row, its sources, how many dead letters it has, and its consumers by client id.",
            (_TOPIC, *PAGED_BY_NUMBER),
        ),
        "/api/queues/peek": reads(
            queue_paths.peek, "The oldest messages that wait in a queue; they stay there.", (_TOPIC, LIMIT)
        ),
        "/api/queues/flying": reads(
            queue_detail.flying,
            "Messages of a queue that were delivered and are not settled.",
            (_TOPIC, LIMIT, Argument("client_id", "Only those of this consumer.", "integer")),
        ),
        "/api/subscriptions": reads(queue_paths.subscriptions, "Queues of BlipMQ subscriptions.", PAGED_BY_NUMBER),
        "/api/dead-letters": reads(
            dead_letter_paths.deadLetters,
            "The oldest dead letters of a queue that fulfil conditions, with their stories.",
            (_QUEUE, LIMIT, *_CONDITIONS),
        ),
        "/api/schedules": reads(
            schedule_paths.schedules,
            "Messages that wait for their time, and recurring schedules.",
            (*PAGED, Argument("contains", "A part of topic, name or message id, in any case of letters.")),
        ),
        "/api/queues/purge": acts(
            queue_paths.purge,
            "Discard the messages that wait in a queue, or in that of a BlipMQ subscription.",
            (_TOPIC, Argument("subscription", "The id of a BlipMQ subscription.", "integer")),
        ),
        "/api/queues/move": acts(
            queue_paths.move,
            "Move messages that wait in a queue into another one, all or the first ones.",
            (_TOPIC, Argument("to", "The other queue."), LIMIT),
        ),
        "/api/queues/pause": acts(_pauseQueue, "Stop or resume the deliveries of a queue.", (_TOPIC, _PAUSED)),
        "/api/queues/cancel": acts(
            _cancelMessage,
            "Remove a message that waits in a queue.",
            (_TOPIC, Argument("message_id", "The id of the message.")),
        ),
        "/api/dead-letters/return": acts(
            dead_letter_paths.returnDeadLetters,
            "Return dead letters that fulfil conditions into the queue in which they died.",
            (_QUEUE, LIMIT, *_CONDITIONS),
        ),
        "/api/dead-letters/delete": acts(
            dead_letter_paths.deleteDeadLetters,
            "Delete dead letters that fulfil conditions.",
            (_QUEUE, LIMIT, *_CONDITIONS),
        ),
        "/api/schedules/cancel": acts(
            _cancelSchedule,
            "Cancel a message that waits for its time, or remove a recurring schedule.",
            (Argument("id", "The id of the message.", "integer"), _NAME),
        ),
        "/api/schedules/pause": acts(_pauseSchedule, "Pause a recurring schedule, or go on.", (_NAME, _PAUSED)),
    }


# -- acts of an operator, who needs no right but to see the topic ----------------------------------------


def _asOperator(path: Path, arguments: Arguments, broker: Broker, answer: Answer) -> None:
    path(broker, broker.brokerClient, arguments, answer)


def _queueOf(broker: Broker, client: ConnectedClient, arguments: Arguments) -> str:
    name = text(arguments, "topic", queue_paths.NAME_BYTES)
    if broker.queues.get(name) is None or not sees(client, name):
        raise queue_paths.missing(name)
    return name


def _pauseQueue(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    name = _queueOf(broker, client, arguments)
    _asOperator(work_queue_paths.pause, {**arguments, "queue": name}, broker, answer)


def _cancelMessage(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    name = _queueOf(broker, client, arguments)
    _asOperator(work_queue_paths.cancel, {**arguments, "queue": name}, broker, answer)


def _pauseSchedule(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    _checkRepeat(broker, client, arguments)
    _asOperator(schedule_paths.pause, arguments, broker, answer)


def _checkRepeat(broker: Broker, client: ConnectedClient, arguments: Arguments) -> None:
    name = text(arguments, "name", NAME_BYTES)
    running = broker.schedules.repeats.get(name)
    if running is None or not sees(client, running.definition.topic):
        raise NotFound(f"there is no recurring schedule {name!r}")


def _cancelSchedule(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    if "name" in arguments:
        _checkRepeat(broker, client, arguments)
        _asOperator(schedule_paths.cancel, arguments, broker, answer)
        return
    scheduleId = number(arguments, "id")

    def found(messages: Sequence[WaitingMessage]) -> None:
        if messages and sees(client, messages[0].topic):
            _asOperator(schedule_paths.cancel, arguments, broker, answer)
        else:
            answer({"cancelled": False})

    broker.schedules.find([scheduleId], found)
