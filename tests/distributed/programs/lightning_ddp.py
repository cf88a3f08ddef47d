"""Trains by Lightning's strategy ddp. Each step takes the whole batch, so that its order does not matter."""

import lightning
import numpy as np
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        draw = np.random.default_rng(0)
        with torch.no_grad():
            for p in self.net.parameters():
                p.copy_(torch.from_numpy(draw.normal(0, 0.3, tuple(p.shape)).astype("float32")))

    def training_step(self, batch, index):
        x, y = batch
        loss = ((self.net(x) - y) ** 2).mean()
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    draw = np.random.default_rng(1)
    x = torch.from_numpy(draw.normal(size=(32, 8)).astype("float32"))
    y = x.sum(1, keepdim=True).tanh()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), loader)
    if trainer.is_global_zero:
        print(
            "processes",
            trainer.world_size,
            "steps",
            trainer.global_step,
            "loss",
            round(trainer.callback_metrics["loss"].item(), 5),
        )


if __name__ == "__main__":
    main()
