"""The former location of :func:`facula.hub.load_state_dict_from_url`."""

from ..hub import load_state_dict_from_url as load_state_dict_from_url
from ..hub import load_state_dict_from_url as load_url
from ..hub import tqdm as tqdm

__all__ = ["load_state_dict_from_url", "load_url"]
