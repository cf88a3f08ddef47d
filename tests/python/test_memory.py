"""What the allocator reports."""

import facula

MIB = 1 << 20


def test_memory_held_grows_and_shrinks_with_tensors():
    before = facula.memory_allocated()
    x = facula.ones(4 * MIB)
    assert facula.memory_allocated() - before >= 16 * MIB - 65536
    assert facula.memory_stats()["allocations"] > 0
    del x
    assert abs(facula.memory_allocated() - before) <= 65536


def test_peak_remembers_what_was_freed_until_it_is_reset():
    facula.reset_peak_memory_stats()
    before = facula.max_memory_allocated()
    x = facula.ones(4 * MIB)
    del x
    assert facula.max_memory_allocated() - before >= 16 * MIB - 65536
    facula.reset_peak_memory_stats()
    assert facula.max_memory_allocated() == facula.memory_allocated()


def test_a_chain_without_gradients_holds_two_tensors_at_its_peak():
    x = facula.ones(MIB)
    facula.reset_peak_memory_stats()
    before = facula.memory_allocated()
    for _ in range(10):
        x = x + 1
    assert facula.max_memory_allocated() - before <= 4 * MIB + 65536
