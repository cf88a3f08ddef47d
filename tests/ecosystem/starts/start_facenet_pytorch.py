"""The embedding network and the first stage of detection."""

import torch
from facenet_pytorch import InceptionResnetV1
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from made import data, fill, show

with torch.no_grad():
    model = fill(InceptionResnetV1(pretrained=None, classify=False)).eval()
    show("embedding", model(data(1, 3, 80, 80)))
    show("stage 1", fill(PNet(pretrained=False))(data(1, 3, 24, 24)))
    show("stage 2", fill(RNet(pretrained=False))(data(1, 3, 24, 24)))
    show("stage 3", fill(ONet(pretrained=False))(data(1, 3, 48, 48)))
