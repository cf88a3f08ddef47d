"""PyTorch's inner modules of data loading."""

from . import collate as collate
from . import pin_memory as pin_memory
from . import signal_handling as signal_handling
from . import worker as worker

HAS_NUMPY = True
python_exit_status = False  # of an interpreter that is ending
MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between questions whether workers live
