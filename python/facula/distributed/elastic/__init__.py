"""Launching of programs that go on when processes fail; of one process, that its error is told."""
