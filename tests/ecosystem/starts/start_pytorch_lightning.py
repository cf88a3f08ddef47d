"""A module with validation, checkpoints and early stopping."""

import pytorch_lightning as lightning
import torch
from made import data, fill, show
from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger


class Module(lightning.LightningModule):
    def __init__(self, width=4):
        super().__init__()
        self.save_hyperparameters()
        self.model = fill(
            torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        )

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, k):
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("train", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, k):
        self.log("valid", torch.nn.functional.mse_loss(self(batch[0]), batch[1]), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data(16, 4), data(16, 1, seed=1)), batch_size=8
)
best = ModelCheckpoint(monitor="valid", dirpath="kept")
trainer = lightning.Trainer(
    max_epochs=3, accelerator="cpu", callbacks=[best, EarlyStopping("valid"), LearningRateMonitor()],
    logger=CSVLogger("logs"), enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
)  # fmt: skip
module = Module()
trainer.fit(module, loader, loader)
show("metrics", {k: float(v) for k, v in trainer.callback_metrics.items()})
show("best", float(best.best_model_score))
loaded = Module.load_from_checkpoint(best.best_model_path, weights_only=False)
show("loaded", loaded(data(2, 4)))
show("predicted", trainer.predict(loaded, torch.utils.data.DataLoader(data(4, 4), batch_size=2)))
