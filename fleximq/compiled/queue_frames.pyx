# cython: language_level=3
"""The compiled scanner and encoder of BlipMQ frames, and the reading of MiniMQ's common PRODUCEs. Hot.

Every length is compared with the bytes that are left before anything is read. Only complete and allowed frames are read
here: the reference, the Python module with the same task, buffers the rest of the input, or raises its error.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

from fleximq.values.message import Content, Message
from fleximq.wire import blipmq_frame

#: The bytes of the length field, of the whole header, and those that the length counts beside the payload.
cdef Py_ssize_t LENGTH = 4, HEADER = 13, COUNTED = blipmq_frame.COUNTED_BYTES
cdef int PUBLISH = blipmq_frame.FrameType.PUBLISH, POLL = blipmq_frame.FrameType.POLL, ACK = blipmq_frame.FrameType.ACK
cdef int LAST = max(blipmq_frame.FrameType)
cdef list TYPES = [None, *(blipmq_frame.FrameType(number) for number in range(1, LAST + 1))]


cdef inline unsigned long long _number(const unsigned char* at, int size) noexcept nogil:
    """Return a big-endian number; the caller has checked that ``size`` bytes are there."""
    cdef unsigned long long value = 0
    cdef int place
    for place in range(size):
        value = value << 8 | at[place]
    return value


cdef inline void _write(unsigned char* to, unsigned long long value, int size) noexcept nogil:
    while size:
        size -= 1
        to[size] = value & 0xFF
        value >>= 8


cdef class _Read:
    """A position in input: ``offset`` is the first byte that was not yielded."""

    cdef bytes data
    cdef const unsigned char* at
    cdef Py_ssize_t size, limit, offset

    def __init__(self, bytes data, Py_ssize_t limit):
        self.data = data
        self.at = <const unsigned char*>PyBytes_AS_STRING(data)
        self.size = PyBytes_GET_SIZE(data)
        self.limit = limit

    cdef Py_ssize_t endOf(self, Py_ssize_t offset) noexcept:
        """Return the end of the frame at ``offset``; -1 if it is cut or bad."""
        cdef Py_ssize_t left = self.size - offset, length
        if left < HEADER or not 1 <= self.at[offset + LENGTH] <= LAST:
            return -1
        length = <Py_ssize_t>_number(self.at + offset, LENGTH)
        if length < COUNTED or length > self.limit or length > left - LENGTH:
            return -1
        return offset + LENGTH + length

    cdef bytes bytesOf(self, Py_ssize_t start, Py_ssize_t end):
        return PyBytes_FromStringAndSize(<const char*>self.at + start, end - start)

    cdef object correlation(self, Py_ssize_t offset):
        return _number(self.at + offset + LENGTH + 1, 8)

    cdef tuple next(self):
        """Return the next run; None at a frame that is cut or bad."""
        cdef Py_ssize_t offset = self.offset, start = offset + HEADER, width, end = self.endOf(offset)
        cdef int kind
        cdef const unsigned char* head
        if end < 0:
            return None
        kind = self.at[offset + LENGTH]
        correlations = [self.correlation(offset)]
        messages = []
        width = end - start
        if kind == PUBLISH:
            if width < 3 or 3 + <Py_ssize_t>_number(self.at + start + 1, 2) > width:
                self.offset = end
                return TYPES[kind], self.bytesOf(start, end), correlations, messages
            width = 3 + <Py_ssize_t>_number(self.at + start + 1, 2)
            messages.append(self.bytesOf(start + width, end))
        head = self.at + start
        offset = end
        if kind == PUBLISH or kind == POLL or kind == ACK:
            while (end := self.endOf(offset)) >= 0 and self.at[offset + LENGTH] == kind:
                if end - offset - HEADER < width or memcmp(self.at + offset + HEADER, head, width) != 0:
                    break
                if kind == PUBLISH:
                    messages.append(self.bytesOf(offset + HEADER + width, end))
                elif end - offset - HEADER != width:
                    break
                correlations.append(self.correlation(offset))
                offset = end
        self.offset = offset
        return TYPES[kind], self.bytesOf(start, start + width), correlations, messages


def _runs(scanner, bytes data):
    cdef _Read read
    cdef tuple run
    taken = scanner._buffer.take(data) if scanner._buffer.buffered else data  # most reads end with a frame
    if taken is None:
        return
    read = _Read(taken, scanner._limit)
    while (run := read.next()) is not None:
        yield run
    if read.offset < len(taken):
        scanner._keep(taken, read.offset)


class BlipScanner(blipmq_frame.BlipScanner):
    """The scanner of BlipMQ frames."""

    __slots__ = ()

    def feed(self, data):
        """Yield the runs of the reference."""
        return _runs(self, data)


def encodeRun(head, correlations, messages):
    """Do what the reference does; see :func:`fleximq.wire.blipmq_frame.encodeRun`."""
    if not (type(head) is bytes and type(correlations) is list and type(messages) is list):
        return blipmq_frame.encodeRun(head, correlations, messages)
    if len(correlations) != len(messages) or not all([type(message) is bytes for message in messages]):
        return blipmq_frame.encodeRun(head, correlations, messages)
    cdef Py_ssize_t width = PyBytes_GET_SIZE(head), left = 0, size
    cdef unsigned long long correlation
    cdef unsigned char* to
    cdef bytes frames
    for message in <list>messages:
        size = PyBytes_GET_SIZE(message)
        if size > 0xFFFFFFFFLL - COUNTED - width:
            raise ValueError("a message is too long")
        left += HEADER + width + size
    frames = PyBytes_FromStringAndSize(NULL, left)
    to = <unsigned char*>PyBytes_AS_STRING(frames)
    for correlation, message in zip(<list>correlations, <list>messages):
        size = PyBytes_GET_SIZE(message)
        if HEADER + width + size > left:
            raise ValueError("the messages have changed")
        left -= HEADER + width + size
        _write(to, COUNTED + width + size, LENGTH)
        to[LENGTH] = PUBLISH
        _write(to + LENGTH + 1, correlation, 8)
        memcpy(to + HEADER, PyBytes_AS_STRING(head), width)
        memcpy(to + HEADER + width, PyBytes_AS_STRING(message), size)
        to += HEADER + width + size
    return frames


cdef object _new = tuple.__new__
cdef object _TEXT = Content.TEXT


def readProduces(list lines, Py_ssize_t place, bytes topic):
    """Do what the reference does; see :func:`fleximq.wire.minimq_message.readProduces`."""
    cdef Py_ssize_t width = PyBytes_GET_SIZE(topic), end, idEnd, content, each
    cdef const char* at
    cdef bytes line
    messages = []
    for each in range(place, len(lines)):
        line = lines[each]
        at = PyBytes_AS_STRING(line)
        end = PyBytes_GET_SIZE(line) - 6
        if end < 8 or memcmp(at, b"PRODUCE:", 8) or memcmp(at + end, b"::::::", 6) or memchr(at, b"\r", end):
            break
        idEnd = 8
        while idEnd < end and memcmp(at + idEnd, b":::", 3):
            idEnd += 1
        content = idEnd + width + 6
        if idEnd == 8 or content > end or line.startswith((b"ERROR", b"NO_MSG"), 8):
            break
        if memcmp(at + idEnd + 3, PyBytes_AS_STRING(topic), width) or memcmp(at + content - 3, b":::", 3):
            break
        try:
            if not line.isascii():
                line.decode()
            name = PyUnicode_DecodeUTF8(at + 8, idEnd - 8, NULL)
        except UnicodeDecodeError:
            break
        text = PyBytes_FromStringAndSize(at + content, end - content)
        messages.append(_new(Message, (text, _TEXT, 1, name, None, None, False, True, 0, None)))
    return messages
