from __future__ import annotations

import os
import pickle
import threading

import pytest

from drivetrain_trainer.runtime.descriptors import MAX_DESCRIPTORS, Channel, Descriptor


def pipe() -> tuple[Descriptor, Descriptor]:
    reader, writer = os.pipe()
    return Descriptor(reader), Descriptor(writer)


def test_a_descriptor_arrives_in_its_place_as_the_receivers_own() -> None:
    reader, writer = pipe()
    first, second = Channel.pair()
    with first, second:
        first.send({"write": writer, "same": [writer], "other": 7})
        writer.close()
        message = second.receive()
    assert message["other"] == 7
    assert message["same"][0] is message["write"]
    os.write(message["write"].fileno(), b"through")
    assert os.read(reader.fileno(), 100) == b"through"
    assert not os.get_inheritable(message["write"].fileno())


def test_a_descriptor_leaves_a_process_by_no_other_way() -> None:
    reader, _ = pipe()
    with pytest.raises(TypeError, match="only be sent through a Channel"):
        pickle.dumps(reader)


def test_a_closed_descriptor_names_no_file() -> None:
    reader, _ = pipe()
    number = reader.fileno()
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_collected_descriptor_is_closed() -> None:
    reader, _ = pipe()
    number = reader.fileno()
    del reader
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_messages_larger_than_the_sockets_buffer_arrive_whole_and_in_order() -> None:
    first, second = Channel.pair()
    sent = [os.urandom(size) for size in (3_000_000, 0, 1, 700_000)]

    def send_all() -> None:
        for message in sent:
            first.send(message)

    with first, second:
        thread = threading.Thread(target=send_all)
        thread.start()
        received = [second.receive() for _ in sent]
        thread.join()
    assert received == sent


def test_the_end_of_the_other_side_is_told() -> None:
    first, second = Channel.pair()
    with second:
        first.send("last")
        first.close()
        assert second.pending()
        assert second.receive() == "last"
        with pytest.raises(EOFError):
            second.receive()


def test_an_end_within_a_message_is_no_message() -> None:
    first, second = Channel.pair()
    with second:
        first._socket.sendall(b"\x10" + bytes(11) + b"half")
        first.close()
        with pytest.raises(EOFError, match="within a message"):
            second.receive()


def test_nothing_pending_is_told_without_waiting() -> None:
    first, second = Channel.pair()
    with first, second:
        assert not second.pending()


def test_more_descriptors_than_a_message_holds_are_refused() -> None:
    reader, _ = pipe()
    many = [Descriptor(os.dup(reader.fileno())) for _ in range(MAX_DESCRIPTORS + 1)]
    first, second = Channel.pair()
    with first, second, pytest.raises(ValueError, match="65 descriptors"):
        first.send(many)


def test_an_end_that_hangs_in_the_middle_of_a_message_is_not_waited_for_for_ever() -> None:
    ours, theirs = Channel.pair()
    with ours, theirs:
        ours.limit(0.05)
        theirs._socket.send(b"\x01")  # the first byte of a header
        with pytest.raises(TimeoutError):
            ours.receive()
        with pytest.raises(TimeoutError):
            ours.send(bytes(1 << 24))  # more than fits, and nobody takes it
