"""A module, trained and tested by a trainer."""

import lightning
import torch
from made import data, fill, show


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.model, self.losses = fill(torch.nn.Linear(4, 1)), []

    def training_step(self, batch, k):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def test_step(self, batch, k):
        self.log("tested", torch.nn.functional.mse_loss(self.model(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data(16, 4), data(16, 1, seed=1)), batch_size=4
)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    gradient_clip_val=1.0, default_root_dir=".",
)  # fmt: skip
module = Module()
trainer.fit(module, loader)
show("losses", module.losses)
show("tested", trainer.test(module, loader, verbose=False)[0])
trainer.save_checkpoint("saved.ckpt")
show("loaded", Module.load_from_checkpoint("saved.ckpt", weights_only=False).model.weight)
