"""A detector of made weights: its parts, its loss, and a prediction."""

import os

os.environ |= {"YOLO_CONFIG_DIR": ".", "YOLO_VERBOSE": "false"}  # else the first run on a machine prints more

import torch
from made import data, fill, show, uniform
from ultralytics.nn.modules import SPPF, C2f, Conv
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils.metrics import bbox_iou
from ultralytics.utils.ops import xywh2xyxy

show("parts", [fill(m).eval()(data(1, 4, 8, 8)) for m in (Conv(4, 8, 3), C2f(4, 8, 1), SPPF(4, 8))])
show("boxes", xywh2xyxy(uniform(3, 4)))
show("overlap", bbox_iou(uniform(3, 4), uniform(3, 4, seed=1), CIoU=True))
model = fill(DetectionModel("yolov8n.yaml", nc=3, verbose=False)).eval()
with torch.no_grad():
    show("predicted", model(uniform(1, 3, 64, 64))[0])
