"""Pipes of items by key."""

from ..datapipe import SequenceWrapper as SequenceWrapper
