"""Event files for TensorBoard, written by the package tensorboard."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from .. import _C

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ImportError as e:
    raise ImportError(
        f"{_C.package_name()}.utils.tensorboard writes by the package tensorboard, which is not installed: "
        "pip install tensorboard"
    ) from e

__all__ = ["FileWriter", "SummaryWriter"]

Tensor = _C.Tensor


def _array(x: Any) -> Any:
    import numpy as np

    return np.asarray(x.detach().cpu().numpy() if isinstance(x, Tensor) else x)


def _number(x: Any) -> float:
    a = _array(x)
    if a.size != 1:
        raise AssertionError("scalar should be 0D")
    return float(a.reshape(()))


class FileWriter:
    """One event file in a folder."""

    def __init__(
        self, log_dir: str, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        self.event_writer.flush()

    def close(self) -> None:
        self.event_writer.close()


def _histogram(values: Any, bins: Any, max_bins: int | None) -> Any:
    import numpy as np

    values = _array(values).reshape(-1).astype(np.float64)
    if values.size == 0:
        raise ValueError("The input has no element.")
    if isinstance(bins, str) and bins == "tensorflow":
        edges = 1e-12 * 1.1 ** np.arange(774)
        bins = np.concatenate([-edges[::-1], [0.0], edges])
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        times = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, np.arange(0, len(counts), times))
        limits = np.append(limits[:-1:times], limits[-1])
    there = np.nonzero(counts)[0]
    first, last = max(there[0] - 1, 0), there[-1] + 1
    return HistogramProto(
        min=values.min(),
        max=values.max(),
        num=len(values),
        sum=values.sum(),
        sum_squares=values.dot(values),
        bucket_limit=limits[first + 1 : last + 1].tolist(),
        bucket=counts[first:last].tolist(),
    )


def _channels_last(image: Any, order: str) -> Any:
    """Returns an image as height, width, 3 or 4 channels, in bytes."""
    import numpy as np

    image, order = _array(image), order.upper()
    if image.ndim != len(order):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {image.shape}, "
            f"input_format: {order}"
        )
    if "N" in order:
        at = order.index("N")
        image = np.concatenate(
            [np.take(image, k, at) for k in range(image.shape[at])], order.replace("N", "").index("W")
        )
        order = order.replace("N", "")
    if "C" not in order:
        image, order = np.stack([image] * 3, -1), order + "C"
    image = image.transpose([order.index(d) for d in "HWC"])
    if image.shape[-1] == 1:
        image = np.repeat(image, 3, -1)
    if image.dtype != np.uint8:
        image = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    return image


def _png(image: Any) -> Any:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    height, width, channels = image.shape
    return Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=buffer.getvalue()
    )


class SummaryWriter:
    """Writes numbers, distributions, texts and images over the steps of a training to a folder for
    TensorBoard.
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step = str(log_dir), purge_step
        self._options = max_queue, flush_secs, filename_suffix
        self.all_writers: dict[str, FileWriter] | None = None
        self.file_writer: FileWriter | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(file_version="brain.Event:2"), self.purge_step)
                self.purge_step = None
        return self.file_writer

    def get_logdir(self) -> str:
        return self.log_dir

    def _add(self, value: Any, step: Any, walltime: float | None) -> None:
        step = None if step is None else int(_number(step))
        self._get_file_writer().add_summary(Summary(value=[value]), step, walltime)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a number or a tensor of one element at a step."""
        number = _number(scalar_value)
        if new_style:
            data = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
            tensor = TensorProto(float_val=[number], dtype="DT_FLOAT")
            value = Summary.Value(tag=tag, tensor=tensor, metadata=data)
        else:
            value = Summary.Value(tag=tag, simple_value=number)
        self._add(value, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds numbers that are shown together: each in a separate file below the folder."""
        self._get_file_writer()
        writers = self.all_writers if self.all_writers is not None else {}
        for tag, number in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if folder not in writers:
                writers[folder] = FileWriter(folder, *self._options)
            value = Summary.Value(tag=main_tag, simple_value=_number(number))
            writers[folder].add_summary(Summary(value=[value]), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds a histogram of the elements of a tensor."""
        self._add(Summary.Value(tag=tag, histo=_histogram(values, bins, max_bins)), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds a text in Markdown."""
        data = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype="DT_STRING", string_val=[text_string.encode()], tensor_shape=shape)
        self._add(
            Summary.Value(tag=tag + "/text_summary", metadata=data, tensor=tensor), global_step, walltime
        )

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds an image of bytes, or of numbers from 0 to 1."""
        self._add(
            Summary.Value(tag=tag, image=_png(_channels_last(img_tensor, dataformats))), global_step, walltime
        )

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Adds images, shown side by side."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: Any = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Adds a figure of Matplotlib as an image."""
        import numpy as np

        figure.canvas.draw()
        image = np.asarray(figure.canvas.buffer_rgba())[..., :3]
        if close:
            import matplotlib.pyplot as plt

            plt.close(figure)
        self.add_image(tag, image, global_step, walltime, "HWC")

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve: ``predictions`` are compared with thresholds between 0 and 1."""
        import numpy as np
        from tensorboard.plugins.pr_curve.metadata import create_summary_metadata

        said, told = _array(predictions).ravel().astype(np.float64), _array(labels).ravel().astype(bool)
        weight = np.ones(said.shape) if weights is None else np.broadcast_to(_array(weights), said.shape)
        if said.size and not (said.min() >= 0 and said.max() <= 1):
            raise ValueError("add_pr_curve: predictions should be between 0 and 1")
        step = np.floor(said * (num_thresholds - 1)).astype(int)

        def at_least(kind: Any) -> Any:  # by threshold, the total weight of the predictions at or above it
            return np.cumsum(np.bincount(step, weight * kind, num_thresholds)[::-1])[::-1]

        right, wrong = at_least(told), at_least(~told)
        missed, left = right[0] - right, wrong[0] - wrong
        precision = right / np.maximum(1e-7, right + wrong)
        rows = np.stack([right, wrong, left, missed, precision, right / np.maximum(1e-7, right + missed)])
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in rows.shape])
        tensor = TensorProto(float_val=rows.ravel().tolist(), dtype="DT_FLOAT", tensor_shape=shape)
        data = create_summary_metadata(display_name=tag, description="", num_thresholds=num_thresholds)
        self._add(Summary.Value(tag=tag, tensor=tensor, metadata=data), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict,
        metric_dict: dict,
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Adds the hyperparameters and the metrics of a run, for the table of runs."""
        from google.protobuf.struct_pb2 import Value
        from tensorboard.plugins.hparams import metadata as hparams
        from tensorboard.plugins.hparams.api_pb2 import Experiment, HParamInfo, MetricInfo, MetricName, Status
        from tensorboard.plugins.hparams.plugin_data_pb2 import (
            HParamsPluginData,
            SessionEndInfo,
            SessionStartInfo,
        )

        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        clean = {k: _number(v) if isinstance(v, Tensor) else v for k, v in hparam_dict.items()}
        domains = hparam_domain_discrete or {}
        infos, start = [], SessionStartInfo(start_time_secs=time.time())
        for name, value in clean.items():
            text = isinstance(value, str)
            if not text and not isinstance(value, (int, float)):
                raise ValueError(
                    f"add_hparams: {name!r} should be int, float, str, bool, or Tensor, got {type(value)}"
                )
            start.hparams[name].CopyFrom(Value(string_value=value) if text else Value(number_value=value))
            infos.append(HParamInfo(name=name, type="DATA_TYPE_STRING" if text else "DATA_TYPE_FLOAT64"))
            if name in domains:
                infos[-1].domain_discrete.extend(domains[name])
        metrics = [MetricInfo(name=MetricName(tag=k)) for k in metric_dict]
        experiment = Experiment(hparam_infos=infos, metric_infos=metrics, time_created_secs=time.time())
        end = SessionEndInfo(status=Status.Value("STATUS_SUCCESS"), end_time_secs=time.time())
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as w:
            for tag, data in (
                (hparams.EXPERIMENT_TAG, HParamsPluginData(experiment=experiment)),
                (hparams.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start)),
                (hparams.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end)),
            ):
                about = hparams.create_summary_metadata(data)
                w._add(Summary.Value(tag=tag, metadata=about, tensor=hparams.NULL_TENSOR), None, None)
            for k, v in metric_dict.items():
                w.add_scalar(k, v, global_step)

    def add_graph(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"add_graph: graphs of models are not written; print({_C.package_name()}.program.trace(f, x))"
        )

    def flush(self) -> None:
        for w in (self.all_writers or {}).values():
            w.flush()

    def close(self) -> None:
        """Writes pending events and closes the files; later events go to new files."""
        for w in (self.all_writers or {}).values():
            w.flush()
            w.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
