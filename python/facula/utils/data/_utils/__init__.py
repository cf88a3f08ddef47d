"""PyTorch's location of the collate functions."""

from .. import collate as collate

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between checks that workers are alive
