"""An engine with handlers and metrics."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import PiecewiseLinear
from ignite.metrics import Accuracy, ConfusionMatrix, Loss, RunningAverage
from made import data, fill, show, whole

model = fill(torch.nn.Linear(4, 3))
loader = [(data(8, 4, seed=k), whole(8, below=3, seed=k)) for k in range(4)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
trainer = create_supervised_trainer(model, optimizer, torch.nn.CrossEntropyLoss())
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "average")
trainer.add_event_handler(Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", [(0, 0.1), (8, 0.0)]))
evaluator = create_supervised_evaluator(
    model, {"accuracy": Accuracy(), "loss": Loss(torch.nn.CrossEntropyLoss()), "matrix": ConfusionMatrix(3)}
)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(loader)
    show("metrics", evaluator.state.metrics)
    show("average", engine.state.metrics["average"])


trainer.run(loader, max_epochs=2)
